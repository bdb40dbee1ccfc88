// A process that is frozen in the middle of its work and thawed later, as AWS Lambda does it: it goes on, and
// leaks nothing.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { declare, eventually, level, slots, world } from "./support.mjs";

const FUNCTION = `
  const began = performance.now();
  const { Client } = await import("@sluice/sdk");
  const client = Client.fromEnv({ leaseTtlMs: 1_000 });
  console.log(Math.round(performance.now() - began));
  const { createInterface } = await import("node:readline");
  const asked = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  while (!(await asked.next()).done) {
    const slot = await client.slot(process.argv[1], { maxWaitMs: 10_000 }, async (slot) => {
      console.log("calls");
      await asked.next();
      await new Promise((resolve) => setTimeout(resolve, 300));
      return slot;
    });
    console.log(slot.isLeaseLost ? "lost" : "kept");
  }
  await client.close();`;

/** A way to the engine whose connections can be cut, as they are while a process is frozen. */
async function line() {
  const open = new Set();
  const server = createServer((near) => {
    const far = connect(Number(new URL(process.env.SLUICE_ENDPOINT_URL).port), "127.0.0.1");
    for (const [of, to] of [
      [near, far],
      [far, near],
    ]) {
      open.add(of);
      of.on("error", () => undefined);
      of.pipe(to);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    for (const socket of open) {
      socket.destroy();
    }
    open.clear();
  };
  const stop = () => {
    cut();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, cut, stop };
}

test("a frozen process goes on and leaks nothing", async (context) => {
  const held = await declare(slots(1), "concurrent");
  const way = await line();
  const child = spawn(process.execPath, ["--input-type=module", "-e", FUNCTION, held], {
    stdio: ["pipe", "pipe", "inherit"],
    cwd: import.meta.dirname,
    env: { ...process.env, SLUICE_ENDPOINT_URL: way.url },
  });
  context.after(() => {
    child.kill("SIGKILL");
    way.stop();
  });
  const told = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => (await told.next()).value;
  const say = (text) => child.stdin.write(`${text}\n`);
  const initMs = await answer();
  assert.match(initMs, /^\d+$/);

  // In the middle of a call, until its lease has ended and another has the slot.
  say("an invocation");
  assert.equal(await answer(), "calls");
  child.kill("SIGSTOP");
  way.cut();
  const isFree = async () => {
    await world.client.ops.sweep();
    return (await level(held)) === 1;
  };
  await eventually("the slot is swept", isFree, 20_000);
  const other = await world.client.acquire(held);
  child.kill("SIGCONT");
  say("the vendor's answer");
  assert.equal(await answer(), "lost");
  assert.equal(await level(held), 0, "what is not its own any more is not given back");
  await other.release();

  // Between two calls.
  child.kill("SIGSTOP");
  way.cut();
  await sleep(2_000);
  child.kill("SIGCONT");
  say("an invocation");
  assert.equal(await answer(), "calls");
  say("the vendor's answer");
  assert.equal(await answer(), "kept");
  child.stdin.end();
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.equal(await level(held), 1);
  assert.deepEqual(
    (await world.client.ops.leases()).filter((lease) => lease.dimension === held),
    [],
  );
  context.diagnostic(`from nothing to a client: ${initMs} ms`);
});
