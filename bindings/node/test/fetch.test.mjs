// One line in the client of a vendor: each attempt is admitted, and its reply is read as it passes by.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { limitedFetch } from "@sluice/sdk";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { DAYS, declare, eventually, level, requests, slots, tokens, world } from "./support.mjs";
import { Vendor } from "./vendor.mjs";

let vendor;
let acme;
let made = 0;

before(async () => {
  vendor = await Vendor.start();
});
after(() => vendor.stop());

beforeEach(async () => {
  made += 1;
  acme = `acme${made}`;
  Object.assign(vendor, { calls: 0, mostAtOnce: 0 });
});

/** The buckets of a vendor of its own. */
async function buckets() {
  await declare(requests(1_000, DAYS), "rpm", acme);
  const tpm = await declare(tokens(20_000, DAYS), "tpm", acme);
  await declare(slots(2), "concurrent", acme);
  // Not full: a full bucket takes back no more than has room.
  await world.client.acquire(tpm, { costs: { [tpm]: 10_000 } });
}

/** What was taken of requests and tokens, and what is held of the slots, becomes this. */
async function become(...expected) {
  const now = async () => [
    Math.round(1_000 - (await level(`${acme}#rpm`))),
    Math.round(10_000 - (await level(`${acme}#tpm`))),
    2 - (await level(`${acme}#concurrent`)),
  ];
  let last;
  const isSo = async () => {
    last = await now();
    return last.join() === expected.join();
  };
  await eventually("requests, tokens and slots", isSo).catch(() => assert.deepEqual(last, expected));
}

const limited = (options = {}) => limitedFetch(acme, { client: world.client, ...options });

const openai = (fetch, options = {}) => new OpenAI({ apiKey: "k", baseURL: `${vendor.url}/v1`, fetch, ...options });

const asked = { model: "m", max_tokens: 400, messages: [{ role: "user", content: "Hello" }] };

test("openai is limited and settled to the token, streams too", async () => {
  await buckets();
  const client = openai(limited({ askUsage: true }));
  const reply = await client.chat.completions.create(asked);
  assert.equal(reply.choices[0].message.content, "Hello");
  await become(1, 50, 0);
  let text = "";
  for await (const piece of await client.chat.completions.create({ ...asked, stream: true })) {
    text += piece.choices[0]?.delta.content ?? "";
  }
  assert.equal(text, "Hel");
  await become(2, 100, 0);
});

test("anthropic is limited and settled to the token, streams too", async () => {
  await buckets();
  const client = new Anthropic({ apiKey: "k", baseURL: vendor.url, fetch: limited() });
  const reply = await client.messages.create(asked);
  assert.equal(reply.usage.output_tokens, 20);
  await become(1, 50, 0);
  await client.messages.stream(asked).finalMessage();
  await become(2, 100, 0);
});

test("a stream that is left gives its slot back, and one that breaks off too; their tokens stay", async () => {
  await buckets();
  const client = openai(limited(), { maxRetries: 0 });
  const stream = await client.chat.completions.create({ ...asked, user: "pause", stream: true });
  for await (const _ of stream) {
    assert.equal(await level(`${acme}#concurrent`), 1);
    break;
  }
  await become(1, 406, 0);
  await assert.rejects(async () => {
    for await (const _ of await client.chat.completions.create({ ...asked, user: "break off", stream: true }));
  });
  await become(2, 812, 0);
  await assert.rejects(client.chat.completions.create({ ...asked, user: "hang up" }));
  await become(3, 1_218, 0);
});

test("a stream of anthropic that is left gives its slot back, and its tokens stay", async () => {
  await buckets();
  const client = new Anthropic({ apiKey: "k", baseURL: vendor.url, fetch: limited(), maxRetries: 0 });
  for await (const _ of await client.messages.create({ ...asked, metadata: { user_id: "pause" }, stream: true })) {
    assert.equal(await level(`${acme}#concurrent`), 1);
    break;
  }
  await become(1, 406, 0);
});

test("calls are paid by a share", async () => {
  const dimension = await declare(slots(3), "concurrent", acme);
  await world.client.ops.applyLimit(dimension, slots(3), { shares: { search: 0.67 } });
  const client = openai(limited({ share: "search" }));
  const stream = await client.chat.completions.create({ ...asked, stream: true });
  assert.deepEqual([await level(dimension), await level(`${dimension}@search`)], [1, 1]);
  for await (const _ of stream);
  assert.throws(() => limited({ share: "no good" }), /malformed share "no good"/);
});

/** A call that the vendor refuses at first, with a pause of two seconds: the client serves it, and the limiter not again. */
async function afterOnePause(call) {
  const error = { message: "slow down", type: "rate_limit_error", code: "rate_limit_exceeded" };
  vendor.next = [[429, { "retry-after": "2" }, { type: "error", error }]];
  const began = Date.now();
  const reply = await call();
  const took = Date.now() - began;
  assert.equal(vendor.calls, 2);
  assert(took > 1_900 && took < 3_900, `a pause of 2 s took ${took} ms`);
  return reply;
}

test("each attempt is admitted, and the pause that the vendor asked for is served once", async () => {
  await buckets();
  const reply = await afterOnePause(() => openai(limited()).chat.completions.create(asked));
  assert.equal(reply.choices[0].message.content, "Hello");
  await become(2, 50, 0);
});

test("each attempt of anthropic is admitted, and the pause that the vendor asked for is served once", async () => {
  await buckets();
  const client = new Anthropic({ apiKey: "k", baseURL: vendor.url, fetch: limited() });
  const reply = await afterOnePause(() => client.messages.create(asked));
  assert.equal(reply.usage.output_tokens, 20);
  await become(2, 50, 0);
});

test("a body of an error reaches the client whole", async () => {
  await buckets();
  vendor.next = [[400, {}, { error: { message: `wrong${"!".repeat(200_000)}` } }]];
  const reply = await limited()(`${vendor.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(asked) });
  assert.equal(reply.status, 400);
  assert.equal(reply.url, `${vendor.url}/v1/chat/completions`);
  assert.equal((await reply.json()).error.message.length, 200_005);
  await become(1, 0, 0);
});

test("beyond the patience the client raises its own error, and the call is not made", async () => {
  const rpm = await declare(requests(1, DAYS), "rpm", acme);
  const client = openai(limited({ buckets: [rpm], patienceMs: 300 }), { maxRetries: 0 });
  await client.chat.completions.create(asked);
  await assert.rejects(client.chat.completions.create(asked), (error) => {
    assert(error instanceof OpenAI.RateLimitError);
    assert.match(error.message, /Sluice: .* the call was not made/);
    return true;
  });
  assert.equal(vendor.calls, 1);
});

test("a wait ends with the signal of the call", async () => {
  const rpm = await declare(requests(1, 20_000), "rpm", acme);
  await world.client.acquire(rpm);
  const waiting = limited()(`${vendor.url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify(asked),
    signal: AbortSignal.timeout(200),
  });
  await assert.rejects(waiting, { name: "TimeoutError" });
  assert.equal(vendor.calls, 0);
});

test("a call that cannot be sent gives everything back", async () => {
  await buckets();
  const gone = await Vendor.start();
  gone.stop();
  const nowhere = limited()(`${gone.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(asked) });
  await assert.rejects(nowhere, TypeError);
  await become(0, 0, 0);
});

test("calls that are no calls of a model, and a Request with a body, are read as they are", async () => {
  await buckets();
  const headers = { "content-type": "application/json" };
  const request = new Request(`${vendor.url}/v1/chat/completions`, {
    method: "POST",
    headers,
    body: JSON.stringify(asked),
  });
  assert.equal((await (await limited()(request)).json()).choices.length, 1);
  await become(1, 50, 0);
});

/** A model of the AI SDK. */
const model = (fetch) => createOpenAI({ apiKey: "k", baseURL: `${vendor.url}/v1`, fetch }).chat("m");

test("the AI SDK is limited and settled to the token, streams too", async () => {
  await buckets();
  const fetch = limited({ askUsage: true });
  const reply = await generateText({ model: model(fetch), prompt: "Hello", maxOutputTokens: 400 });
  assert.equal(reply.text, "Hello");
  await become(1, 50, 0);
  const stream = streamText({ model: model(fetch), prompt: "Hello", maxOutputTokens: 400 });
  let text = "";
  for await (const piece of stream.textStream) {
    text += piece;
  }
  assert.equal(text, "Hel");
  await become(2, 100, 0);
});

test("each attempt of the AI SDK is admitted, and the pause that the vendor asked for is served once", async () => {
  await buckets();
  const call = () => generateText({ model: model(limited()), prompt: "Hello", maxOutputTokens: 400 });
  assert.equal((await afterOnePause(call)).text, "Hello");
  await become(2, 50, 0);
});

test("a stream of the AI SDK that is left gives its slot back", async () => {
  await buckets();
  const stop = new AbortController();
  const providerOptions = { openai: { user: "pause" } };
  const asked = { model: model(limited()), prompt: "Hello", maxOutputTokens: 400, providerOptions, maxRetries: 0 };
  const stream = streamText({ ...asked, abortSignal: stop.signal, onError: () => undefined });
  for await (const piece of stream.textStream) {
    assert.equal(piece, "Hel");
    assert.equal(await level(`${acme}#concurrent`), 1);
    stop.abort();
  }
  await eventually("the slot is back", async () => (await level(`${acme}#concurrent`)) === 2);
});
