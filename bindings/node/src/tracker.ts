import { Grant } from "./grant.js";
import { type Answer, Target } from "./native.js";
import type { Reservation, StaleReport } from "./values.js";

export interface ReservationOptions {
  maxReservations?: number;
  maxReservationAgeMs?: number;
  staleCleanupIntervalMs?: number;
}

/** A grant that was taken out, with what is known of it. */
export interface Tracked {
  readonly reservation: Reservation;
  readonly grant: Grant;
}

/** Holds grants from the start of a call to its end, by request and bucket, in this process alone. A grant that nobody
 * takes within `maxReservationAgeMs` is stale: the background task, or a store that finds no room, releases it. */
export class ReservationTracker {
  readonly #target: Target;

  /** @internal */
  constructor(target: Target) {
    this.#target = target;
  }

  /** Starts the background task; does nothing if it runs. */
  start(): void {
    this.#target.look("start");
  }

  /** Ends the background task, and waits for its releases under way. */
  async stop(): Promise<void> {
    await this.#target.call("stop");
  }

  /** Stores a grant, and returns the id of its reservation. After an error, the caller still holds the grant. */
  store(requestId: string, bucketId: string, grant: Grant): string {
    return this.#target.store({ requestId, bucketId }, grant.target) as string;
  }

  /** What is known of a grant, which stays. */
  get(requestId: string, bucketId: string): Reservation | null {
    return this.#target.look("get", { requestId, bucketId }).value as Reservation | null;
  }

  /** Takes a grant out, for the end of its call; the oldest of the request, if no bucket is named. If several callers
   * take it at once, one gets it. */
  async getAndClear(requestId: string, bucketId?: string): Promise<Tracked | null> {
    const [taken] = await tracked(this.#target.list("take", { requestId, bucketId }));
    return taken ?? null;
  }

  /** Takes out all grants of a request, oldest first: for a request that failed. */
  async clearAllForRequest(requestId: string): Promise<Tracked[]> {
    return tracked(this.#target.list("takeRequest", { requestId }));
  }

  /** Takes out all grants that were stored before `cutoffTime`, oldest first; without it, those older than
   * `maxReservationAgeMs`. */
  async getAndClearStale(cutoffTime?: Date): Promise<Tracked[]> {
    return tracked(this.#target.list("takeStale", { storedBefore: cutoffTime?.getTime() }));
  }

  /** Takes out all stale grants and releases them. */
  async releaseStale(): Promise<StaleReport> {
    return (await this.#target.call("releaseStale")).value as StaleReport;
  }

  /** How the releases of stale grants ended, since the tracker was made. */
  staleReport(): StaleReport {
    return this.#target.look("staleReport").value as StaleReport;
  }

  /** Removes taken grants from the heap of ages, and returns how many. The tracker does so by itself; this frees memory
   * sooner. */
  compactHeap(): number {
    return this.#target.look("compact").value as number;
  }

  /** The share of taken grants in the heap of ages, 0 to 1. */
  get staleEntryRatio(): number {
    return this.#counts().staleEntryRatio;
  }

  /** Number of grants held. */
  get reservationCount(): number {
    return this.#counts().reservationCount;
  }

  /** Number of requests for which a grant is held. */
  get requestCount(): number {
    return this.#counts().requestCount;
  }

  #counts(): Counts {
    return this.#target.look("counts").value as Counts;
  }
}

interface Counts {
  staleEntryRatio: number;
  reservationCount: number;
  requestCount: number;
}

function tracked(answers: Answer[]): Promise<Tracked[]> {
  return Promise.all(
    answers.map(async ({ value, made }) => {
      const { reservation, grant } = value as { reservation: Reservation; grant: unknown };
      return { reservation, grant: await Grant.of(made as Target, grant, undefined) };
    }),
  );
}

export interface EstimatorOptions {
  quantile?: number;
  halfLifeCalls?: number;
  maxKeys?: number;
}

/** Estimates what a call will most likely use, from what calls of its kind used. */
export class TokenEstimator {
  readonly #target: Target;

  constructor(options: EstimatorOptions = {}) {
    this.#target = Target.estimator(options);
  }

  observe(key: string, used: number): void {
    this.#target.look("observe", { key, used });
  }

  /** `null` while too few calls of the kind are known. */
  estimate(key: string): number | null {
    return this.#target.look("estimate", { key }).value as number | null;
  }

  /** The estimate, at most `maxTokens`; that, while too few calls are known. */
  estimateOr(key: string, maxTokens: number): number {
    return Math.min(this.estimate(key) ?? maxTokens, maxTokens);
  }

  get keyCount(): number {
    return this.#target.look("keyCount").value as number;
  }
}
