/** A DynamoDB for the tests of a product: the embedded engine, which `sluice sandbox` serves. */

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** A sandbox that runs. */
export interface Sandbox extends AsyncDisposable {
  /** The variables to set, so that `Client.fromEnv` finds it. */
  readonly env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

const LONGEST_START_MS = 30_000;

/** Starts `sluice sandbox`, on a port of its own. `command` is the path of the command `sluice`; by default that of
 * `SLUICE_COMMAND`, or what `PATH` has. */
export async function startSandbox({
  command = process.env.SLUICE_COMMAND ?? "sluice",
}: {
  command?: string;
} = {}): Promise<Sandbox> {
  const child = spawn(command, ["sandbox", "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(String(error)));
    child.once("exit", (code) => resolve(`it ended with ${code}`));
  });
  const lines = createInterface({ input: child.stdout });
  const endpoint = await new Promise<string>((resolve, reject) => {
    const late = setTimeout(() => reject(new Error("the sandbox is not up after 30 s")), LONGEST_START_MS);
    late.unref();
    ended.then((why) => reject(new Error(`${command} sandbox: ${why}`)));
    lines.on("line", (line) => {
      const found = /SLUICE_ENDPOINT_URL=(\S+)/.exec(line);
      if (found?.[1] !== undefined) {
        clearTimeout(late);
        resolve(found[1]);
      }
    });
  });
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  return {
    env: {
      SLUICE_ENV: "sandbox",
      SLUICE_ENDPOINT_URL: endpoint,
      AWS_ACCESS_KEY_ID: "sandbox",
      AWS_SECRET_ACCESS_KEY: "sandbox",
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
