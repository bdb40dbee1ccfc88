"""A vendor of chat completions on this machine, which does what each request tells it to."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}

MESSAGE = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 30, "output_tokens": 20},
}
"""Of the path that ends in `/messages`: an answer of Anthropic's API."""


class Vendor(ThreadingHTTPServer):
    daemon_threads = True
    # As many as a test connects at once: the system makes others wait a second.
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[dict[str, Any]] = []
        self.encodings: list[str] = []
        self.lock = threading.Lock()
        self.most_at_once = 0
        self.at_once = 0
        self.may_go_on = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.base_url}/v1/chat/completions"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is what some tests do."""


class Handler(BaseHTTPRequestHandler):
    server: Vendor
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        vendor = self.server
        with vendor.lock:
            vendor.seen.append(asked)
            vendor.encodings.append(self.headers.get("accept-encoding", ""))
            vendor.at_once += 1
            vendor.most_at_once = max(vendor.most_at_once, vendor.at_once)
        try:
            self._act(asked, _act_of(asked))
        finally:
            with vendor.lock:
                vendor.at_once -= 1

    def _act(self, asked: dict[str, Any], act: str) -> None:
        pause = "1"
        if act == "refuse once":
            with self.server.lock:
                act, pause = "refuse" if len(self.server.seen) == 1 else "answer", "2"
        done: dict[str, Any] = {
            "id": "1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        }
        if act == "refuse":
            error = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
            self._answer(429, json.dumps(error).encode(), {"retry-after": pause})
        elif act == "refuse in the body":
            details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4s"}]
            refusal = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
            # In two pieces, so that one read is not enough.
            body = json.dumps(refusal, indent=1).encode()
            self._head(429, {"content-length": str(len(body)), "content-type": "application/json"})
            self.wfile.write(body[:40])
            self.wfile.flush()
            time.sleep(0.05)
            self.wfile.write(body[40:])
        elif act == "gzip":
            body = gzip.compress(json.dumps(done | {"usage": USAGE}).encode())
            self._answer(200, body, {"content-encoding": "gzip"})
        elif act == "hang up":
            self.close_connection = True
        elif act == "break off":
            self._head(200, {"content-length": "1000", "content-type": "application/json"})
            self.wfile.write(b'{"id": "1", "choices": [')
            self.close_connection = True
        elif asked.get("stream"):
            self._stream(asked)
        elif self.path.endswith("/messages"):
            self._answer(200, json.dumps(MESSAGE).encode())
        else:
            self._answer(200, json.dumps(done | {"usage": USAGE}).encode())

    def _stream(self, asked: dict[str, Any]) -> None:
        self._head(200, {"transfer-encoding": "chunked", "content-type": "text/event-stream"})
        if self.path.endswith("/messages"):
            self._stream_of_anthropic(asked)
            return
        self._event(json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]}))
        if asked.get("user") == "pause":
            self.server.may_go_on.wait(10)
        self._event(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        if asked.get("stream_options", {}).get("include_usage"):
            self._event(json.dumps({"choices": [], "usage": USAGE}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _stream_of_anthropic(self, asked: dict[str, Any]) -> None:
        start = MESSAGE | {"content": [], "usage": {"input_tokens": 30, "output_tokens": 1}}
        self._event(json.dumps({"type": "message_start", "message": start}), "message_start")
        if _act_of(asked) == "pause":
            self.server.may_go_on.wait(10)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}
        self._event(json.dumps(end), "message_delta")
        self._event(json.dumps({"type": "message_stop"}), "message_stop")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str, name: str = "") -> None:
        event = (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.flush()

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        known = {"content-length": str(len(body)), "content-type": "application/json"}
        self._head(status, known | (headers or {}))
        self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _act_of(asked: dict[str, Any]) -> str:
    """What a request asks for: OpenAI's API has a field for it, and Anthropic's another."""
    act: str = asked.get("user") or asked.get("metadata", {}).get("user_id") or "answer"
    return act


@contextmanager
def served() -> Iterator[Vendor]:
    vendor = Vendor()
    thread = threading.Thread(target=vendor.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield vendor
    finally:
        vendor.shutdown()
        vendor.server_close()
