"""One line for what is built on httpx2 (openai from 3, anthropic from 1):

>>> http = httpx2.Client(transport=sluice.httpx2.Transport("openai"))
>>> openai = OpenAI(http_client=http)

`sluice.httpx` is the same for httpx.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import httpx2

from sluice._base import BaseClient
from sluice._transport import AsyncBegunStream, AsyncCalls, AsyncOpenStream, BegunStream, OpenStream, SyncCalls

if TYPE_CHECKING:
    from sluice._values import Seconds

__all__ = ["AsyncTransport", "Transport"]


class _Open(OpenStream, httpx2.SyncByteStream): ...


class _Begun(BegunStream, httpx2.SyncByteStream): ...


class _AsyncOpen(AsyncOpenStream, httpx2.AsyncByteStream): ...


class _AsyncBegun(AsyncBegunStream, httpx2.AsyncByteStream): ...


class Transport(SyncCalls, httpx2.BaseTransport):
    """Limits the calls of an `httpx2.Client`, each attempt of a client that retries.

    `vendor` limits calls to any host by the buckets of this vendor; without it, calls to the hosts of known vendors
    are limited, and others pass. `buckets` names buckets instead, `share` the share that pays. A call waits at most
    for `patience`; beyond it the client gets a reply with status 429. `ask_usage` asks streams of chat completions to
    state their usage. `inner` makes the calls, by default `httpx2.HTTPTransport()`: name one for proxies,
    certificates and pools of your own."""

    http: Any = httpx2
    open_stream = _Open
    begun_stream = _Begun

    def __init__(
        self,
        vendor: str | None = None,
        *,
        client: BaseClient | None = None,
        buckets: Sequence[str] | None = None,
        share: str | None = None,
        patience: Seconds | None = None,
        ask_usage: bool = False,
        inner: httpx2.BaseTransport | None = None,
    ) -> None:
        super().__init__(vendor, client=client, buckets=buckets, share=share, patience=patience, ask_usage=ask_usage)
        self.inner = inner or httpx2.HTTPTransport()


class AsyncTransport(AsyncCalls, httpx2.AsyncBaseTransport):
    """As `Transport`, for an `httpx2.AsyncClient` on asyncio."""

    http: Any = httpx2
    open_stream = _AsyncOpen
    begun_stream = _AsyncBegun

    def __init__(
        self,
        vendor: str | None = None,
        *,
        client: BaseClient | None = None,
        buckets: Sequence[str] | None = None,
        share: str | None = None,
        patience: Seconds | None = None,
        ask_usage: bool = False,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(vendor, client=client, buckets=buckets, share=share, patience=patience, ask_usage=ask_usage)
        self.inner = inner or httpx2.AsyncHTTPTransport()
