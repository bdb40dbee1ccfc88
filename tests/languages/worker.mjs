// A worker of `run` in JavaScript, with the package `@sluice/sdk`: callers that acquire, hold and release until the time is
// over. If there are several buckets, every second caller waits in a slot for all of them, and tells how many tokens it used.
//
// node worker.mjs PACKAGE HISTORY SECONDS

import { randomUUID } from "node:crypto";
import { appendFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const CALLERS = Number(process.env.WORKERS ?? 4);
// A slot does not tell when its lease ends: at the earliest so long after it was asked for, since ends are whole seconds.
const LEAST_LEASE_MICROS = (Number(process.env.SLUICE_LEASE_TTL ?? 300) - 1) * 1e6;

const [, , folder, history, seconds] = process.argv;
const { Client, LimitError, RefusedError, StoreError } = await import(`${folder}/esm/index.mjs`);
const unless = (kind) => (error) => {
  if (!(error instanceof kind)) {
    throw error;
  }
  return { granted: false, waitMs: 50, error: String(error) };
};
const [unlessOfStore, unlessOfLimit] = [unless(StoreError), unless(LimitError)];
const wants = Object.entries(JSON.parse(process.env.WANTS));
const until = performance.now() + Number(seconds) * 1e3;
const client = Client.fromEnv({ caller: "node" });

const now = () => Math.round((performance.timeOrigin + performance.now()) * 1e3);
const micros = (at) => at.getTime() * 1e3;
let lines = 0;
const writeLines = (...texts) => {
  appendFileSync(history, texts.map((text) => `${text}\n`).join(""));
  lines += texts.length;
};
const write = (event, ...all) => writeLines(...all.map((fields) => JSON.stringify({ event, ...fields })));

async function work() {
  while (performance.now() < until) {
    const [dimension, cost] = wants[Math.floor(Math.random() * wants.length)];
    const asked = now();
    const grant = await client.acquire(dimension, { costs: { [dimension]: cost } }).catch(unlessOfStore);
    if (!grant.granted) {
      write("refused", {
        process: `node-${process.pid}`,
        dimensions: [dimension],
        asked_at_micros: asked,
        at_micros: now(),
        booked: false,
        ...(grant.error === undefined ? {} : { error: grant.error }),
      });
      await sleep(Math.min(grant.waitMs, 200));
      continue;
    }
    const id = randomUUID();
    const ends = grant.leaseEnds === null ? {} : { ends_at_micros: micros(grant.leaseEnds) };
    write("granted", {
      id,
      process: `node-${process.pid}`,
      dimension,
      cost_micros: cost * 1e6,
      asked_at_micros: asked,
      granted_at_micros: now(),
      start_at_micros: micros(grant.startAt),
      booked: false,
      ...ends,
    });
    await sleep(5 + Math.random() * 10);
    write("released", { id, dimension, at_micros: now(), how: "released" });
    // If that fails, the sweep gives back what the lease holds.
    await grant.release().catch(unlessOfLimit);
  }
}

async function wait() {
  const [dimensions, costs] = [wants.map(([dimension]) => dimension), Object.fromEntries(wants)];
  while (performance.now() < until) {
    // Without a pause, bookings would leave nothing to callers that do not wait.
    await sleep(500 + Math.random() * 500);
    const asked = now();
    let hasBegun = false;
    try {
      await client.slot(dimensions, { costs, maxWaitMs: 2_000 }, (slot) => {
        hasBegun = true;
        return call(slot, asked);
      });
    } catch (error) {
      const isRefused = error instanceof RefusedError;
      if (!isRefused && !(error instanceof (hasBegun ? LimitError : StoreError))) {
        throw error;
      }
      // At the end of the slot: the sweep gives back what the lease holds.
      if (!hasBegun) {
        write("refused", {
          process: `node-${process.pid}`,
          dimensions,
          asked_at_micros: asked,
          at_micros: now(),
          booked: true,
          ...(isRefused ? {} : { error: String(error) }),
        });
      }
    }
  }
}

async function call(slot, asked) {
  const [id, granted] = [randomUUID(), now()];
  const line = ([dimension, cost]) => ({
    id,
    process: `node-${process.pid}`,
    dimension,
    cost_micros: cost * 1e6,
    asked_at_micros: asked,
    granted_at_micros: granted,
    // Each rate bucket has a start of its own.
    start_at_micros: micros(slot.startIn(dimension) ?? slot.startAt),
    booked: true,
    ends_at_micros: Math.max(granted, asked + LEAST_LEASE_MICROS),
  });
  write("granted", ...wants.map(line));
  await sleep(5 + Math.random() * 10);
  for (const [dimension, cost] of wants.filter(([dimension]) => dimension.endsWith("#tpm"))) {
    const used = Math.round(cost * (0.5 + Math.random() / 2));
    slot.used(dimension, used);
    write("settled", { id, dimension, at_micros: now(), used_micros: used * 1e6 });
  }
  const ended = now();
  write("released", ...wants.map(([dimension]) => ({ id, dimension, at_micros: ended, how: "released" })));
}

writeFileSync(history, "");
writeLines(process.env.HISTORY_HEADER);
await Promise.all(Array.from({ length: CALLERS }, (_, n) => (n % 2 && wants.length > 1 ? wait() : work())));
write("end", { events: lines });
await client.close();
