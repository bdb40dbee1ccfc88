// What an acquire takes in Node: the same acquires as the example `overhead` of the Rust SDK, against the table that the
// environment names. `task bench:languages` runs all.
//
// Prints medians in microseconds, and the time of the import in milliseconds.

import { createRequire } from "node:module";

const began = performance.now();
const { Client } = createRequire(import.meta.url)("@sluice/sdk");
const importMs = performance.now() - began;

const WARM_UP = 500;

async function median(client, dimension, calls) {
  const times = [];
  for (let call = 0; call < WARM_UP + calls; call += 1) {
    const began = performance.now();
    const { granted } = await client.acquire(dimension);
    const took = performance.now() - began;
    if (!granted) {
      throw new Error("refused");
    }
    if (call >= WARM_UP) {
      times.push(took);
    }
  }
  times.sort((a, b) => a - b);
  return times[calls / 2] * 1e3;
}

const client = Client.fromEnv({ prefetch: ["overhead#rpm"] });
const stock = await median(client, "overhead#rpm", 20_000);
const write = await median(client, "overhead#rps", 2_000);
await client.close();
console.log(JSON.stringify({ stock_us: stock, write_us: write, start_ms: importMs }));
