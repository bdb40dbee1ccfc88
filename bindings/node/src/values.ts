import type { AwsCredentialsSource } from "./credentials.js";

/** Tokens or slots by dimension. */
export type Costs = Record<string, number>;

/** A booked start, for work that waits in a queue. `text` is to be sent with the work. */
export interface Ticket {
  readonly text: string;
  readonly startAt: Date;
  readonly useBy: Date;
  readonly dimensions: readonly string[];
  readonly key: string;
}

/** A refusal: how long to wait, for which dimension, and why. */
export interface RetryIn {
  readonly granted: false;
  readonly waitMs: number;
  /** The dimension that causes the longest wait. */
  readonly dimension: string;
  readonly reason: "exhausted" | "no_free_slot" | "cooling_down" | "contended";
  /** The value for SQS's `DelaySeconds`: one second more than the wait, at most 900. */
  readonly delaySeconds: number;
  /** The ticket of a booked start, if one was asked for. */
  readonly ticket: Ticket | null;
  /** Why there is no ticket, if one was asked for. */
  readonly noTicket: string | null;
  readonly message: string;
}

/** A ticket under which nothing was granted. `spent`: it was redeemed before. `lapsed`: acquire again. */
export interface NotRedeemed {
  readonly granted: false;
  readonly notRedeemed: "spent" | "lapsed";
}

/** How a release ended. Each outcome is fine for the caller. */
export type Released = "given_back" | "already_capped" | "lease_gone";

/** What a grant rests on: the table, or a decision of this process in an outage or in shadow mode. */
export type Basis = "table" | "local_share" | "unchecked" | "shadow";

/** How a settlement ended. */
export interface Settled {
  readonly outcome: "as_taken" | "returned" | "owed" | "capped";
  /** What went back (`returned`), or was taken in addition (`owed`, `capped`). */
  readonly amount: number;
  /** Of `capped`: what the call used beyond that. */
  readonly notCharged: number;
}

/** What to do with a call after its reply. */
export interface Decision {
  readonly action: "retry_inline" | "requeue" | "give_up" | "not_refused";
  readonly waitMs: number | null;
  readonly delaySeconds: number | null;
}

/** What a vendor's headers said about one bucket, and what they changed. */
export interface Observed {
  readonly level: "not_said" | "no_grant" | "agrees" | "lowered" | "stale";
  readonly loweredBy: number | null;
  readonly limit: "not_said" | "not_lower" | "lower" | "adopted";
  readonly reportedLimit: number | null;
  /** Number of headers that could not be read. */
  readonly unreadable: number;
}

/** What a reported reply meant, and what it changed. */
export interface Replied {
  readonly decision: Decision;
  /** By dimension; empty after a refusal. */
  readonly observed: Record<string, Observed>;
}

export interface Penalty {
  /** False if the bucket had nothing to take. */
  readonly applied: boolean;
  readonly level: number;
}

export interface CoolDown {
  readonly until: Date;
  /** False if the bucket was blocked for longer already. */
  readonly wasSet: boolean;
}

export interface Refilled {
  readonly before: number;
  readonly level: number;
}

/** A request that should not begin. */
export interface Shed {
  readonly admitted: false;
  readonly waitMs: number;
  /** For `Retry-After`; spread, so that requests that are shed together do not return together. */
  readonly retryAfterMs: number;
  readonly reason: "over_slo" | "upstream_down";
}

/** A request that may begin. It acquires as usual: nothing was taken. */
export interface Admitted {
  readonly admitted: true;
  readonly waitMs: number | null;
  /** In shadow mode, the refusal that enforcing would have returned. */
  readonly wouldShed: Shed | null;
}

/** How a client ended. */
export interface Closed {
  /** Whether calls still ran, or grants were held, when their time was over. */
  readonly cutOff: boolean;
  /** What could not be given back in time. It comes back when its lease ends. */
  readonly left: ReadonlyArray<{ readonly dimension: string; readonly lease: string }>;
}

/** The limit of a bucket. */
export interface Limit {
  readonly type: "requests" | "tokens" | "concurrent";
  /** The largest burst, or the number of slots. */
  readonly capacity: number;
  /** The time in which `refill` flows back; by default a minute. */
  readonly perMs?: number;
  /** What flows back in this time; by default the capacity. */
  readonly refill?: number;
  /** What a call takes if it names no cost; by default 1. A bucket of tokens has no such cost by default. */
  readonly costPerCall?: number | null;
}

/** What a product is guaranteed of a bucket. */
export interface Share {
  /** The part of the bucket's capacity and refill rate, above 0 and below 1; of slots, rounded down to whole calls. */
  readonly part: number;
  /** What others leave there when they borrow, in tokens or slots; by default a quarter, and at least one call. */
  readonly floor?: number;
  /** For work that can wait: the last to borrow. */
  readonly background?: boolean;
}

/** A bucket as it was read. */
export interface Bucket {
  readonly dimension: string;
  readonly limit: Limit;
  /** Tokens or free slots; below zero if starts are booked ahead. */
  readonly level: number;
  readonly coolingDownUntil: Date | null;
}

/** A lease as it was listed. Of one that cannot be read, the key alone is known. */
export interface Lease {
  readonly key: string;
  readonly dimension: string | null;
  readonly ends: Date | null;
  readonly caller: string | null;
  readonly isInline: boolean;
}

/** What a sweep did. */
export interface SweepReport {
  readonly rowsScanned: number;
  readonly expired: number;
  /** Leases given back. */
  readonly restored: number;
  readonly restoredSlots: number;
  /** Leases that cannot be read. */
  readonly unparsable: number;
  /** Buckets that cannot be read: all of their callers get errors. */
  readonly unreadableBuckets: number;
  /** Leases left to the next sweep. */
  readonly left: number;
  readonly requests: number;
  readonly durationMs: number;
}

/** What a tracker knows of a grant. */
export interface Reservation {
  readonly reservationId: string;
  readonly requestId: string;
  readonly bucketId: string;
  readonly estimatedTokens: number | null;
  readonly createdAt: Date;
}

/** How the releases of stale grants ended. */
export interface StaleReport {
  readonly givenBack: number;
  readonly late: number;
  readonly failed: number;
}

/** Settings in code. The default of each is that of its variable: `docs/settings.md`. */
export interface Settings {
  region?: string;
  /** Credentials that the program has; by default those of the environment, of a profile, or of the role. */
  credentials?: AwsCredentialsSource;
  endpoint?: string;
  leaseTtlMs?: number;
  maxRetries?: number;
  attemptTimeoutMs?: number;
  answerWithinMs?: number;
  maxWaitMs?: number;
  renewLeases?: boolean;
  mode?: "enforce" | "shadow";
  leases?: "concurrent" | "all" | "inline";
  /** `error`, `allow`, `share`, or `share:FACTOR`. */
  onUnavailable?: string;
  admission?: "off" | "shadow" | "enforce";
  stalenessMs?: number;
  selfHeal?: boolean;
  healBudget?: number;
  capDebt?: boolean;
  maxBuckets?: number;
  longestCoolDownMs?: number;
  caller?: string;
  /** The share of buckets that pays (`SLUICE_SHARE`); `common` is the part that no share has. */
  share?: string;
  /** The part of a limit at whose use the process warns; 0 for no warnings. */
  warnAt?: number;
  noteUse?: boolean;
  prefetch?: readonly string[];
  /** Profiles of vendors, in TOML. */
  vendors?: readonly string[];
}
