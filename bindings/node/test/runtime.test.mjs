// What Node demands: the event loop, workers, and the end of a process.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { allFree, DAYS, declare, level, requests, run, slots, version, world } from "./support.mjs";

test("10,000 promises on one bucket are all granted, in few writes, and the event loop goes on", async () => {
  const rpm = await declare(requests(10_000, DAYS));
  const before = version(rpm);
  const began = performance.now();
  const asked = Array.from({ length: 10_000 }, () => world.client.acquire(rpm));
  // To make so many calls holds up the event loop. To answer them does not.
  let [longest, last] = [0, performance.now()];
  const ticks = setInterval(() => {
    const now = performance.now();
    [longest, last] = [Math.max(longest, now - last), now];
  }, 5);
  const answers = await Promise.all(asked);
  const took = performance.now() - began;
  clearInterval(ticks);
  assert.equal(answers.filter((answer) => answer.granted).length, 10_000);
  assert.equal((await world.client.acquire(rpm)).granted, false);
  assert(longest < 2_000, `the event loop stood for ${longest} ms`);
  assert(took < 20_000, `it took ${took} ms`);
  const writes = version(rpm) - before;
  assert(writes > 1 && writes < 1_000, `${writes} writes`);
});

test("a wait lets the event loop go on", async () => {
  const rpm = await declare(requests(1, 1_000));
  await world.client.acquire(rpm);
  let ticks = 0;
  const timer = setInterval(() => {
    ticks += 1;
  }, 10);
  await world.client.slot(rpm, () => undefined);
  clearInterval(timer);
  assert(ticks > 20, `${ticks}`);
});

test("worker threads have clients of their own", async () => {
  const rpm = await declare(requests(10, DAYS));
  const code = `
    const { Client } = require("@sluice/sdk");
    const { parentPort } = require("node:worker_threads");
    (async () => {
      const client = Client.fromEnv();
      const { granted } = await client.acquire(${JSON.stringify(rpm)});
      await client.close();
      parentPort.postMessage(granted);
    })();`;
  const run = () =>
    new Promise((resolve, reject) => {
      const worker = new Worker(code, { eval: true });
      let told;
      worker.once("message", (message) => {
        told = message;
      });
      worker.once("error", reject);
      worker.once("exit", () => resolve(told));
    });
  assert.deepEqual(await Promise.all([run(), run(), run()]), [true, true, true]);
  assert.equal(await level(rpm), 7);
});

test("workers that are terminated in the middle of their calls crash nothing", async () => {
  const rpm = JSON.stringify(await declare(requests(1_000_000, DAYS)));
  // Of several workers at once, and of the main thread: calls of one alone are rarely under way when it ends.
  const { status } = await run(`
    const calls = "const { Client } = require('@sluice/sdk'); const client = Client.fromEnv();"
      + "(async () => { for (;;) { await client.acquire('" + ${rpm} + "'); await new Promise(setImmediate); } })()";
    const { Worker } = require("node:worker_threads");
    const client = Client.fromEnv();
    let goesOn = true;
    const load = (async () => { while (goesOn) await client.acquire(${rpm}); })();
    for (let round = 0; round < 20; round += 1) {
      const workers = [0, 1].map(() => new Worker(calls, { eval: true }));
      await new Promise((resolve) => setTimeout(resolve, 50 + 10 * round));
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
    goesOn = false;
    await load;
    process.exitCode = 7;`);
  assert.equal(status, 7);
});

test("a client that nobody closed does not keep a process alive, and gives back what is held", async () => {
  const held = await declare(slots(1), "concurrent");
  const name = JSON.stringify(held);
  const { status, took } = await run(`global.grant = await Client.fromEnv().acquire(${name});`);
  assert.equal(status, 0);
  assert(took < 8_000, `${took} ms`);
  assert.equal(await level(held), 1);
  await allFree(held, 1);
});

test("a wait under way keeps a process alive until it ends", async () => {
  const rpm = await declare(requests(1, 3_000));
  await world.client.acquire(rpm);
  const name = JSON.stringify(rpm);
  const { status } = await run(`await Client.fromEnv().slot(${name}, () => { process.exitCode = 7; });`);
  assert.equal(status, 7);
});

test("what a process held that was killed is swept", async () => {
  const held = await declare(slots(1), "concurrent");
  const name = JSON.stringify(held);
  const { status } = await run(
    `global.grant = await Client.fromEnv({ leaseTtlMs: 1000 }).acquire(${name}); process.kill(process.pid, "SIGKILL");`,
  );
  assert.equal(status, null);
  assert.equal(await level(held), 0);
  await allFree(held, 1, { swept: true });
});

test("process.exit in the middle of a call and of a wait ends the process, and the sweep gives back", async () => {
  const held = await declare(slots(1), "concurrent");
  const name = JSON.stringify(held);
  const { status } = await run(`
    const client = Client.fromEnv({ leaseTtlMs: 1000 });
    const started = new Promise((resolve) => {
      void client.slot(${name}, () => { resolve(); return new Promise(() => undefined); });
    });
    await started;
    void client.slot(${name}, { maxWaitMs: 60_000 }, () => undefined);
    await new Promise((resolve) => setTimeout(resolve, 200));
    process.exit(7);`);
  assert.equal(status, 7);
  assert.equal(await level(held), 0);
  await allFree(held, 1, { swept: true });
});

test("a process that is forked has a client of its own", async () => {
  const held = await declare(slots(2), "concurrent");
  const grant = await world.client.acquire(held);
  const child = fork(join(import.meta.dirname, "forked.mjs"), [held]);
  const ended = once(child, "exit");
  assert.deepEqual((await once(child, "message"))[0], "holds");
  assert.equal(await level(held), 0);
  child.send("go on");
  assert.deepEqual(await ended, [0, null]);
  assert.equal(await level(held), 1);
  await grant.release();
  await allFree(held, 2);
});

const HOLDS = (name, end) => `
  const { Client } = require("@sluice/sdk");
  const { parentPort } = require("node:worker_threads");
  (async () => {
    const client = Client.fromEnv();
    globalThis.held = [await client.acquire(${JSON.stringify(name)}), await client.slot(${JSON.stringify(name)})];
    client.slot(${JSON.stringify(name)}, { maxWaitMs: 60_000 }).catch(() => undefined);
    parentPort.postMessage("holds");
    ${end}
  })();`;

for (const [how, end, stop] of [
  ["is terminated", "setInterval(() => undefined, 1_000);", true],
  ["throws", 'setTimeout(() => { throw new Error("of the worker"); }, 100);', false],
  ["exits", "setTimeout(() => process.exit(), 100);", false],
]) {
  test(`what a worker thread held that ${how} goes back`, async () => {
    const held = await declare(slots(2), "concurrent");
    const worker = new Worker(HOLDS(held, end), { eval: true });
    worker.on("error", () => undefined);
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    await new Promise((resolve) => worker.once("message", resolve));
    assert.equal(await level(held), 0);
    if (stop) {
      await worker.terminate();
    }
    await ended;
    await allFree(held, 2);
    // The call that waited may have taken one of them, for nobody.
    await new Promise((resolve) => setTimeout(resolve, 700));
    await allFree(held, 2);
  });
}

test("an error that nobody catches ends the process, and the sweep gives back what it held", async () => {
  const held = await declare(slots(1), "concurrent");
  const name = JSON.stringify(held);
  const { status } = await run(
    `const client = Client.fromEnv({ leaseTtlMs: 1000 }); global.held = await client.acquire(${name}); throw new Error("x");`,
  );
  assert.equal(status, 1);
  await allFree(held, 1, { swept: true });
});
