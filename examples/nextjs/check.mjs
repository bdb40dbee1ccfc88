/** Serves the built app, asks it 60 questions at once, and one that no limit has room for in time. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "@sluice/sdk";

const port = await new Promise((found) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const { port } = probe.address();
    probe.close(() => found(port));
  });
});
const next = new URL("node_modules/next/dist/bin/next", import.meta.url).pathname;
const server = spawn(process.execPath, [next, "start", "--port", String(port), "--hostname", "127.0.0.1"], {
  stdio: ["ignore", "ignore", "inherit"],
});
const ask = (text) =>
  fetch(`http://127.0.0.1:${port}/api/chat`, { method: "POST", body: JSON.stringify({ text }) });
try {
  for (let tries = 0; ; tries += 1) {
    try {
      await fetch(`http://127.0.0.1:${port}/`);
      break;
    } catch (error) {
      if (tries === 300 || server.exitCode !== null) {
        throw error;
      }
      await sleep(100);
    }
  }
  const replies = await Promise.all(Array.from({ length: 60 }, (_, at) => ask(`question ${at}`)));
  const texts = await Promise.all(replies.map((reply) => reply.text()));
  const answered = texts.filter((text) => text === "Good morning").length;
  console.log(`${answered} of 60 questions answered`);
  assert.equal(answered, 60, texts.find((text) => text !== "Good morning"));

  // As after a 429 that another product met.
  const other = Client.fromEnv();
  await other.coolDown("openai#rpm", 60_000);
  const refused = await ask("one more");
  const wait = Number(refused.headers.get("retry-after"));
  console.log(`during a cool-down of 60 s: ${refused.status}, Retry-After: ${wait}`);
  assert.equal(refused.status, 503);
  assert(wait > 20 && wait <= 61);
  await other.close();
} finally {
  server.kill();
}
