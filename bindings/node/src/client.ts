import { asking } from "./credentials.js";
import { Grant } from "./grant.js";
import { Limiter } from "./limiter.js";
import { Target } from "./native.js";
import { Block } from "./nesting.js";
import { Ops } from "./ops.js";
import { type HeadersLike, pairs, parts, type Reply } from "./reply.js";
import { Slot } from "./slot.js";
import { type ReservationOptions, ReservationTracker } from "./tracker.js";
import type {
  Admitted,
  Closed,
  CoolDown,
  Costs,
  Decision,
  Limit,
  NotRedeemed,
  Observed,
  Penalty,
  Refilled,
  RetryIn,
  Settings,
  Shed,
  Ticket,
} from "./values.js";

/** One dimension, as `openai#rpm`, or several. */
export type Dimensions = string | readonly string[];

/** Ends an operation at once: it gives back what it has. */
export interface Abortable {
  signal?: AbortSignal | undefined;
}

export interface AcquireOptions extends Abortable {
  costs?: Costs;
  /** The share that pays, in place of the client's own. */
  share?: string;
  /** A refusal may carry a booked start up to so far ahead. */
  ticketWithinMs?: number;
  /** Redeems the ticket of an earlier refusal first. */
  withTicket?: Ticket | string;
}

export interface SlotOptions extends Abortable {
  costs?: Costs;
  /** The share that pays, in place of the client's own. */
  share?: string;
  /** How long the start may be away; by default `SLUICE_DEFAULT_SLOT_TIMEOUT`, 30 s. */
  maxWaitMs?: number;
}

export interface AdmitOptions extends Abortable {
  cost?: number;
  /** The time within which the request is to be done. */
  sloMs?: number;
  /** What waits in a queue of the program's own, in tokens or slots. */
  backlog?: number;
  /** The share whose line is judged, in place of the client's own. */
  share?: string;
}

/** How long the end of the process waits for DynamoDB, for each client that was not closed. */
const LONGEST_EXIT_MS = 2_000;

/** Shares vendors' quotas through one DynamoDB table. One client serves a whole process. */
export class Client implements AsyncDisposable {
  readonly #target: Target;
  /** The name of the table. */
  readonly table: string;
  /** The longest wait that is worth sleeping through (`SLUICE_INLINE_RETRY_THRESHOLD`). */
  readonly inlineRetryThresholdMs: number;
  /** The longest time until `acquire` has its answer, whatever hangs. */
  readonly longestAcquireMs: number;

  /** A client of a table. Makes no request. */
  constructor(settings: Settings & { table: string }) {
    const { credentials, ...of } = settings;
    this.#target = Target.client(of, credentials && asking(credentials));
    const told = this.#target.look("told").value as Pick<
      Client,
      "table" | "inlineRetryThresholdMs" | "longestAcquireMs"
    >;
    this.table = told.table;
    this.inlineRetryThresholdMs = told.inlineRetryThresholdMs;
    this.longestAcquireMs = told.longestAcquireMs;
    atExit(this.#target);
  }

  /** A client with the settings of the `SLUICE_*` variables and, unless `settings` has credentials, those of
   * the environment. What `settings` names wins over its variable. */
  static fromEnv(settings: Settings = {}): Client {
    // Without a table, the native module reads the environment.
    return new Client({ ...settings } as Settings & { table: string });
  }

  /** Takes what a call needs from all of `dimensions` or from none; never waits for quota. */
  async acquire(dimensions: Dimensions, options: AcquireOptions = {}): Promise<Grant | RetryIn> {
    const { signal, withTicket, ...asked } = options;
    const args = { dimensions: named(dimensions), ...asked, withTicket: text(withTicket) };
    const { value, made } = await this.#target.call("acquire", args, { signal });
    return made ? Grant.of(made, value, signal) : refusal(value);
  }

  /** Waits for a start, runs `call` in the slot, and gives back what it held on every way out. */
  slot<T>(dimensions: Dimensions, call: (slot: Slot) => Promise<T> | T): Promise<T>;
  slot<T>(dimensions: Dimensions, options: SlotOptions, call: (slot: Slot) => Promise<T> | T): Promise<T>;
  /** Waits for a start: `await using slot = await client.slot("openai#rpm")`. */
  slot(dimensions: Dimensions, options?: SlotOptions): Promise<Slot>;
  async slot<T>(
    dimensions: Dimensions,
    optionsOrCall: SlotOptions | ((slot: Slot) => Promise<T> | T) = {},
    call?: (slot: Slot) => Promise<T> | T,
  ): Promise<T | Slot> {
    const [options, run] = typeof optionsOrCall === "function" ? [{}, optionsOrCall] : [optionsOrCall, call];
    const { signal, ...asked } = options;
    const args = { dimensions: named(dimensions), ...asked, inside: Block.inside(this.#target) };
    const { value, made } = await this.#target.call("slot", args, { signal });
    const slot = Slot.of(made as Target, value, signal);
    return run === undefined ? slot : slot.run(this.#target, run);
  }

  /** Waits for a start and returns the grant: for a call whose end is elsewhere. */
  async grant(dimensions: Dimensions, options: SlotOptions = {}): Promise<Grant> {
    const { signal, ...asked } = options;
    const args = { dimensions: named(dimensions), ...asked, inside: Block.inside(this.#target) };
    const { value, made } = await this.#target.call("slotGrant", args, { signal });
    return Grant.of(made as Target, value, signal);
  }

  /** Redeems a ticket alone: for work that must not run twice. */
  async redeem(ticket: Ticket | string, { signal }: Abortable = {}): Promise<Grant | RetryIn | NotRedeemed> {
    const { value, made } = await this.#target.call("redeem", { ticket: text(ticket) }, { signal });
    if (made) {
      return Grant.of(made, value, signal);
    }
    const { notRedeemed } = value as NotRedeemed;
    return notRedeemed ? { granted: false, notRedeemed } : refusal(value);
  }

  /** Asks whether a request is worth beginning: whether it will be done within `sloMs`. Takes nothing. */
  async admit(dimension: string, { signal, ...asked }: AdmitOptions = {}): Promise<Admitted | Shed> {
    return (await this.#target.call("admit", { dimension, ...asked }, { signal })).value as Admitted | Shed;
  }

  /** Applies the rate-limit headers of a reply to one bucket, whose limit they may show. Only `observe` of a grant or a
   * slot lowers what is left: it knows which calls the vendor has counted. */
  async observe(dimension: string, headers: HeadersLike): Promise<Observed> {
    return (await this.#target.call("observe", { dimension, headers: pairs(headers) })).value as Observed;
  }

  /** Lets the fleet react to a refused call for `dimensions`. */
  async onRateLimited(
    dimensions: Dimensions,
    reply: Reply | Response,
    { costs, share }: { costs?: Costs; share?: string } = {},
  ): Promise<Decision> {
    const { head, bytes } = parts(reply);
    const args = { dimensions: named(dimensions), costs, share, ...head };
    return (await this.#target.call("onRateLimited", args, { bytes })).value as Decision;
  }

  /** Lowers the level of a bucket to this share of it, for all callers. */
  async penalize(dimension: string, factor: number): Promise<Penalty> {
    return (await this.#target.call("penalize", { dimension, factor })).value as Penalty;
  }

  /** Lets nothing be granted for a time, for all callers. */
  async coolDown(dimension: string, pauseMs: number): Promise<CoolDown> {
    return (await this.#target.call("coolDown", { dimension, pauseMs })).value as CoolDown;
  }

  /** Ends a cool-down. Returns when it would have ended; `null` if none was in force. */
  async endCoolDown(dimension: string): Promise<Date | null> {
    const until = (await this.#target.call("endCoolDown", { dimension })).value as number | null;
    return until === null ? null : new Date(until);
  }

  /** Sets the level of a rate bucket, by default to its capacity. */
  async refill(dimension: string, level?: number): Promise<Refilled> {
    return (await this.#target.call("refill", { dimension, level })).value as Refilled;
  }

  /** The limit of a bucket; `null` if the table has no such bucket. */
  async limit(dimension: string): Promise<Limit | null> {
    return (await this.#target.call("limit", { dimension })).value as Limit | null;
  }

  /** The time by which this client decides: this machine's clock, corrected by DynamoDB's replies. */
  now(): Date {
    return new Date(this.#target.look("now").value as number);
  }

  /** A tracker for grants of calls whose two ends do not share a scope, such as streams. */
  reservations(options: ReservationOptions = {}): ReservationTracker {
    return new ReservationTracker(this.#target.look("reservations", options).made as Target);
  }

  /** What operators do with the table: declare limits, list, sweep. */
  get ops(): Ops {
    return new Ops(this.#target);
  }

  /** Waits for the search for slots of crashed holders that a refusal began. */
  async finishHealing(): Promise<void> {
    await this.#target.call("finishHealing");
  }

  /** Ends the client: nothing is granted any more, and what is held goes back, in at most `withinMs`. */
  async close(withinMs = 10_000): Promise<Closed> {
    open.delete(this.#target);
    return (await this.#target.call("close", { withinMs })).value as Closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  limiter(options: object): Limiter {
    return new Limiter(this.#target.look("limiter", options).made as Target, this.#target);
  }
}

function named(dimensions: Dimensions): readonly string[] {
  return typeof dimensions === "string" ? [dimensions] : dimensions;
}

function text(ticket: Ticket | string | undefined): string | undefined {
  return typeof ticket === "object" ? ticket.text : ticket;
}

function refusal(value: unknown): RetryIn {
  return { ...(value as RetryIn), granted: false };
}

const open = new Set<Target>();

/** What is still held when nothing is left to do goes back now, rather than when its leases end. */
function atExit(target: Target): void {
  if (open.size === 0) {
    process.once("beforeExit", () => {
      for (const left of open) {
        // After an error, leases end later.
        left.call("close", { withinMs: LONGEST_EXIT_MS }).catch(() => undefined);
      }
      open.clear();
    });
  }
  open.add(target);
}
