// What the binding adds to the SDK of Rust: the same acquires in both, against a sandbox of its own.
//
//     cargo build --release -p sluice-cli -p sluice-node
//     cargo build --release -p sluice-sdk --example overhead
//     cp ../../target/release/libsluice_node.so sluice.node && npm run build && node bench/overhead.mjs
//
// Prints medians in microseconds, the time of the import, and the size of the native module.

import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "@sluice/sdk";
import { startSandbox } from "@sluice/sdk/testkit";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const release = join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "release");
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

function inRust() {
  const { stock_us, write_us } = JSON.parse(execFileSync(join(release, "examples", "overhead")));
  return [stock_us, write_us];
}

/** The time of the import beyond that of an empty program, in a new process: the least of ten. */
function importMs() {
  const code = 'const began = performance.now(); require("@sluice/sdk"); console.log(performance.now() - began);';
  const runs = Array.from({ length: 10 }, () =>
    Number(execFileSync(process.execPath, ["-e", code], { cwd: import.meta.dirname })),
  );
  return Math.min(...runs);
}

const sandbox = await startSandbox({ command: join(release, "sluice") });
try {
  Object.assign(process.env, sandbox.variables);
  const before = inRust();
  const client = Client.fromEnv({ prefetch: ["overhead#rpm"] });
  const node = [await median(client, "overhead#rpm", 20_000), await median(client, "overhead#rps", 2_000)];
  await client.close();
  const after = inRust();
  console.log("median, us      from stock   one write");
  for (const [name, [stock, write]] of Object.entries({ "Rust, before": before, Node: node, "Rust, after": after })) {
    console.log(`${name.padEnd(14)}${stock.toFixed(1).padStart(12)}${write.toFixed(1).padStart(12)}`);
  }
  const size = statSync(new URL("../sluice.node", import.meta.url)).size / 1e6;
  console.log(`import: ${importMs().toFixed(0)} ms; sluice.node: ${size.toFixed(1)} MB`);
} finally {
  await sandbox.stop();
}
