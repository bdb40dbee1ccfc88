// A slot inside of a slot of the same bucket would wait for itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import * as sluice from "@sluice/sdk";
import { declare, level, requests, slots, world } from "./support.mjs";
import { Vendor } from "./vendor.mjs";

const isNested = (error) => error instanceof sluice.RequestError && /inside of another slot/.test(error.message);

test("a slot inside of a slot of the same bucket is an error", async () => {
  const [held, other] = [await declare(slots(2), "concurrent"), await declare(slots(2), "concurrent")];
  const nothing = () => assert.fail("the call ran");
  await world.client.slot(held, () =>
    world.client.slot(other, async () => {
      await assert.rejects(world.client.slot(held, { maxWaitMs: 5_000 }, nothing), isNested);
      await turn();
      await assert.rejects(world.client.grant([held, other], { maxWaitMs: 5_000 }), isNested);
      await assert.rejects(Promise.all([world.client.slot(held, { maxWaitMs: 5_000 })]), isNested);
    }),
  );
  await world.client.slot(held, () => undefined);
  assert.equal(await level(held), 2);
  assert.equal(await level(other), 2);
});

test("what is no nesting passes", async () => {
  const [held, rpm] = [await declare(slots(2), "concurrent"), await declare(requests(100))];
  const another = sluice.Client.fromEnv();
  let late;
  await world.client.slot(rpm, () => world.client.slot(rpm, () => undefined));
  await world.client.slot(held, async () => {
    await another.slot(held, { maxWaitMs: 5_000 }, () => undefined);
    const grant = await world.client.acquire(held);
    assert(grant.granted, "it never waits");
    await grant.release();
    late = (async () => {
      while ((await level(held)) < 2) {
        await turn();
      }
      // The slot around it has ended.
      await world.client.slot(held, () => undefined);
    })();
  });
  await late;
  await another.close();
});

test("a limited call inside of a slot of its bucket passes", async () => {
  const held = await declare(slots(1), "concurrent", "nestvendor");
  const vendor = await Vendor.start();
  const fetch = sluice.limitedFetch("nestvendor", { client: world.client, patienceMs: 5_000 });
  const call = async () => {
    const body = JSON.stringify({ model: "m", max_tokens: 5, messages: [] });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${vendor.url}/v1/chat/completions`, { method: "POST", headers, body });
    assert.equal(response.status, 200);
    await response.text();
  };
  await world.client.slot(held, call);
  await call();
  assert.equal(await level(held), 1);
  await vendor.stop();
});
