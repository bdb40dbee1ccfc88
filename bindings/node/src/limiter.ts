/** The steps of one limited call of `fetch`. What a call costs, and what its reply means, is decided by `sluice-http`. */

import type { Target } from "./native.js";
import { Block } from "./nesting.js";
import { pairs } from "./reply.js";

/** The most of an error's body that is read before the fleet reacts, and the longest time for it. */
const MOST_OF_ERROR = 64 * 1_024;
const LONGEST_ERROR_MS = 2_000;

/** Causes of a failed fetch by which the vendor never had the request. */
const NEVER_SENT = new Set([
  "EAI_AGAIN",
  "EADDRNOTAVAIL",
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** @internal */
export class Limiter {
  readonly #target: Target;
  readonly #client: Target;

  constructor(target: Target, client: Target) {
    this.#target = target;
    this.#client = client;
  }

  async fetch(inner: typeof fetch, input: string | URL | Request, init?: RequestInit): Promise<Response> {
    const given = typeof input === "object" && "url" in input ? input : undefined;
    const method = (init?.method ?? given?.method ?? "GET").toUpperCase();
    const url = given?.url ?? String(input);
    const headers = new Headers(init?.headers ?? given?.headers);
    const signal = init?.signal ?? given?.signal;
    const bytes = await bodyOf(init?.body, given, headers);
    const args = { method, url, headers: pairs(headers), inside: Block.inside(this.#client) };
    const {
      value,
      made: call,
      bytes: body,
    } = await this.#target.call("start", args, {
      bytes,
      signal: signal ?? undefined,
    });
    if (call === null) {
      return value === null ? inner(input, init) : refused(value as Refused, body);
    }
    if (signal?.aborted) {
      await call.call("unanswered", { wasSent: false });
      signal.throwIfAborted();
    }
    let response: Response;
    try {
      response = body === null ? await inner(input, init) : await inner(input, { ...init, ...withBody(headers, body) });
    } catch (error) {
      await call.call("unanswered", { wasSent: wasSent(error) });
      throw error;
    }
    return response.ok ? open(call, response) : failed(call, response);
  }
}

interface Refused {
  status: number;
  headers: Array<[string, string]>;
}

function refused({ status, headers }: Refused, body: Buffer | null): Response {
  return new Response(body as Uint8Array<ArrayBuffer> | null, { status, headers });
}

/** The body of a request, if it is in memory. */
async function bodyOf(
  body: RequestInit["body"],
  given: Request | undefined,
  headers: Headers,
): Promise<Buffer | undefined> {
  if (typeof body === "string") {
    return Buffer.from(body);
  }
  if (body instanceof ArrayBuffer) {
    return Buffer.from(body);
  }
  if (ArrayBuffer.isView(body)) {
    return Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  }
  const isJson = headers.get("content-type")?.includes("json") ?? false;
  // A request has a stream for a body: a copy of it is read.
  return body == null && given?.body && isJson ? Buffer.from(await given.clone().arrayBuffer()) : undefined;
}

function withBody(headers: Headers, body: Buffer): RequestInit {
  headers.delete("content-length");
  return { headers, body: body as Uint8Array<ArrayBuffer> };
}

function wasSent(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code !== undefined && NEVER_SENT.has(code)) {
      return false;
    }
  }
  return true;
}

/** The head of a reply. fetch has decoded the body. */
function head(response: Response): { status: number; headers: Array<[string, string]> } {
  const headers = pairs(response.headers).filter(([name]) => name !== "content-encoding");
  return { status: response.status, headers };
}

/** A reply with a status of success: its call ends with its body. */
function open(call: Target, response: Response): Response {
  const reply = call.look("answered", head(response)).made as Target;
  if (response.body === null) {
    reply.look("abandon");
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (value !== undefined) {
          reply.feed(value);
          controller.enqueue(value);
        }
        if (done) {
          await reply.call("end");
          controller.close();
        }
      } catch (error) {
        await reply.call("end");
        controller.error(error);
      }
    },
    async cancel(reason) {
      // Before the end of the body: the call ends, and nobody waits.
      reply.look("abandon");
      await reader.cancel(reason);
    },
  });
  return like(response, body);
}

/** A reply with any other status. Its beginning is read first, and the fleet reacts before the client sees it. */
async function failed(call: Target, response: Response): Promise<Response> {
  const reader = response.body?.getReader();
  const pieces: Uint8Array[] = [];
  let [length, hasEnded] = [0, reader === undefined];
  let pending: ReturnType<ReadableStreamDefaultReader<Uint8Array>["read"]> | undefined;
  const until = Date.now() + LONGEST_ERROR_MS;
  let broken: unknown;
  while (reader !== undefined && !hasEnded && length < MOST_OF_ERROR && Date.now() < until) {
    pending ??= reader.read();
    try {
      const read = await within(pending, until - Date.now());
      if (read === undefined) {
        break;
      }
      pending = undefined;
      hasEnded = read.done;
      if (read.value !== undefined) {
        pieces.push(read.value);
        length += read.value.length;
      }
    } catch (error) {
      // The client gets it when it reads as far.
      [broken, hasEnded] = [error, true];
    }
  }
  await call.call("failed", head(response), { bytes: Buffer.concat(pieces).subarray(0, MOST_OF_ERROR) });
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const piece = pieces.shift();
      if (piece !== undefined) {
        return controller.enqueue(piece);
      }
      if (broken !== undefined) {
        return controller.error(broken);
      }
      if (hasEnded || reader === undefined) {
        return controller.close();
      }
      const { done, value } = await (pending ?? reader.read());
      pending = undefined;
      hasEnded = done;
      return value === undefined ? controller.close() : controller.enqueue(value);
    },
    async cancel(reason) {
      await reader?.cancel(reason);
    },
  });
  return like(response, reader === undefined ? null : body);
}

/** What a promise tells in time. */
async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function like(response: Response, body: ReadableStream<Uint8Array> | null): Response {
  const { status, statusText, headers } = response;
  const copy = new Response(body as ReadableStream<Uint8Array<ArrayBuffer>> | null, { status, statusText, headers });
  Object.defineProperty(copy, "url", { value: response.url });
  return copy;
}
