"""Transports that limit the calls of httpx or httpx2, which differ in name alone. What a call costs, and what its reply
means, is decided by `sluice-http`: here are the steps of one call."""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sluice import _native
from sluice._base import BaseClient
from sluice._nesting import inside
from sluice._sync import Client

if TYPE_CHECKING:
    from sluice._values import Seconds

_LONGEST_ERROR = 2.0
"""How many seconds the body of an error may take before the fleet reacts without the rest of it."""

_READABLE = {"": None, "identity": None, "gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Encodings of a body that the standard library decodes, by what zlib calls them."""

_LONGEST_PIECE = 1 << 20

Headers = list[tuple[bytes, bytes]]


class Calls:
    """What the transports for threads and for asyncio share."""

    http: Any
    """The module `httpx` or `httpx2`."""

    def __init__(
        self,
        vendor: str | None,
        *,
        client: BaseClient | None,
        buckets: Sequence[str] | None,
        share: str | None,
        patience: Seconds | None,
        ask_usage: bool,
    ) -> None:
        client = client or Client.from_env()
        # The native client lives as long as the transport; the other closes it at the end of the process.
        self._client = client
        named = None if buckets is None else list(buckets)
        self._limiter = _native.http_limiter(client._native, vendor, named, share, patience, ask_usage)

    def _start(self, request: Any) -> _native.Operation[Any]:
        try:
            body: bytes | None = request.content
        except self.http.RequestNotRead:
            body = None
        around = inside(self._client._native)
        return self._limiter.start(request.method, str(request.url), request.headers.raw, body, around)

    def _refused(self, refused: tuple[int, Headers, bytes]) -> Any:
        """The reply that the limiter makes in place of the vendor's."""
        status, headers, body = refused
        return self.http.Response(status, headers=headers, content=body)

    def _request(self, request: Any, other_body: bytes | None) -> Any:
        """The request to send. Its reply may be encoded in the ways that can be read."""
        headers = [
            (name, b"gzip, deflate" if name.lower() == b"accept-encoding" and value != b"identity" else value)
            for name, value in request.headers.raw
            if other_body is None or name.lower() != b"content-length"
        ]
        content = {"stream": request.stream} if other_body is None else {"content": other_body}
        return self.http.Request(request.method, request.url, headers=headers, extensions=request.extensions, **content)

    def _was_sent(self, error: Exception) -> bool:
        """Whether the vendor may have had a request that failed so, and works on it."""
        http = self.http
        return not isinstance(
            error,
            (
                http.ConnectError,
                http.ConnectTimeout,
                http.PoolTimeout,
                http.UnsupportedProtocol,
                http.LocalProtocolError,
            ),
        )


def is_success(response: Any) -> bool:
    return bool(200 <= response.status_code < 300)


class Decoder:
    """Decodes a body for the limiter. The client gets it as it came."""

    def __init__(self, headers: Headers) -> None:
        encodings = [value for name, value in headers if name.lower() == b"content-encoding"]
        encoding = encodings[0].decode("latin-1").strip().lower() if len(encodings) == 1 else ""
        self._is_readable = len(encodings) < 2 and encoding in _READABLE
        bits = _READABLE.get(encoding)
        self._zlib = None if bits is None else zlib.decompressobj(bits)
        # Of a body that is not decoded, the limiter is told the encoding, and reads nothing.
        self.headers = (
            [pair for pair in headers if pair[0].lower() != b"content-encoding"] if self._is_readable else headers
        )

    def pieces(self, piece: bytes) -> Iterable[bytes]:
        """The decoded pieces of a piece."""
        if self._zlib is None or not self._is_readable:
            yield piece
            return
        while piece:
            try:
                decoded = self._zlib.decompress(piece, _LONGEST_PIECE)
            except zlib.error:
                self._is_readable = False
                return
            yield decoded
            piece = self._zlib.unconsumed_tail


class Open:
    """A reply of which the body is read. Its call ends with it."""

    def __init__(self, stream: Any, call: _native.Call, status: int, headers: Headers) -> None:
        self._stream = stream
        self._decoder = Decoder(headers)
        self._reply: _native.OpenReply | None = call.answered(status, self._decoder.headers)

    def _feed(self, piece: bytes) -> None:
        if self._reply is not None:
            for decoded in self._decoder.pieces(piece):
                self._reply.feed(decoded)

    def _take(self) -> _native.OpenReply | None:
        reply, self._reply = self._reply, None
        return reply


class OpenStream(Open):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._feed(piece)
                yield piece
        except Exception:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        if (reply := self._take()) is not None:
            reply.end().wait()

    def close(self) -> None:
        # Before the end of the body: the call ends when the reply is dropped, and nobody waits. The vendor knows first.
        try:
            self._stream.close()
        finally:
            self._take()


class AsyncOpenStream(Open):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._feed(piece)
                yield piece
        except Exception:
            await self._end()
            raise
        await self._end()

    async def _end(self) -> None:
        if (reply := self._take()) is not None:
            await reply.end()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._take()


class Begun:
    """The body of an error, whose beginning the limiter read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._pieces: list[bytes] = []
        self._broken: Exception | None = None
        self._has_ended = False
        self._began = time.monotonic()
        self._length = 0

    def _is_enough(self) -> bool:
        is_late = time.monotonic() - self._began > _LONGEST_ERROR
        return self._has_ended or self._broken is not None or is_late or self._length >= _native.MAX_ERROR_LEN

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._length += len(piece)

    def beginning(self, decoder: Decoder) -> bytes:
        """What was read, decoded."""
        decoded = (part for piece in self._pieces for part in decoder.pieces(piece))
        return b"".join(decoded)[: _native.MAX_ERROR_LEN]

    def _read(self) -> Iterator[bytes]:
        while self._pieces:
            yield self._pieces.pop(0)
        if self._broken is not None:
            raise self._broken


class BegunStream(Begun):
    def read_beginning(self) -> None:
        self._rest = iter(self._stream)
        while not self._is_enough():
            try:
                self._add(next(self._rest))
            except StopIteration:
                self._has_ended = True
            except Exception as error:  # The client gets it when it reads as far.
                self._broken = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._read()
        yield from self._rest

    def close(self) -> None:
        self._stream.close()


class AsyncBegunStream(Begun):
    async def read_beginning(self) -> None:
        self._rest = aiter(self._stream)
        while not self._is_enough():
            try:
                self._add(await anext(self._rest))
            except StopAsyncIteration:
                self._has_ended = True
            except Exception as error:  # The client gets it when it reads as far.
                self._broken = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._read():
            yield piece
        async for piece in self._rest:
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class SyncCalls(Calls):
    """A transport for threads."""

    inner: Any
    open_stream: Any
    begun_stream: Any

    def handle_request(self, request: Any) -> Any:
        call = self._start(request).wait()
        if call is None:
            return self.inner.handle_request(request)
        if isinstance(call, tuple):
            return self._refused(call)
        try:
            response = self.inner.handle_request(self._request(request, call.other_body))
        except Exception as error:
            call.unanswered(self._was_sent(error)).wait()
            raise
        if is_success(response):
            response.stream = self.open_stream(response.stream, call, response.status_code, response.headers.raw)
            return response
        begun = self.begun_stream(response.stream)
        begun.read_beginning()
        decoder = Decoder(response.headers.raw)
        call.failed(response.status_code, decoder.headers, begun.beginning(decoder)).wait()
        response.stream = begun
        return response

    def close(self) -> None:
        self.inner.close()


class AsyncCalls(Calls):
    """A transport for asyncio."""

    inner: Any
    open_stream: Any
    begun_stream: Any

    async def handle_async_request(self, request: Any) -> Any:
        call = await self._start(request)
        if call is None:
            return await self.inner.handle_async_request(request)
        if isinstance(call, tuple):
            return self._refused(call)
        try:
            response = await self.inner.handle_async_request(self._request(request, call.other_body))
        except Exception as error:
            await call.unanswered(self._was_sent(error))
            raise
        if is_success(response):
            response.stream = self.open_stream(response.stream, call, response.status_code, response.headers.raw)
            return response
        begun = self.begun_stream(response.stream)
        await begun.read_beginning()
        decoder = Decoder(response.headers.raw)
        await call.failed(response.status_code, decoder.headers, begun.beginning(decoder))
        response.stream = begun
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()
