/** POST /api/chat: the answer of the vendor as a stream of text, or 503 with Retry-After. */

import OpenAI from "openai";
import { openai } from "../../../limits";

// The native module needs Node, and not the edge runtime.
export const runtime = "nodejs";
// Nothing here can be made when the app is built.
export const dynamic = "force-dynamic";

export async function POST(request: Request): Promise<Response> {
  const question = (await request.json()) as { text: string };
  try {
    const stream = await openai().chat.completions.create(
      { model: "small", max_completion_tokens: 50, messages: [{ role: "user", content: question.text }], stream: true },
      // Whoever leaves, before the stream or within it, ends the wait and the call, and what they hold comes back.
      { signal: request.signal },
    );
    const chunks = stream[Symbol.asyncIterator]();
    const text = new ReadableStream<Uint8Array>({
      async pull(reader) {
        const { done, value } = await chunks.next();
        if (done) {
          return reader.close();
        }
        reader.enqueue(new TextEncoder().encode(value.choices[0]?.delta.content ?? ""));
      },
      cancel: () => stream.controller.abort(),
    });
    return new Response(text, { headers: { "content-type": "text/plain; charset=utf-8" } });
  } catch (error) {
    if (error instanceof OpenAI.RateLimitError) {
      // Of the limiter or of the vendor: both say when to come again.
      const wait = error.headers?.get("retry-after") ?? "5";
      return Response.json({ error: "busy" }, { status: 503, headers: { "retry-after": wait } });
    }
    throw error;
  }
}
