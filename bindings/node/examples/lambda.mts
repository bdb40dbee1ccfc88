/** A Lambda function behind SQS: each message is a call to the vendor. What does not fit now, or fails, comes again. */

import { Client, limitedFetch, SluiceError } from "@sluice/sdk";
import OpenAI from "openai";

interface Message {
  messageId: string;
  body: string;
}

// Outside of the handler: it lives as long as the function's environment, also while that is frozen.
const sluice = Client.fromEnv();
const fetch = limitedFetch("openai", { client: sluice, patienceMs: 5_000 });
const openai = new OpenAI({ fetch, maxRetries: 0, timeout: 20_000 });

export async function handler(event: { Records: Message[] }): Promise<object> {
  const failed: string[] = [];
  for (const { messageId, body } of event.Records) {
    try {
      await openai.chat.completions.create({ model: "gpt-4o", messages: [{ role: "user", content: body }] });
    } catch (error) {
      // A refusal, a timeout, an error: this message comes again, and the others do not.
      if (!(error instanceof OpenAI.APIError || error instanceof SluiceError)) {
        throw error;
      }
      failed.push(messageId);
    }
  }
  return { batchItemFailures: failed.map((itemIdentifier) => ({ itemIdentifier })) };
}
