import { Client } from "./client.js";

export interface FetchOptions {
  /** The client; by default one of the environment. */
  client?: Client;
  /** Takes from these buckets, rather than from those that the names of vendor and model lead to. */
  buckets?: readonly string[];
  /** The share that pays, in place of the client's own; "common" is the part that no share has. */
  share?: string;
  /** How long a call waits for its start; by default `SLUICE_DEFAULT_SLOT_TIMEOUT`, 30 s. Beyond it, the reply is a 429
   * with `Retry-After`, and the call is not made. */
  patienceMs?: number;
  /** Asks OpenAI-like vendors to state the usage at the end of a stream. */
  askUsage?: boolean;
  /** The `fetch` that makes the calls. */
  fetch?: typeof fetch;
}

/** A `fetch` for openai, `@anthropic-ai/sdk`, the AI SDK and others: `new OpenAI({ fetch: limitedFetch("openai") })`.
 *
 * Without a vendor, calls to the hosts of known vendors are limited, and others pass. */
export function limitedFetch(vendor?: string, options: FetchOptions = {}): typeof fetch {
  const { client = Client.fromEnv(), fetch: inner = globalThis.fetch, ...asked } = options;
  const limiter = client.limiter({ vendor, ...asked });
  return (input, init) => limiter.fetch(inner, input, init);
}
