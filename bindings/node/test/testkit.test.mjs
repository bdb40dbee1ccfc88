// What a product's own tests use.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@sluice/sdk";
import { startSandbox } from "@sluice/sdk/testkit";
import { command, requests, slots } from "./support.mjs";

/** A sandbox that ends with the test. */
async function served(context, options = {}) {
  const sandbox = await startSandbox({ command: command(), ...options });
  context.after(() => sandbox.stop());
  return sandbox;
}

/** A client of a sandbox. */
function clientOf({ variables }, settings = {}) {
  return Client.fromEnv({ endpoint: variables.SLUICE_ENDPOINT_URL, ...settings });
}

test("the time of the table is under the control of the test", async (context) => {
  const sandbox = await served(context);
  const client = clientOf(sandbox, { leaseTtlMs: 30_000 });
  const other = clientOf(sandbox);
  await client.ops.applyLimit("moved#rpm", requests(1));
  await client.ops.applyLimit("moved#concurrent", slots(1));
  for (let minute = 0; minute < 3; minute += 1) {
    assert((await client.acquire("moved#rpm")).granted, `minute ${minute}`);
    const refused = await client.acquire("moved#rpm");
    assert(!refused.granted && refused.waitMs > 50_000, JSON.stringify(refused));
    await sandbox.advance(60_000);
  }
  // The slot of a holder that died, for the others.
  const held = await client.acquire("moved#concurrent");
  assert(held.granted);
  assert(!(await other.acquire("moved#concurrent")).granted);
  await sandbox.advance(600_000);
  assert((await other.acquire("moved#concurrent")).granted);
  assert.equal(await held.release(), "lease_gone");
  await assert.rejects(sandbox.advance(-1), RangeError);
  await Promise.all([client.close(), other.close()]);
});

test("requests meet the faults that a test asks for", async (context) => {
  const client = clientOf(await served(context, { faults: 1 }), { maxRetries: 1 });
  // Some faults only delay.
  let failure;
  for (let call = 0; call < 100 && failure?.name !== "UnavailableError"; call += 1) {
    failure = await client.acquire("openai#rpm").catch((error) => error);
  }
  assert.equal(failure.name, "UnavailableError");
  await client.close();
});

test("a command that is no sandbox says why", async () => {
  await assert.rejects(startSandbox({ command: process.execPath }), /sandbox: it ended with/);
  await assert.rejects(startSandbox({ command: "/nowhere/sluice" }), /ENOENT/);
});
