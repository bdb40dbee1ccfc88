/** One client of Sluice and one of the vendor for the server: modules are loaded once, also by many routes. */

import { Client, limitedFetch } from "@sluice/sdk";
import OpenAI from "openai";

const sluice = Client.fromEnv();

// No retries of its own: the wait is in the limiter's queue, and beyond it the caller is told.
export const openai = new OpenAI({
  fetch: limitedFetch("openai", { client: sluice, patienceMs: 20_000, askUsage: true }),
  maxRetries: 0,
});
