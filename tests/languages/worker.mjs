// A worker of `run` in JavaScript, with the package `@sluice/sdk`: callers that acquire, hold and release until the time is
// over.
//
// node worker.mjs PACKAGE HISTORY SECONDS

import { randomUUID } from "node:crypto";
import { appendFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const CALLERS = Number(process.env.WORKERS ?? 4);

const [, , folder, history, seconds] = process.argv;
const { Client, LimitError, StoreError } = await import(`${folder}/esm/index.mjs`);
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
const writeLine = (line) => {
  appendFileSync(history, `${line}\n`);
  lines += 1;
};
const write = (event, fields) => writeLine(JSON.stringify({ event, ...fields }));

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

writeFileSync(history, "");
writeLine(process.env.HISTORY_HEADER);
await Promise.all(Array.from({ length: CALLERS }, work));
write("end", { events: lines });
await client.close();
