/** The slots that code runs in. A wait inside of one for another slot of the same bucket would be a wait for itself. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Target } from "./native.js";

const innermost = new AsyncLocalStorage<Block>();

/** The call of a slot, and the one around it. What the call starts knows it, too: it counts until it ends. */
export class Block {
  #client: Target | undefined;
  readonly #limits: readonly string[];
  #around: Block | undefined;

  constructor(client: Target, limits: readonly string[]) {
    this.#client = client;
    this.#limits = limits;
    this.#around = innermost.getStore();
    while (this.#around !== undefined && this.#around.#client === undefined) {
      this.#around = this.#around.#around;
    }
  }

  run<T>(call: () => T): T {
    return innermost.run(this, call);
  }

  end(): void {
    this.#client = undefined;
  }

  /** The concurrency limits of this client of which the calls around this code hold slots. */
  static inside(client: Target): readonly string[] {
    const limits: string[] = [];
    for (let block = innermost.getStore(); block !== undefined; block = block.#around) {
      if (block.#client === client) {
        limits.push(...block.#limits);
      }
    }
    return limits;
  }
}
