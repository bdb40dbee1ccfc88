// The packages `openai`, `@anthropic-ai/sdk` and the AI SDK, with their own retries, against the vendors of the demo, which judge by
// their own books. One line differs.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { Client, limitedFetch } from "@sluice/sdk";
import { startSandbox } from "@sluice/sdk/testkit";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { command, DAYS, eventually } from "./support.mjs";

const CALLS = 80;
const asked = { model: "m", max_tokens: 100, messages: [{ role: "user", content: "Hello" }] };

let sandbox;
let client;

beforeEach(async () => {
  sandbox = await startSandbox({ command: command(), vendors: true });
  Object.assign(process.env, sandbox.variables, { OPENAI_API_KEY: "k", ANTHROPIC_API_KEY: "k" });
  client = Client.fromEnv();
});
afterEach(async () => {
  await client.close();
  await sandbox.stop();
});

/** What the vendor saw. */
async function books(vendor) {
  const url = sandbox.variables.OPENAI_BASE_URL.replace("/openai/v1", "/books");
  return (await (await fetch(url)).json())[vendor];
}

/** Declares a bucket to which nothing flows back, and returns what was taken from it. */
async function countTokens(vendor) {
  const [dimension, most] = [`${vendor}#tpd`, 10_000_000];
  await client.ops.applyLimit(dimension, { type: "tokens", capacity: most, perMs: 1_000 * DAYS });
  // Not full: a full bucket takes back no more than has room.
  await client.acquire(dimension, { costs: { [dimension]: most / 2 } });
  return async () => Math.round(most / 2 - (await client.ops.bucket(dimension)).level);
}

/** Of each package: its vendor, a call, and one whose answer is a stream, which is read to its end. */
const packages = {
  openai: ["openai", (fetch) => callsOf(new OpenAI({ fetch }).chat.completions)],
  anthropic: ["anthropic", (fetch) => callsOf(new Anthropic({ fetch }).messages)],
  "the AI SDK": [
    "openai",
    (fetch) => {
      const model = createOpenAI({ fetch }).chat("m");
      const options = { model, prompt: "Hello", maxOutputTokens: 100 };
      const read = async () => {
        const { textStream } = streamText({ ...options, onError: ({ error }) => assert.fail(error) });
        for await (const _ of textStream);
      };
      return { call: () => generateText(options), read };
    },
  ],
};

const callsOf = (api) => ({
  call: () => api.create(asked),
  read: async () => {
    for await (const _ of await api.create({ ...asked, stream: true }));
  },
});

for (const [name, [vendor, of]] of Object.entries(packages)) {
  test(`${name}: without the line many calls are refused, and with it none; they pay what the vendor counts`, async () => {
    const run = async (fetch) => {
      const { call, read } = of(fetch);
      const all = Array.from({ length: CALLS }, (_, n) => (n % 2 ? read() : call()));
      return (await Promise.allSettled(all)).filter(({ status }) => status === "rejected").length;
    };
    const taken = await countTokens(vendor);
    assert.equal(await run(limitedFetch(vendor, { client, askUsage: vendor === "openai" })), 0);
    const seen = await books(vendor);
    assert.deepEqual([seen.taken, seen.refused], [CALLS, 0]);
    await eventually("all is settled", async () => (await taken()) === seen.tokens);
    await run(globalThis.fetch);
    assert((await books(vendor)).refused > 20);
  });
}

test("streams that are left give their slots back", async () => {
  const messages = new Anthropic({ fetch: limitedFetch("anthropic", { client }) }).messages;
  const leave = async () => {
    for await (const event of await messages.create({ ...asked, stream: true })) {
      assert.equal(event.type, "message_start");
      break;
    }
  };
  // More than there are slots.
  await Promise.all(Array.from({ length: 30 }, leave));
  const isFree = async () => (await client.ops.bucket("anthropic#concurrent")).level === 20;
  await eventually("all slots are free", isFree);
  await eventually("the vendor has no call", async () => (await books("anthropic")).under_way === 0);
  const seen = await books("anthropic");
  assert.deepEqual([seen.taken, seen.refused], [30, 0]);
});
