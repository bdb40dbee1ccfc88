import type { Target } from "./native.js";
import { type HeadersLike, pairs, parts, type Reply } from "./reply.js";
import type { Basis, Costs, Observed, Released, Replied, Settled } from "./values.js";

/** Permission to call the vendor. Release it when the call is over. A grant that is forgotten gives back its slots when
 * it is collected; its tokens stay spent. */
export class Grant implements AsyncDisposable {
  readonly granted = true;
  /** What the grant took, by dimension. */
  readonly costs: Readonly<Costs>;
  /** When the call may be made. */
  readonly startAt: Date;
  /** How long after the grant the call may be made: zero, unless a start was booked. */
  readonly bookedWaitMs: number;
  readonly basis: Basis;
  /** @internal */
  readonly target: Target;

  private constructor(target: Target, told: Told) {
    this.target = target;
    this.costs = told.costs;
    this.startAt = told.startAt;
    this.bookedWaitMs = told.bookedWaitMs;
    this.basis = told.basis;
  }

  /** @internal A grant that came although it was not wanted any more goes back. */
  static async of(target: Target, told: unknown, signal: AbortSignal | undefined): Promise<Grant> {
    if (signal?.aborted) {
      await target.call("cancel");
      signal.throwIfAborted();
    }
    return new Grant(target, told as Told);
  }

  /** Gives back what the call held: slots and lease rows. Tokens stay spent. */
  async release(): Promise<Released> {
    return (await this.target.call("release")).value as Released;
  }

  /** Ends a failed call: what its vendor does not count goes back too. */
  async failed(): Promise<Released> {
    return (await this.target.call("failed")).value as Released;
  }

  /** Gives everything back: the call was not made. */
  async cancel(): Promise<void> {
    await this.target.call("cancel");
  }

  /** Renews the leases now. */
  async renew(): Promise<void> {
    await this.target.call("renew");
  }

  /** Charges what the call really used of `dimension`. */
  async settle(dimension: string, used: number): Promise<Settled> {
    return (await this.target.call("settle", { dimension, used })).value as Settled;
  }

  /** Applies the rate-limit headers of the reply to one bucket. */
  async observe(dimension: string, headers: HeadersLike): Promise<Observed> {
    return (await this.target.call("observe", { dimension, headers: pairs(headers) })).value as Observed;
  }

  /** Reports the vendor's reply: settles `used`, applies the headers, or lets the fleet react to a refusal. */
  async reply(reply: Reply | Response, { used }: { used?: Costs } = {}): Promise<Replied> {
    const { head, bytes } = parts(reply);
    return (await this.target.call("reply", { ...head, used }, { bytes })).value as Replied;
  }

  /** When the first of the grant's leases ends, as last renewed; `null` if it has none. */
  get leaseEnds(): Date | null {
    return this.#state().leaseEnds;
  }

  /** Whether a lease ended while the grant was held, so that its slot may be in use twice. */
  get isLeaseLost(): boolean {
    return this.#state().isLeaseLost;
  }

  get hasEnded(): boolean {
    return this.#state().hasEnded;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.hasEnded) {
      await this.release();
    }
  }

  #state(): State {
    return this.target.look("state").value as State;
  }
}

interface Told {
  costs: Costs;
  startAt: Date;
  bookedWaitMs: number;
  basis: Basis;
}

interface State {
  hasEnded: boolean;
  isLeaseLost: boolean;
  leaseEnds: Date | null;
}
