/** One client of Sluice and one of the vendor for the server, of all its routes. */

import { Client, limitedFetch } from "@sluice/sdk";
import OpenAI from "openai";

let client: OpenAI | undefined;

/** The vendor's client. Made by the first request: `next build` loads this module too, where no table is named. */
export function openai(): OpenAI {
  client ??= new OpenAI({
    fetch: limitedFetch("openai", { client: Client.fromEnv(), patienceMs: 20_000, askUsage: true }),
    // No retries of its own: the wait is in the limiter's queue, and beyond it the caller is told to come again.
    maxRetries: 0,
  });
  return client;
}
