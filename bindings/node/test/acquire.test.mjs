// What a client asks of its table.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import * as sluice from "@sluice/sdk";
import { DAYS, declare, eventually, level, requests, slots, tokens, world } from "./support.mjs";

test("a call takes what is there, and a refusal says when to come back", async () => {
  const rpm = await declare(requests(2, 120_000));
  const grant = await world.client.acquire(rpm);
  assert(grant.granted);
  assert.deepEqual([grant.costs, grant.basis, grant.hasEnded], [{ [rpm]: 1 }, "table", false]);
  assert.equal((await world.client.acquire(rpm)).granted, true);
  const refused = await world.client.acquire(rpm);
  assert.equal(refused.granted, false);
  assert.deepEqual([refused.dimension, refused.reason, refused.ticket], [rpm, "exhausted", null]);
  assert(refused.waitMs > 55_000 && refused.waitMs <= 60_000, `${refused.waitMs}`);
  assert(refused.delaySeconds * 1_000 >= refused.waitMs && refused.delaySeconds <= 61, `${refused.delaySeconds}`);
  assert.match(refused.message, /try again in/);
  assert.equal(await grant.release(), "given_back");
  await assert.rejects(grant.release(), sluice.EndedError);
});

test("several dimensions are taken all or none", async () => {
  const [rpm, tpm] = [await declare(requests(5, DAYS)), await declare(tokens(100, DAYS), "tpm")];
  assert((await world.client.acquire([rpm, tpm], { costs: { [tpm]: 80 } })).granted);
  const refused = await world.client.acquire([rpm, tpm], { costs: { [tpm]: 80 } });
  assert.deepEqual([refused.granted, refused.dimension], [false, tpm]);
  await eventually("the request is back", async () => (await level(rpm)) === 4);
});

test("a share of a bucket is kept for its product", async () => {
  const limit = requests(20, DAYS);
  const [rpm, { ops }] = [await declare(limit), world.client];
  const shares = { search: 0.5, "checkout/batch": { part: 0.1, floor: 1, background: true } };
  assert.equal(await ops.applyLimit(rpm, limit, { shares }), "changed");
  assert.equal(await ops.applyLimit(rpm, limit), "unchanged", "its shares stay");
  let taken = 0;
  while ((await world.client.acquire(rpm)).granted) taken += 1;
  assert(taken >= 8 && taken < 20, `what the common line has, and what others lend: ${taken}`);
  assert.equal((await world.client.admit(rpm, { sloMs: 1_000 })).admitted, false);
  assert.equal((await world.client.admit(rpm, { sloMs: 1_000, share: "search" })).admitted, true);
  assert((await world.client.acquire(rpm, { share: "search" })).granted);
  assert.equal(await ops.applyLimit(rpm, limit, { shares: {} }), "changed");
  await assert.rejects(ops.applyLimit(rpm, limit, { shares: { search: 1.5 } }), /lower the parts|part =/);
  await assert.rejects(ops.applyLimit(rpm, limit, { shares: { "two words": 0.5 } }), /two words/);
});

test("a call names the share that pays", async () => {
  const rpm = await declare(requests(5, DAYS));
  // A bucket that does not have the share is asked as if none was named.
  assert((await world.client.acquire(rpm, { share: "search" })).granted);
  await world.client.slot(rpm, { share: "checkout/batch" }, () => {});
  const wrong = { share: "two words" };
  await assert.rejects(world.client.acquire(rpm, wrong), /malformed share "two words"/);
  await assert.rejects(
    world.client.slot(rpm, wrong, () => {}),
    /malformed share "two words"/,
  );
  await assert.rejects(world.client.onRateLimited(rpm, { status: 429, headers: {} }, wrong), /malformed share/);
  const ofSearch = sluice.Client.fromEnv({ share: "search" });
  assert((await ofSearch.acquire(rpm)).granted);
  await ofSearch.close();
  assert.throws(() => sluice.Client.fromEnv({ share: "two words" }), /malformed share "two words"/);
});

test("the environment names the share that pays", async () => {
  const rpm = await declare(requests(10, DAYS));
  const shares = { search: { part: 0.5, floor: 5 } };
  await world.client.ops.applyLimit(rpm, requests(10, DAYS), { shares });
  while ((await world.client.acquire(rpm)).granted);
  process.env.SLUICE_SHARE = "search";
  const [ofSearch, ofNobody] = [sluice.Client.fromEnv(), sluice.Client.fromEnv({ share: "common" })];
  delete process.env.SLUICE_SHARE;
  assert.equal((await ofSearch.acquire(rpm)).granted, true);
  assert.equal((await ofNobody.acquire(rpm)).granted, false, "what is named in code wins");
  await Promise.all([ofSearch.close(), ofNobody.close()]);
});

test("errors are classes, with the texts of the SDK, whoever imports them", async () => {
  const required = createRequire(import.meta.url)("@sluice/sdk");
  assert.equal(required.RequestError, sluice.RequestError);
  await assert.rejects(world.client.acquire("no name"), (error) => {
    assert(error instanceof sluice.RequestError && error instanceof sluice.LimitError && error instanceof Error);
    assert.equal(error.name, "RequestError");
    return true;
  });
  await assert.rejects(world.client.acquire("never#declared"), sluice.UnknownDimensionError);
  const rpm = await declare(requests(2));
  await assert.rejects(world.client.acquire(rpm, { costs: { [rpm]: 3 } }), sluice.NeverSatisfiableError);
  assert.throws(() => new sluice.Client({ table: "t", leaseTtlMs: 5 }), /leaseTtlMs = 5: it must be at least 1000/);
  assert.throws(() => new sluice.Client({ table: "t", leaseTll: 5 }), /unknown field `leaseTll`/);
  await assert.rejects(world.client.acquire(rpm, { maxWait: 5 }), /unknown option `maxWait`/);
  await assert.rejects(world.client.slot(rpm, { maxWait: 5 }), /unknown option `maxWait`/);
  await assert.rejects(world.client.ops.applyLimit("a#rpm", { type: "calls", capacity: 1 }), sluice.ArgumentError);
  const elsewhere = new sluice.Client({
    table: "no-such-table",
    region: "local",
    endpoint: process.env.SLUICE_ENDPOINT_URL,
  });
  await assert.rejects(elsewhere.acquire("a#rpm"), sluice.NoTableError);
  await elsewhere.close(0);
});

test("what a call used is settled, and a failed call gives its tokens back", async () => {
  const tpm = await declare(tokens(1_000, DAYS), "tpm");
  await world.client.acquire(tpm, { costs: { [tpm]: 500 } });
  const grant = await world.client.acquire(tpm, { costs: { [tpm]: 300 } });
  const settled = await grant.settle(tpm, 100.5);
  assert.deepEqual([settled.outcome, Math.round(settled.amount)], ["returned", 200]);
  assert.equal(Math.round(await level(tpm)), 400);
  const failing = await world.client.acquire(tpm, { costs: { [tpm]: 300 } });
  await failing.failed();
  assert.equal(Math.round(await level(tpm)), 400);
});

test("a refusal of the vendor cools the bucket down for all, and can be undone", async () => {
  const rpm = await declare(requests(10, DAYS));
  const reply = { status: 429, headers: { "retry-after": "7" } };
  const decision = await world.client.onRateLimited(rpm, reply);
  assert.equal(decision.action, "requeue");
  assert(decision.waitMs >= 7_000, `${decision.waitMs}`);
  const refused = await world.client.acquire(rpm);
  assert.deepEqual([refused.granted, refused.reason], [false, "cooling_down"]);
  const until = await world.client.endCoolDown(rpm);
  assert(until instanceof Date && until > new Date());
  assert.equal(await world.client.endCoolDown(rpm), null);
  await eventually("calls go on", async () => (await world.client.acquire(rpm)).granted);
  const grant = await world.client.acquire(rpm);
  const replied = await grant.reply(
    new Response("{}", { status: 200, headers: { "x-ratelimit-remaining-requests": "3" } }),
  );
  assert.equal(replied.decision.action, "not_refused");
});

test("levels are lowered, set and read", async () => {
  const rpm = await declare(requests(100, DAYS));
  assert.deepEqual(await world.client.penalize(rpm, 0.5), { applied: true, level: 50 });
  const refilled = await world.client.refill(rpm);
  assert.deepEqual([Math.round(refilled.before), refilled.level], [50, 100]);
  assert.equal((await world.client.admit(rpm, { sloMs: 1_000 })).admitted, true);
  const pause = await world.client.coolDown(rpm, 60_000);
  assert.equal((await world.client.admit(rpm, { sloMs: 1_000 })).admitted, false);
  assert(pause.wasSet && pause.until > new Date());
  assert.equal((await world.client.limit(rpm)).capacity, 100);
  assert.equal(await world.client.limit("never#declared"), null);
  assert.equal((await world.client.ops.bucket(rpm)).coolingDownUntil.getTime(), pause.until.getTime());
});

test("a ticket keeps a place, and is redeemed once", async () => {
  const rpm = await declare(requests(10, 5_000));
  await Promise.all(Array.from({ length: 10 }, () => world.client.acquire(rpm)));
  const refused = await world.client.acquire(rpm, { ticketWithinMs: 10_000 });
  assert(refused.ticket?.startAt instanceof Date, refused.message);
  assert.deepEqual(refused.ticket.dimensions, [rpm]);
  assert.equal((await world.client.redeem(refused.ticket)).granted, false);
  await eventually("the start comes", () => world.client.now() >= refused.ticket.startAt);
  const granted = await world.client.acquire(rpm, { withTicket: refused.ticket.text });
  assert(granted.granted);
  assert.deepEqual(await world.client.redeem(refused.ticket), { granted: false, notRedeemed: "spent" });
  await assert.rejects(world.client.redeem("no ticket"), sluice.RedeemError);
});

test("a tracker holds grants from one end of a call to the other", async () => {
  const dimension = await declare(slots(3), "concurrent");
  const tracker = world.client.reservations({ maxReservations: 2 });
  const grants = [];
  for (let n = 0; n < 3; n += 1) {
    grants.push(await world.client.acquire(dimension));
  }
  assert.match(tracker.store("r1", dimension, grants[0]), /./);
  assert.throws(() => tracker.store("r1", dimension, grants[1]), sluice.ReservationTakenError);
  tracker.store("r2", dimension, grants[1]);
  assert.throws(() => tracker.store("r3", dimension, grants[2]), sluice.ReservationCapacityError);
  assert.deepEqual([tracker.reservationCount, tracker.requestCount], [2, 2]);
  assert.equal(tracker.get("r1", dimension).requestId, "r1");
  const taken = await tracker.getAndClear("r1", dimension);
  assert.equal(await taken.grant.release(), "given_back");
  assert.equal(await tracker.getAndClear("r1", dimension), null);
  assert.equal((await tracker.clearAllForRequest("r2")).length, 1);
  assert.deepEqual(await tracker.getAndClearStale(), []);
  assert.equal(await grants[2].release(), "given_back");
});

test("an estimator learns what calls use", () => {
  const estimator = new sluice.TokenEstimator();
  assert.equal(estimator.estimate("chat"), null);
  assert.equal(estimator.estimateOr("chat", 500), 500);
  for (let n = 0; n < 100; n += 1) {
    estimator.observe("chat", 100);
  }
  assert.equal(estimator.estimateOr("chat", 500), estimator.estimate("chat"));
  assert.equal(estimator.keyCount, 1);
});

test("what crashed holders left is swept, listed and removed", async () => {
  const dimension = await declare(slots(2), "concurrent");
  const short = sluice.Client.fromEnv({ leaseTtlMs: 1_000, renewLeases: false, caller: "crasher" });
  const grant = await short.acquire(dimension);
  assert(grant.leaseEnds > new Date());
  const [lease] = (await world.client.ops.leases()).filter((lease) => lease.dimension === dimension);
  assert.deepEqual([lease.caller, lease.isInline], ["crasher", false]);
  await eventually(
    "the lease is reclaimed",
    async () => {
      await world.client.ops.sweep();
      return (await level(dimension)) === 2;
    },
    20_000,
  );
  assert(await world.client.ops.removeBucket(dimension));
  assert.equal(await world.client.ops.bucket(dimension), null);
  assert((await world.client.ops.buckets()).every((bucket) => bucket.dimension !== dimension));
  await short.close(0);
});

test("a client in shadow mode stops nothing", async () => {
  const rpm = await declare(requests(1, DAYS));
  const shadow = sluice.Client.fromEnv({ mode: "shadow", warnAt: 0, noteUse: false });
  const bases = [];
  for (let n = 0; n < 3; n += 1) {
    bases.push((await shadow.acquire(rpm)).basis);
  }
  assert.deepEqual(bases, ["table", "shadow", "shadow"]);
  await shadow.close();
  await assert.rejects(shadow.acquire(rpm), sluice.ClosedError);
});
