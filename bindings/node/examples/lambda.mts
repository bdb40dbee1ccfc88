/** A Lambda function behind SQS: each message is a call to the vendor. What does not fit now goes back into the queue. */

import { Client, limitedFetch, RefusedError } from "@sluice/sdk";
import OpenAI from "openai";

interface Message {
  messageId: string;
  body: string;
}

// Outside of the handler: it lives as long as the function's environment, also while that is frozen.
const sluice = Client.fromEnv();
const openai = new OpenAI({ fetch: limitedFetch("openai", { client: sluice, patienceMs: 5_000 }), maxRetries: 0 });

export async function handler(event: { Records: Message[] }): Promise<object> {
  const failed: string[] = [];
  for (const { messageId, body } of event.Records) {
    try {
      await openai.chat.completions.create({ model: "gpt-4o", messages: [{ role: "user", content: body }] });
    } catch (error) {
      if (!(error instanceof OpenAI.RateLimitError || error instanceof RefusedError)) {
        throw error;
      }
      failed.push(messageId);
    }
  }
  return { batchItemFailures: failed.map((itemIdentifier) => ({ itemIdentifier })) };
}
