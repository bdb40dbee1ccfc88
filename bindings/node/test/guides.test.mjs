// The programs of the documents: `.ci/node` takes them out and compiles them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { command } from "./support.mjs";

const folder = join(import.meta.dirname, "../guides");
const programs = readdirSync(folder).filter((name) => name.endsWith(".mjs") && !name.includes("no_run"));

test("there are programs", () => assert(programs.length > 5));

for (const program of programs) {
  test(`${program} runs`, async () => {
    const env = { ...process.env, SLUICE_COMMAND: command() };
    const child = spawn(process.execPath, [join(folder, program)], { stdio: ["ignore", "ignore", "inherit"], env });
    assert.deepEqual(await once(child, "exit"), [0, null]);
  });
}
