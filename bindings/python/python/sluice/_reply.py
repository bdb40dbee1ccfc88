"""A vendor's reply, as any HTTP client has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Reply:
    """The status, the headers and, if it was read, the body of a reply. Some vendors say only in the body that an
    account is used up, or that too many calls run at once."""

    status: int
    headers: Headers = field(default_factory=dict)
    body: bytes | None = None


class HasStatusCode(Protocol):
    """A response of httpx, httpx2 or requests."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Any: ...


class HasStatus(Protocol):
    """A response of aiohttp or urllib3."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Any: ...


AnyReply: TypeAlias = Reply | HasStatusCode | HasStatus


def pairs(headers: Headers) -> Iterable[tuple[Any, Any]]:
    """The headers as pairs, each as often as it came if the client keeps that."""
    if isinstance(headers, Mapping):
        multi = getattr(headers, "multi_items", None)
        return list(multi()) if callable(multi) else list(headers.items())
    items = getattr(headers, "items", None)
    return list(items()) if callable(items) else list(headers)


def parts(reply: AnyReply) -> tuple[int, Iterable[tuple[Any, Any]], bytes | None]:
    """Status, headers and body of a reply. A body that was not read is left alone."""
    if isinstance(reply, Reply):
        return reply.status, pairs(reply.headers), reply.body
    code = getattr(reply, "status_code", None)
    status: int = code if code is not None else getattr(reply, "status")  # noqa: B009
    return status, pairs(reply.headers), _body(reply)


def _body(reply: HasStatusCode | HasStatus) -> bytes | None:
    # A response of requests reads a stream when it is asked for its content.
    if getattr(reply, "_content_consumed", True) is False:
        return None
    try:
        body = getattr(reply, "content", None)
    except Exception:  # httpx raises an error of its own if the body was not read.
        return None
    return body if isinstance(body, bytes) else None
