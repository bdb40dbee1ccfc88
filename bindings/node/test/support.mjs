// A DynamoDB for the tests: the embedded engine, which `sluice sandbox` serves. One for each file of tests.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client } from "@sluice/sdk";
import { startSandbox } from "@sluice/sdk/testkit";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");

/** The command `sluice`, with the lab. A missing one fails: no test is skipped in silence. */
export function command() {
  const found = process.env.SLUICE_COMMAND ?? join(target, "debug", "sluice");
  assert(existsSync(found), `there is no ${found}: \`cargo build -p sluice-cli\` first, or name one in SLUICE_COMMAND`);
  return found;
}

/** What the tests of a file use: the client is made before the first. */
export const world = { client: undefined };

let sandbox;

before(async () => {
  for (const name of Object.keys(process.env)) {
    if (/^(SLUICE|AWS)_/.test(name) && name !== "SLUICE_COMMAND") {
      delete process.env[name];
    }
  }
  sandbox = await startSandbox({ command: command() });
  // Children inherit it.
  Object.assign(process.env, sandbox.variables);
  world.client = Client.fromEnv();
});

after(async () => {
  await world.client.close(2_000);
  await sandbox.stop();
});

let number = 0;

/** Makes a bucket that no other test uses, and returns its dimension. */
export async function declare(limit, metric = "rpm", vendor = undefined) {
  number += 1;
  const dimension = `${vendor ?? `test${number}`}#${metric}`;
  assert.equal(await world.client.ops.applyLimit(dimension, limit), "created");
  return dimension;
}

export const requests = (capacity, perMs = 60_000) => ({ type: "requests", capacity, perMs });
export const tokens = (capacity, perMs = 60_000) => ({ type: "tokens", capacity, perMs });
export const slots = (capacity) => ({ type: "concurrent", capacity });

/** So long that nothing flows back meanwhile. */
export const DAYS = 100 * 86_400_000;

/** Tokens or free slots at this moment, as the table has them. */
export async function level(dimension) {
  return (await world.client.ops.bucket(dimension)).level;
}

/** The version of a bucket's row, to which each write adds one. */
export function version(dimension) {
  return JSON.parse(execFileSync(command(), ["buckets", "show", dimension, "--json"])).version;
}

/** Waits until all slots of a bucket are free, and no lease is left. */
export async function allFree(dimension, capacity, { swept = false } = {}) {
  const isSo = async () => {
    if (swept) {
      await world.client.ops.sweep();
    }
    const leases = await world.client.ops.leases();
    return (await level(dimension)) === capacity && !leases.some((lease) => lease.dimension === dimension);
  };
  await eventually(`${dimension} is free`, isSo, 20_000);
}

/** Waits until something comes true. What is given back in the background is waited for. */
export async function eventually(what, isSo, withinMs = 5_000) {
  const until = Date.now() + withinMs;
  while (!(await isSo())) {
    assert(Date.now() < until, `not in time: ${what}`);
    await sleep(20);
  }
}

/** Runs a program. Returns its exit code and how long it took. */
export function run(code) {
  const began = Date.now();
  const program = `const { Client } = require("@sluice/sdk"); (async () => { ${code} })();`;
  const child = spawn(process.execPath, ["-e", program], { stdio: "inherit", cwd: import.meta.dirname });
  return new Promise((resolve) => child.once("exit", (status) => resolve({ status, took: Date.now() - began })));
}
