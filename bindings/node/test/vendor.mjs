// A vendor of chat completions on this machine, which does what each request tells it to.

import { createServer } from "node:http";

const USAGE = { prompt_tokens: 30, completion_tokens: 20, total_tokens: 50 };
const MESSAGE = {
  id: "1",
  type: "message",
  role: "assistant",
  model: "m",
  content: [{ type: "text", text: "Hello" }],
  stop_reason: "end_turn",
  usage: { input_tokens: 30, output_tokens: 20 },
};

export class Vendor {
  calls = 0;
  atOnce = 0;
  mostAtOnce = 0;
  /** Replies to give instead, once each: status, headers, body. */
  next = [];

  static async start() {
    const vendor = new Vendor();
    vendor.server = createServer((request, response) => vendor.#answer(request, response));
    await new Promise((resolve) => vendor.server.listen(0, "127.0.0.1", resolve));
    vendor.url = `http://127.0.0.1:${vendor.server.address().port}`;
    return vendor;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async #answer(request, response) {
    const pieces = [];
    for await (const piece of request) {
      pieces.push(piece);
    }
    const asked = JSON.parse(Buffer.concat(pieces));
    this.calls += 1;
    this.atOnce += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce);
    response.once("close", () => {
      this.atOnce -= 1;
    });
    const next = this.next.shift();
    if (next !== undefined) {
      return this.#send(response, ...next);
    }
    if (asked.user === "hang up") {
      return request.socket.destroy();
    }
    if (asked.stream) {
      return this.#stream(asked, request, response);
    }
    const done = {
      id: "1",
      choices: [{ index: 0, message: { content: "Hello" }, finish_reason: "stop" }],
      usage: USAGE,
    };
    this.#send(response, 200, {}, request.url.endsWith("/messages") ? MESSAGE : done);
  }

  #send(response, status, headers, body) {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  }

  #stream(asked, request, response) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (data, name) => response.write(`${name ? `event: ${name}\n` : ""}data: ${data}\n\n`);
    if (request.url.endsWith("/messages")) {
      const start = { ...MESSAGE, content: [], usage: { input_tokens: 30, output_tokens: 1 } };
      event(JSON.stringify({ type: "message_start", message: start }), "message_start");
      if (asked.metadata?.user_id === "pause") {
        return;
      }
      event(JSON.stringify({ type: "message_delta", delta: {}, usage: { output_tokens: 20 } }), "message_delta");
      event(JSON.stringify({ type: "message_stop" }), "message_stop");
      return response.end();
    }
    event(JSON.stringify({ choices: [{ index: 0, delta: { content: "Hel" } }] }));
    if (asked.user === "pause") {
      return;
    }
    if (asked.user === "break off") {
      return setTimeout(() => request.socket.destroy(), 50);
    }
    event(JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }));
    if (asked.stream_options?.include_usage) {
      event(JSON.stringify({ choices: [], usage: USAGE }));
    }
    event("[DONE]");
    response.end();
  }
}
