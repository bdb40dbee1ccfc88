/** A vendor's reply, as any HTTP client has it. */
export interface Reply {
  readonly status: number;
  readonly headers?: HeadersLike;
  /** Its body, if it was read. Some vendors say only there that an account is used up. */
  readonly body?: string | Uint8Array | null | undefined;
}

/** Headers of fetch, of Node, or pairs. */
export type HeadersLike =
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The headers as pairs, each as often as it came if the client keeps that. */
export function pairs(headers: HeadersLike = {}): Array<[string, string]> {
  if (Symbol.iterator in headers) {
    return [...(headers as Iterable<readonly [string, string]>)].map(([name, value]) => [name, value]);
  }
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one): [string, string] => [name, String(one)]),
  );
}

/** The arguments and the body of a reply. A `Response` of fetch has a stream for a body, which is left alone. */
export function parts(reply: Reply | Response): { head: object; bytes: Buffer | undefined } {
  const { body } = reply;
  const isRead = typeof body === "string" || body instanceof Uint8Array;
  return {
    head: { status: reply.status, headers: pairs(reply.headers) },
    bytes: isRead ? Buffer.from(body as Uint8Array) : undefined,
  };
}
