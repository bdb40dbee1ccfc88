import type { Target } from "./native.js";
import { Block } from "./nesting.js";
import { type HeadersLike, pairs, parts, type Reply } from "./reply.js";
import type { Basis, Costs, Observed, Replied } from "./values.js";

/** A slot that is under way. */
export class Slot implements AsyncDisposable {
  readonly #target: Target;
  /** The concurrency limits that the call counts in. */
  readonly #limits: readonly string[];
  /** How long DynamoDB took to grant the slot. */
  readonly acquiringMs: number;
  /** When the call was allowed to start. */
  readonly startAt: Date;
  readonly basis: Basis;
  /** Whether the call failed: then what its vendor does not count goes back at the end. */
  hasFailed = false;

  private constructor(target: Target, told: Told) {
    this.#target = target;
    this.#limits = told.concurrencyLimits;
    this.acquiringMs = told.acquiringMs;
    this.startAt = told.startAt;
    this.basis = told.basis;
  }

  /** @internal A slot that came although it was not wanted any more goes back. */
  static of(target: Target, told: unknown, signal: AbortSignal | undefined): Slot {
    if (signal?.aborted) {
      target.look("abandon");
      signal.throwIfAborted();
    }
    return new Slot(target, told as Told);
  }

  /** @internal */
  async run<T>(client: Target, call: (slot: Slot) => Promise<T> | T): Promise<T> {
    const block = new Block(client, this.#limits);
    let result: T;
    try {
      result = await block.run(() => call(this));
    } catch (error) {
      this.hasFailed = true;
      block.end();
      // The call's own error counts, also if the client was closed meanwhile.
      await this[Symbol.asyncDispose]().catch(() => undefined);
      throw error;
    }
    block.end();
    await this[Symbol.asyncDispose]();
    return result;
  }

  /** Records what the call really used of `dimension`; settled when the slot ends. */
  used(dimension: string, used: number): void {
    this.#target.look("used", { dimension, used });
  }

  /** Applies the rate-limit headers of the reply to one bucket. */
  async observe(dimension: string, headers: HeadersLike): Promise<Observed> {
    return (await this.#target.call("observe", { dimension, headers: pairs(headers) })).value as Observed;
  }

  /** Reports the vendor's reply: applies the headers to every bucket of the slot, or lets the fleet react to a refusal,
   * and records what was `used`. */
  async reply(reply: Reply | Response, { used }: { used?: Costs } = {}): Promise<Replied> {
    const { head, bytes } = parts(reply);
    return (await this.#target.call("reply", { ...head, used }, { bytes })).value as Replied;
  }

  /** When one rate limit alone allowed the start. */
  startIn(dimension: string): Date | null {
    const at = this.#target.look("startIn", dimension).value as number | null;
    return at === null ? null : new Date(at);
  }

  /** Whether the lease ended while the call ran, so that the slot may be in use twice. */
  get isLeaseLost(): boolean {
    return this.#target.look("isLeaseLost").value as boolean;
  }

  /** Ends the slot: settles what was used, and gives back what it held. Waits for that, 3 s at most. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#target.call("end", { hasFailed: this.hasFailed });
  }
}

interface Told {
  concurrencyLimits: readonly string[];
  acquiringMs: number;
  startAt: Date;
  basis: Basis;
}
