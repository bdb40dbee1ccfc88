// The packages `openai`, `@anthropic-ai/sdk` and the AI SDK, with their own retries, against the vendors of the demo, which judge by
// their own books. One line differs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { promisify } from "node:util";
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

/** A program that makes many calls at once, and prints the first word of each answer, or the status of its refusal. */
const program = (imports, client, api, text) => `${imports}

const client = ${client};

const ask = async () => (await client.${api}.create(${JSON.stringify(asked)})).${text}.split(" ")[0];
const answers = await Promise.all(Array.from({ length: ${CALLS} }, () => ask().catch(({ status }) => status)));
console.log(JSON.stringify(answers));
`;
const programs = {
  openai: program('import OpenAI from "openai";', "new OpenAI()", "chat.completions", "choices[0].message.content"),
  anthropic: program('import Anthropic from "@anthropic-ai/sdk";', "new Anthropic()", "messages", "content[0].text"),
};
const IMPORT = 'import { limitedFetch } from "@sluice/sdk";\n';

for (const [vendor, without] of Object.entries(programs)) {
  test(`a program with ${vendor} differs in one line and an import if it is limited, and is never refused`, async () => {
    const limited = IMPORT + without.replace(/(new \w+\()\)/, `$1{ fetch: limitedFetch("${vendor}") })`);
    const lines = without.split("\n");
    const differs = limited
      .split("\n")
      .slice(1)
      .filter((line, number) => line !== lines[number]);
    const page = await readFile(join(import.meta.dirname, "../../../docs/node.md"), "utf8");
    assert.equal(differs.length, 1);
    assert(page.includes(differs[0].replace("client", vendor)), `docs/node.md does not show ${differs[0]}`);

    const answersOf = async (text) => {
      const options = { cwd: import.meta.dirname, timeout: 50_000 };
      const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", text], options);
      return JSON.parse(stdout);
    };
    const answers = await answersOf(limited);
    assert.deepEqual(
      answers,
      Array.from({ length: CALLS }, () => "word"),
    );
    const { taken, refused } = await books(vendor);
    assert.deepEqual([taken, refused], [CALLS, 0]);
    // Without the line the program prints the same, but for its refusals.
    const refusals = (await answersOf(without)).filter((answer) => answer !== "word");
    assert.deepEqual([...new Set([...refusals, 429])], [429]);
    assert((await books(vendor)).refused > 5);
  });
}

for (const [vendor, of] of [
  ["openai", (fetch) => new OpenAI({ fetch }).chat.completions],
  ["anthropic", (fetch) => new Anthropic({ fetch }).messages],
]) {
  test(`streams of ${vendor} that are left give their slots back`, async () => {
    await client.ops.applyLimit(`${vendor}#concurrent`, { type: "concurrent", capacity: 20 });
    const api = of(limitedFetch(vendor, { client }));
    const leave = async () => {
      for await (const _ of await api.create({ ...asked, stream: true })) {
        break;
      }
    };
    // More than there are slots.
    await Promise.all(Array.from({ length: 30 }, leave));
    const isFree = async () => (await client.ops.bucket(`${vendor}#concurrent`)).level === 20;
    await eventually("all slots are free", isFree);
    // Of OpenAI's calls at once the vendor keeps no book.
    await eventually("the vendor has no call", async () => !(await books(vendor)).under_way);
    const seen = await books(vendor);
    assert.deepEqual([seen.taken, seen.refused], [30, 0]);
  });
}
