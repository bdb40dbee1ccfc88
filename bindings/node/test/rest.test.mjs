// The operations that few programs need.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, EndedError } from "@sluice/sdk";
import { DAYS, declare, eventually, level, requests, slots, tokens, world } from "./support.mjs";

test("what nobody takes out of a tracker is released by its background task", async () => {
  const held = await declare(slots(2), "concurrent");
  const tracker = world.client.reservations({ maxReservationAgeMs: 200, staleCleanupIntervalMs: 50 });
  tracker.start();
  tracker.start();
  tracker.store("request", held, await world.client.acquire(held));
  await eventually("the slot is back", async () => (await level(held)) === 2);
  await eventually("it is counted", () => tracker.staleReport().givenBack === 1);
  await tracker.stop();
  tracker.store("request", held, await world.client.acquire(held));
  await eventually("it is stale", async () => (await tracker.releaseStale()).givenBack === 1);
  assert.equal(tracker.staleEntryRatio, 0);
  assert.equal(await level(held), 2);
});

test("a tracker takes out the oldest of a request, and what was stored before a moment", async () => {
  const held = await declare(slots(3), "concurrent");
  const tracker = world.client.reservations();
  for (const bucket of ["b", "a", "c"]) {
    tracker.store("request", bucket, await world.client.acquire(held));
    await sleep(2);
  }
  assert.equal(await tracker.getAndClear("another"), null);
  assert.equal((await tracker.getAndClear("request")).reservation.bucketId, "b");
  assert.deepEqual([tracker.compactHeap(), tracker.compactHeap()], [1, 0]);
  const last = tracker.get("request", "c");
  assert.deepEqual(await tracker.getAndClearStale(), []);
  const taken = async (cutoff) => (await tracker.getAndClearStale(cutoff)).map((of) => of.reservation.bucketId);
  assert.deepEqual(await taken(last.createdAt), ["a"]);
  assert.deepEqual(await taken(new Date(Date.now() + 60_000)), ["c"]);
});

test("a lease is renewed, and a grant that is cancelled gives everything back", async () => {
  const [held, tpm] = [await declare(slots(1), "concurrent"), await declare(tokens(1_000, DAYS), "tpm")];
  const grant = await world.client.acquire([held, tpm], { costs: { [tpm]: 400 } });
  const before = grant.leaseEnds;
  // The end of a lease is in whole seconds.
  await eventually("it ends later", async () => {
    await grant.renew();
    return grant.leaseEnds > before && !grant.isLeaseLost;
  });
  await grant.cancel();
  assert.deepEqual([await level(held), Math.round(await level(tpm))], [1, 1_000]);
});

test("a vendor's headers lower the bucket of a call, and say nothing without one", async () => {
  const rpm = await declare(requests(500), "observed#rpm", "openai");
  const headers = { "x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "3" };
  assert.equal((await world.client.observe(rpm, headers)).level, "no_grant");
  await world.client.slot(rpm, async (slot) => {
    assert(slot.startIn(rpm) instanceof Date);
    assert.equal((await slot.observe(rpm, new Headers(headers))).level, "lowered");
  });
  assert((await level(rpm)) < 30);
  const grant = await world.client.acquire(rpm);
  const less = { ...headers, "x-ratelimit-remaining-requests": "1" };
  assert.equal((await grant.observe(rpm, less)).level, "lowered");
  await grant.release();
  await assert.rejects(grant.observe(rpm, less), EndedError);
});

test("a slot whose call failed gives its tokens back when it is disposed of", async () => {
  const tpm = await declare(tokens(1_000, DAYS), "tpm");
  const slot = await world.client.slot(tpm, { costs: { [tpm]: 400 } });
  assert.equal(Math.round(await level(tpm)), 600);
  slot.hasFailed = true;
  await slot[Symbol.asyncDispose]();
  assert.equal(Math.round(await level(tpm)), 1_000);
});

test("prefetched tokens are granted from memory", async () => {
  const rpm = await declare(requests(100_000));
  const stocked = Client.fromEnv({ prefetch: [rpm] });
  for (let call = 0; call < 2_000; call += 1) {
    assert((await stocked.acquire(rpm)).granted);
  }
  // Ahead of what was granted, by the stock.
  assert(100_000 - (await level(rpm)) > 1_000);
  await stocked.close();
  assert((await level(rpm)) <= 100_000);
});

test("a slot that is refused, or whose wait is over, leaves nothing behind", async () => {
  const [held, rpm] = [await declare(slots(1), "concurrent"), await declare(requests(1, 20_000))];
  await world.client.acquire(rpm);
  const refused = world.client.slot([held, rpm], { maxWaitMs: 300 }, () => assert.fail("it is not called"));
  await assert.rejects(refused, { name: "RefusedError" });
  const signal = AbortSignal.timeout(300);
  await assert.rejects(world.client.slot([held, rpm], { maxWaitMs: 60_000, signal }), { name: "TimeoutError" });
  await eventually("all is back", async () => (await level(held)) === 1 && (await level(rpm)) >= 0);
  assert.deepEqual(
    (await world.client.ops.leases()).filter((lease) => lease.dimension === held),
    [],
  );
});
