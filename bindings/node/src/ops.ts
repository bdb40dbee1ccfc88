import type { Target } from "./native.js";
import type { Bucket, Lease, Limit, Share, SweepReport } from "./values.js";

/** What operators do with a table; for tests and scripts. */
export class Ops {
  readonly #target: Target;

  /** @internal */
  constructor(target: Target) {
    this.#target = target;
  }

  /**
   * Gives a bucket this limit: creates it, full, or changes the limit and keeps the level. With `shares`, it has these
   * and no others; a share is its part, or a {@link Share}. Without, those that it has stay.
   */
  async applyLimit(
    dimension: string,
    limit: Limit,
    { shares }: { shares?: Readonly<Record<string, number | Share>> } = {},
  ): Promise<"created" | "unchanged" | "repaired" | "changed"> {
    const { value } = await this.#target.call("ops.applyLimit", { dimension, limit, shares });
    return value as "created" | "unchanged" | "repaired" | "changed";
  }

  async bucket(dimension: string): Promise<Bucket | null> {
    return (await this.#target.call("ops.bucket", { dimension })).value as Bucket | null;
  }

  /** Every bucket that can be read. A scan: for people and tests. */
  async buckets(): Promise<Bucket[]> {
    return (await this.#target.call("ops.buckets")).value as Bucket[];
  }

  /** Removes a bucket; false if there was none. */
  async removeBucket(dimension: string): Promise<boolean> {
    return (await this.#target.call("ops.removeBucket", { dimension })).value as boolean;
  }

  /** Every lease. A scan: for people and tests. */
  async leases(): Promise<Lease[]> {
    return (await this.#target.call("ops.leases")).value as Lease[];
  }

  /** Gives back what crashed callers held. Nothing new begins after `budgetMs`. */
  async sweep({ budgetMs }: { budgetMs?: number } = {}): Promise<SweepReport> {
    return (await this.#target.call("ops.sweep", { budgetMs })).value as SweepReport;
  }
}
