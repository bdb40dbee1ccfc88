// The example of a Lambda function does what it says.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import ts from "typescript";
import { requests, world } from "./support.mjs";
import { Vendor } from "./vendor.mjs";

test("what does not fit goes back into the queue", async (context) => {
  const vendor = await Vendor.start();
  context.after(() => vendor.stop());
  Object.assign(process.env, { OPENAI_API_KEY: "k", OPENAI_BASE_URL: `${vendor.url}/v1` });
  const { ops } = world.client;
  await ops.removeBucket("openai#tpm");
  await ops.removeBucket("openai#rpm");
  await ops.applyLimit("openai#rpm", requests(2, 86_400_000));
  const written = readFileSync(join(import.meta.dirname, "../examples/lambda.mts"), "utf8");
  const options = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
  const program = join(import.meta.dirname, `lambda-${process.pid}.mjs`);
  writeFileSync(program, ts.transpileModule(written, { compilerOptions: options }).outputText);
  context.after(() => rmSync(program));
  const { handler } = await import(program);
  const Records = ["0", "1", "2"].map((messageId) => ({ messageId, body: "Hello" }));
  assert.deepEqual(await handler({ Records }), { batchItemFailures: [{ itemIdentifier: "2" }] });
  assert.equal(vendor.calls, 2);
});
