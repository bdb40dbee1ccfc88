// Slots: every way out gives back what was held.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as sluice from "@sluice/sdk";
import ts from "typescript";
import { allFree, DAYS, declare, eventually, level, requests, slots, tokens, world } from "./support.mjs";

test("a call runs in its slot, and what it used is settled", async () => {
  const [held, tpm] = [await declare(slots(1), "concurrent"), await declare(tokens(1_000, DAYS), "tpm")];
  await world.client.acquire(tpm, { costs: { [tpm]: 500 } });
  const told = await world.client.slot([held, tpm], { costs: { [tpm]: 400 } }, async (slot) => {
    assert.equal(await level(held), 0);
    assert(slot.startAt <= new Date() && slot.acquiringMs > 0 && slot.basis === "table" && !slot.isLeaseLost);
    const replied = await slot.reply(new Response("{}"), { used: { [tpm]: 100 } });
    assert.equal(replied.decision.action, "not_refused");
    return "told";
  });
  assert.equal(told, "told");
  assert.equal(await level(held), 1);
  assert.equal(Math.round(await level(tpm)), 400);
});

test("a call that throws gives back slot and tokens, and its error passes", async () => {
  const [held, tpm] = [await declare(slots(1), "concurrent"), await declare(tokens(1_000, DAYS), "tpm")];
  await world.client.acquire(tpm, { costs: { [tpm]: 500 } });
  const failing = world.client.slot([held, tpm], { costs: { [tpm]: 400 } }, async () => {
    throw new TypeError("of the call");
  });
  await assert.rejects(failing, TypeError);
  assert.equal(await level(held), 1);
  await allFree(held, 1);
  assert.equal(Math.round(await level(tpm)), 500);
});

test("a slot that is disposed of gives back what it held", async () => {
  const held = await declare(slots(1), "concurrent");
  const slot = await world.client.slot(held);
  assert.equal(await level(held), 0);
  await slot[Symbol.asyncDispose]();
  await slot[Symbol.asyncDispose]();
  assert.equal(await level(held), 1);
  const grant = await world.client.grant(held);
  await grant[Symbol.asyncDispose]();
  assert.equal(await level(held), 1);
});

test("a scope with `await using` that throws gives its slot back, and its tokens if the call is said to have failed", async () => {
  // Node 20 does not know the syntax: TypeScript compiles it, as for the programs of users.
  const scope = `export async function scope(client, dimensions, costs, { hasFailed }) {
    await using slot = await client.slot(dimensions, { costs });
    slot.hasFailed = hasFailed;
    throw new TypeError("of the call");
  }`;
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const compiled = ts.transpileModule(scope, { compilerOptions }).outputText;
  const module = await import(`data:text/javascript,${encodeURIComponent(compiled)}`);
  const [held, tpm] = [await declare(slots(1), "concurrent"), await declare(tokens(1_000, DAYS), "tpm")];
  await world.client.acquire(tpm, { costs: { [tpm]: 500 } });
  for (const [hasFailed, left] of [
    [true, 500],
    [false, 100],
  ]) {
    await assert.rejects(module.scope(world.client, [held, tpm], { [tpm]: 400 }, { hasFailed }), {
      name: "TypeError",
      message: "of the call",
    });
    await allFree(held, 1);
    assert.equal(Math.round(await level(tpm)), left);
  }
});

test("callers wait for each other in the order in which they came", async () => {
  const held = await declare(slots(1), "concurrent");
  // While a bucket is read for the first time, callers have no order yet.
  await world.client.slot(held, () => undefined);
  const order = [];
  const call = (n) =>
    world.client.slot(held, async () => {
      order.push(n);
      await sleep(20);
    });
  await Promise.all([0, 1, 2, 3, 4].map(call));
  assert.deepEqual(order, [0, 1, 2, 3, 4]);
  assert.equal(await level(held), 1);
});

test("beyond its wait, a slot is refused and the call is not made", async () => {
  const rpm = await declare(requests(1, DAYS));
  await world.client.acquire(rpm);
  const refused = world.client.slot(rpm, { maxWaitMs: 200 }, () => assert.fail("it is not called"));
  await assert.rejects(refused, (error) => {
    assert(error instanceof sluice.RefusedError);
    assert.equal(error.retry.dimension, rpm);
    assert.equal(error.delaySeconds, error.retry.delaySeconds);
    return true;
  });
});

test("a wait that is aborted ends at once and gives back what it had", async () => {
  const [held, rpm] = [await declare(slots(1), "concurrent"), await declare(requests(1, 20_000))];
  await world.client.acquire(rpm);
  const ending = new AbortController();
  // It holds the slot, and has booked the request.
  const waiting = world.client.slot([held, rpm], { signal: ending.signal, maxWaitMs: 60_000 }, () => assert.fail());
  await eventually("the slot is taken", async () => (await level(held)) === 0 && (await level(rpm)) < 0);
  const began = Date.now();
  ending.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert(Date.now() - began < 1_000);
  await eventually("all is back", async () => (await level(held)) === 1 && (await level(rpm)) >= 0);
  await assert.rejects(world.client.acquire(held, { signal: ending.signal }), /enough/);
  await allFree(held, 1);
});

test("a client that is closed while a call runs is an error, unless the call has its own", async () => {
  const held = await declare(slots(1), "concurrent");
  const during = (then) => {
    const ending = sluice.Client.fromEnv();
    return ending.slot(held, async () => {
      assert.equal((await ending.close(200)).cutOff, true);
      return then();
    });
  };
  await assert.rejects(
    during(() => "told"),
    sluice.ClosedError,
  );
  const fails = () => {
    throw new TypeError("of the call");
  };
  await assert.rejects(during(fails), TypeError);
  await allFree(held, 1);
});

test("a grant that nobody holds any more gives its slot back when it is collected", async () => {
  const held = await declare(slots(1), "concurrent");
  await world.client.acquire(held);
  await eventually("the slot is back", async () => {
    globalThis.gc?.();
    return (await level(held)) === 1;
  });
});
