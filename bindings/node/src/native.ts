/** The border to the native module: operations by name, with arguments and answers as JSON. */

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { toError } from "./errors.js";

interface NativeAnswer {
  readonly value: string;
  takeMade(): NativeTarget | null;
  takeBytes(): Buffer | null;
  takeNext(): NativeAnswer | null;
}

interface NativeOperation {
  cancel(): void;
}

type NativeMailbox = object;

interface NativeTarget {
  call(
    name: string,
    args: string,
    bytes: Buffer | undefined,
    mailbox: NativeMailbox,
    number: number,
  ): NativeAnswer | NativeOperation;
  look(name: string, args: string): NativeAnswer;
  store(args: string, grant: NativeTarget): NativeAnswer;
  feed(piece: Buffer): void;
}

/** A question for credentials of AWS. */
export interface CredentialsQuestion {
  answer(keys: string): void;
  fail(why: string): void;
}

interface NativeModule {
  readonly Mailbox: new (
    told: (number: number, answer: NativeAnswer | null, failure: string | null) => void,
  ) => NativeMailbox;
  readonly Target: {
    client(settings: string): NativeTarget;
    clientWithCredentials(settings: string, ask: (question: CredentialsQuestion) => void): NativeTarget;
    estimator(settings: string): NativeTarget;
  };
  logTo(level: string, log: (record: string) => void): void;
  endLog(): void;
}

const native = load();

/** The module that was built here, or that of the platform's package. */
function load(): NativeModule {
  const require = createRequire(__filename);
  const built = join(__dirname, "..", "sluice.node");
  if (existsSync(built)) {
    return require(built) as NativeModule;
  }
  const { platform, arch } = process;
  const name = `@sluice/sdk-${platform}-${arch}${platform === "linux" ? "-gnu" : ""}`;
  try {
    return require(name) as NativeModule;
  } catch (cause) {
    throw new Error(
      `the native module for this platform is missing: install ${name} of the same version, without --omit=optional; or build it (README.md)`,
      { cause },
    );
  }
}

type Settle = (answer: NativeAnswer | null, failure: string | null) => void;

/** The operations of this thread that are under way. */
const underWay = new Map<number, Settle>();

const mailbox = new native.Mailbox((number, answer, failure) => {
  const settle = underWay.get(number);
  underWay.delete(number);
  if (underWay.size === 0) {
    alive.unref();
  }
  settle?.(answer, failure);
});

/** Keeps the process alive while an operation is under way. */
const alive = setInterval(() => undefined, 2 ** 31 - 1);
alive.unref();

let last = 0;

/** A number that no operation under way has. */
function next(): number {
  do {
    last = (last + 1) % 2 ** 32;
  } while (underWay.has(last));
  return last;
}

/** What an operation told and made. */
export interface Answer {
  readonly value: unknown;
  readonly made: Target | null;
  readonly bytes: Buffer | null;
}

/** What operations are called on. When it is collected, what it holds goes back. */
export class Target {
  private constructor(private readonly native: NativeTarget) {}

  static client(settings: object, ask?: (question: CredentialsQuestion) => void): Target {
    const text = JSON.stringify(settings);
    return new Target(
      throwing(() => (ask ? native.Target.clientWithCredentials(text, ask) : native.Target.client(text))),
    );
  }

  static estimator(settings: object): Target {
    return new Target(throwing(() => native.Target.estimator(JSON.stringify(settings))));
  }

  /** An operation that may wait. `signal` ends it: it gives back what it has. */
  async call(name: string, args: object = {}, { bytes, signal }: CallOptions = {}): Promise<Answer> {
    signal?.throwIfAborted();
    const number = next();
    const begun = throwing(() => this.native.call(name, JSON.stringify(args), bytes, mailbox, number));
    if (!("cancel" in begun)) {
      return Target.answer(begun);
    }
    const cancel = () => begun.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await new Promise<Answer>((resolve, reject) => {
        if (underWay.size === 0) {
          alive.ref();
        }
        underWay.set(number, (answer, failure) => {
          if (failure !== null) {
            reject(toError(new Error(failure)));
          } else if (answer === null) {
            reject(signal?.reason ?? new Error(`${name} was cancelled`));
          } else {
            resolve(Target.answer(answer));
          }
        });
      });
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** What is told or done at once. */
  look(name: string, args: unknown = {}): Answer {
    return Target.answer(throwing(() => this.native.look(name, JSON.stringify(args))));
  }

  /** What is told at once, and what comes with it. */
  list(name: string, args: object): Answer[] {
    const answer = throwing(() => this.native.look(name, JSON.stringify(args)));
    const all: Answer[] = [];
    for (let next = answer.takeNext(); next !== null; next = answer.takeNext()) {
      all.push(Target.answer(next));
    }
    return all;
  }

  store(args: object, grant: Target): unknown {
    return Target.answer(throwing(() => this.native.store(JSON.stringify(args), grant.native))).value;
  }

  feed(piece: Uint8Array): void {
    this.native.feed(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
  }

  private static answer(answer: NativeAnswer): Answer {
    const made = answer.takeMade();
    return {
      value: JSON.parse(answer.value, instants),
      made: made && new Target(made),
      bytes: answer.takeBytes(),
    };
  }
}

export interface CallOptions {
  bytes?: Buffer | undefined;
  signal?: AbortSignal | undefined;
}

/** Sends events to `log`, as JSON. */
export function logTo(level: string, log: (record: string) => void): void {
  throwing(() => native.logTo(level, log));
}

export function endLog(): void {
  native.endLog();
}

function throwing<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw toError(error);
  }
}

const INSTANTS = new Set(["startAt", "useBy", "until", "coolingDownUntil", "ends", "createdAt", "leaseEnds"]);

/** Instants are milliseconds since 1970. */
function instants(key: string, value: unknown): unknown {
  return INSTANTS.has(key) && typeof value === "number" ? new Date(value) : value;
}
