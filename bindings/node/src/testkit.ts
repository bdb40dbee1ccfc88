/** A DynamoDB for the tests of a product: the embedded engine, which `sluice sandbox` serves. `@sluice/testkit` brings
 * the command. */

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

/** A sandbox that runs. */
export interface Sandbox extends AsyncDisposable {
  /** The variables to set, so that `Client.fromEnv` finds it. */
  readonly variables: Readonly<Record<string, string>>;
  /** Moves the time of the table forward, and sweeps: tokens refill, cool-downs end, slots of leases that have ended come
   * back. It takes 1.1 s, after which no client refuses from memory any more. Clients learn the time with their next
   * request; a wait that is under way is not shortened. */
  advance(byMs: number): Promise<void>;
  stop(): Promise<void>;
}

export interface SandboxOptions {
  /** The path of the command `sluice`; by default that of `SLUICE_COMMAND`, or what `PATH` has. */
  command?: string;
  /** The part of the requests that are throttled, lost, late, or applied without a reply. */
  faults?: number;
  /** Serve vendors too, which answer 429 above their limits, and have buckets for them. The packages `openai` and
   * `@anthropic-ai/sdk` call them by the variables `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`. */
  vendors?: boolean;
}

/** In the order in which the sandbox prints them. */
const VENDORS = ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"];
const LONGEST_START_MS = 30_000;
const LONGEST_ANSWER_MS = 10_000;
/** How long a client answers a refusal from memory, and a little more. */
const MEMORY_MS = 1_100;

/** Starts `sluice sandbox`, on a port of its own. */
export async function startSandbox({
  command = process.env.SLUICE_COMMAND ?? "sluice",
  faults = 0,
  vendors = false,
}: SandboxOptions = {}): Promise<Sandbox> {
  const args = ["sandbox", "--port", "0", "--control", ...(faults > 0 ? ["--faults", `${faults}`] : [])];
  if (vendors) {
    args.push("--vendors");
  }
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(String(error)));
    child.once("exit", (code) => resolve(`it ended with ${code}`));
  });
  // Its end is told by `ended`.
  child.stdin.on("error", () => undefined);
  const lines = createInterface({ input: child.stdout });
  /** What the sandbox prints. */
  const printed = (pattern: RegExp, withinMs: number) =>
    new Promise<string>((resolve, reject) => {
      const done = () => {
        clearTimeout(late);
        lines.off("line", read);
      };
      const fail = (why: string) => {
        done();
        reject(new Error(`${command} sandbox: ${why}`));
      };
      const read = (line: string) => {
        const found = pattern.exec(line);
        if (found?.[1] !== undefined) {
          done();
          resolve(found[1]);
        }
      };
      const late = setTimeout(() => fail(`it does not answer within ${withinMs / 1_000} s`), withinMs);
      lines.on("line", read);
      ended.then(fail);
    });
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  const names = ["SLUICE_ENDPOINT_URL", ...(vendors ? VENDORS : [])];
  // All at once: the lines come together.
  const urls = names.map(async (name) => [name, await printed(new RegExp(`${name}=(\\S+)`), LONGEST_START_MS)]);
  const found = await Promise.all(urls).catch(async (error) => {
    await stop();
    throw error;
  });
  return {
    variables: {
      SLUICE_ENV: "sandbox",
      AWS_ACCESS_KEY_ID: "sandbox",
      AWS_SECRET_ACCESS_KEY: "sandbox",
      ...Object.fromEntries(found),
    },
    async advance(byMs) {
      if (!(byMs >= 0)) {
        throw new RangeError(`the time of a sandbox moves forward alone: ${byMs} ms is less than 0`);
      }
      const advanced = printed(/(advanced)/, LONGEST_ANSWER_MS);
      child.stdin.write(`advance ${Math.round(byMs)}ms\n`);
      await advanced;
      await sleep(MEMORY_MS);
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
