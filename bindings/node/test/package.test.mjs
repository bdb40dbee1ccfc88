// The npm packages of a release: the JavaScript in one, the native module of the platform in another; the same for the testkit.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { command, declare, requests } from "./support.mjs";

const source = join(import.meta.dirname, "..");
const platform = `${process.platform}-${process.arch}${process.platform === "linux" ? "-gnu" : ""}`;

function run(command, args, cwd, env = process.env) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: "utf8" });
  return { status, stdout: stdout.trim(), stderr };
}

let folder;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "sluice-package-"));
  process.once("exit", () => rmSync(folder, { recursive: true }));
  const pack = (...args) => assert.equal(run(process.execPath, [join(source, "pack.mjs"), ...args]).status, 0);
  pack("main", folder);
  writeFileSync(join(folder, "THIRD-PARTY.txt"), "arc-swap 1.9.3: MIT OR Apache-2.0\n");
  copyFileSync(join(source, "sluice.node"), join(folder, "module"));
  pack("platform", platform, join(folder, "module"), folder);
  // A command that is quickly packed, in place of a debug build.
  const script = join(folder, "command");
  writeFileSync(script, `#!/bin/sh\nexec ${command()} "$@"\n`);
  chmodSync(script, 0o644);
  pack("testkit", platform, script, folder);
});

/** A project that has installed these packages. */
function project(name, ...packages) {
  const cwd = mkdtempSync(join(folder, name));
  writeFileSync(join(cwd, "package.json"), "{}");
  const files = readdirSync(folder).filter((file) => packages.some((of) => file.startsWith(of)));
  const args = ["install", "--silent", "--offline", "--no-audit", "--no-fund", "--omit=optional"];
  const { status, stderr } = run("npm", [...args, ...files.map((file) => join(folder, file))], cwd);
  assert.equal(status, 0, stderr);
  return cwd;
}

test("a project that installs both packages has its first grant, by import and by require", async () => {
  const rpm = JSON.stringify(await declare(requests(10)));
  const cwd = project("both", "sluice-sdk-0", `sluice-sdk-${platform}`);
  const imports = `import { Client } from "@sluice/sdk"; console.log((await Client.fromEnv().acquire(${rpm})).granted);`;
  const imported = run(process.execPath, ["--input-type=module", "-e", imports], cwd);
  assert.equal(imported.stdout, "true", imported.stderr);
  const requires = `require("@sluice/sdk").Client.fromEnv().acquire(${rpm}).then(({ granted }) => console.log(granted));`;
  const required = run(process.execPath, ["-e", requires], cwd);
  assert.equal(required.stdout, "true", required.stderr);
});

test("the packages have the licences, and a README without paths", () => {
  const cwd = project("licences", "sluice-sdk-0", `sluice-sdk-${platform}`, "sluice-testkit-");
  const file = (name) => readFileSync(join(cwd, "node_modules/@sluice", name), "utf8");
  for (const name of ["sdk", `sdk-${platform}`, "testkit", `testkit-${platform}`]) {
    assert.match(file(`${name}/LICENSE`), /Apache License/);
    if (name.endsWith(platform)) assert.match(file(`${name}/THIRD-PARTY.txt`), /arc-swap/);
    else assert.doesNotMatch(file(`${name}/README.md`), /\]\((?!https:)/);
  }
});

test("without the package of the platform, the error names it", () => {
  const cwd = project("main", "sluice-sdk-0");
  const { status, stderr } = run(process.execPath, ["-e", 'require("@sluice/sdk")'], cwd);
  assert.equal(status, 1);
  assert(stderr.includes(`install @sluice/sdk-${platform} of the same version`), stderr);
});

test("the testkit brings its command, for import and require", () => {
  const cwd = project("testkit", "sluice-sdk-0", `sluice-sdk-${platform}`, "sluice-testkit-");
  const code = `
    const sandbox = await startSandbox();
    Object.assign(process.env, sandbox.variables);
    const client = Client.fromEnv();
    console.log((await client.acquire("openai#rpm")).granted);
    await client.close();
    await sandbox.stop();`;
  const { SLUICE_COMMAND: _, ...env } = process.env;
  const imports = `import { Client } from "@sluice/sdk"; import { startSandbox } from "@sluice/testkit"; ${code}`;
  const imported = run(process.execPath, ["--input-type=module", "-e", imports], cwd, env);
  assert.equal(imported.stdout, "true", imported.stderr);
  const requires = `const { Client } = require("@sluice/sdk"), { startSandbox } = require("@sluice/testkit"); (async () => { ${code} })();`;
  const required = run(process.execPath, ["-e", requires], cwd, env);
  assert.equal(required.stdout, "true", required.stderr);
});
