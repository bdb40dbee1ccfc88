// Events of the SDK in the program's log.

import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, test } from "node:test";
import { Worker } from "node:worker_threads";
import { ArgumentError, setLogger } from "@sluice/sdk";
import { DAYS, declare, eventually, requests, run, slots, world } from "./support.mjs";

afterEach(() => setLogger(undefined));

/** A logger that remembers its lines. */
function remembering() {
  const lines = { error: [], warn: [], info: [], debug: [] };
  const logger = Object.fromEntries(Object.keys(lines).map((level) => [level, (line) => lines[level].push(line)]));
  return { lines, logger };
}

/** Something that is logged as a warning. Returns its dimension. */
async function warn() {
  const rpm = await declare(requests(100, DAYS));
  await world.client.slot(rpm, (slot) => slot.reply({ status: 429, headers: { "retry-after": "3" } }));
  return rpm;
}

test("a logger is told events of its level, until another takes its place or none", async () => {
  const [first, second] = [remembering(), remembering()];
  setLogger(first.logger);
  const rpm = await warn();
  const told = (of, dimension) =>
    of.lines.warn.some((line) => line.startsWith(`vendor.refused dimensions=${dimension} `));
  await eventually("the event is logged", () => told(first, rpm));
  assert.deepEqual([first.lines.info, first.lines.debug], [[], []]);

  setLogger(second.logger, "debug");
  const other = await warn();
  await eventually("the event is logged", () => told(second, other) && second.lines.debug.length > 0);
  assert(!told(first, other));

  setLogger(null);
  const lines = second.lines.warn.length;
  await warn();
  assert.equal(second.lines.warn.length, lines);
});

test("a function is told records", async () => {
  const records = [];
  setLogger((record) => records.push(record));
  const rpm = await warn();
  await eventually("the event is logged", () => records.some(({ event }) => event === "vendor.refused"));
  const { level, fields, line } = records.find(({ event }) => event === "vendor.refused");
  assert.deepEqual([level, fields.dimensions], ["warn", rpm]);
  assert.match(line, /^vendor.refused dimensions=test\d+#rpm refusal=Rate/);
});

test("a logger that throws fails nothing else, and a warning says so once", async () => {
  let calls = 0;
  const warnings = [];
  const note = (warning) => warnings.push(warning);
  process.on("warning", note);
  for (const fail of [
    () => {
      throw new Error("no disk");
    },
    async () => Promise.reject(new Error("no disk")),
  ]) {
    [calls, warnings.length] = [0, 0];
    setLogger(() => {
      calls += 1;
      return fail();
    });
    await warn();
    await warn();
    await eventually("both are logged", () => calls >= 2 && warnings.length > 0);
    assert.deepEqual(
      warnings.map(({ name, message }) => [name, message.split("\n")[0]]),
      [["SluiceWarning", "sluice: the logger failed: Error: no disk"]],
    );
  }
  process.off("warning", note);
});

test("a logger needs its methods, and a level its name", () => {
  assert.throws(() => setLogger({ error() {}, warn() {}, info() {} }), ArgumentError);
  assert.throws(() => setLogger(console, "loud"), /error, warn, info or debug/);
});

test("a logger does not keep a process alive", async () => {
  const name = JSON.stringify(await declare(slots(1), "concurrent"));
  const { status, took } = await run(
    `require("@sluice/sdk").setLogger(() => {}, "debug"); await Client.fromEnv().acquire(${name});`,
  );
  assert.equal(status, 0);
  assert(took < 8_000, `${took} ms`);
});

test("the logger of a worker that has ended crashes nothing, and the next takes its place", async () => {
  const code = `require("@sluice/sdk").setLogger(() => {}, "debug");`;
  await once(new Worker(code, { eval: true }), "exit");
  await warn();
  // In the middle of its events.
  const busy = new Worker(code, { eval: true });
  const warned = Promise.all([warn(), warn(), warn()]);
  await busy.terminate();
  await warned;
  const { lines, logger } = remembering();
  setLogger(logger);
  await warn();
  await eventually("the event is logged", () => lines.warn.length > 0);
});
