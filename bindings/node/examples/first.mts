/** A program like that of the README. */

import { Client, limitedFetch } from "@sluice/sdk";
import OpenAI from "openai";

await using sluice = Client.fromEnv();

// One line in the vendor's client.
const openai = new OpenAI({ fetch: limitedFetch("openai", { client: sluice }) });
await openai.chat.completions.create({ model: "gpt-4o", messages: [{ role: "user", content: "Hello" }] });

// Or around a call of any kind.
const audio = await sluice.slot(["elevenlabs#concurrent", "elevenlabs#rpm"], { maxWaitMs: 10_000 }, async (slot) => {
  const response = await fetch("https://api.elevenlabs.io/v1/text-to-speech/voice", { method: "POST" });
  await slot.reply(response);
  return response.arrayBuffer();
});
console.log(audio.byteLength);
