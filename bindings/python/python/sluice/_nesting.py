"""The slots that a block of code runs in. A wait inside of one for another slot of the same bucket would be a wait for
itself."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice import _native


class Block:
    """The block of a slot, and the one around it. It is known to the tasks that are started in it, too: it counts until
    it ends."""

    __slots__ = ("_around", "_client", "_limits")

    def __init__(self, client: _native.Client, limits: list[str]) -> None:
        self._client: _native.Client | None = client
        self._limits = limits
        self._around = _innermost()
        _INNERMOST.set(self)

    def end(self) -> None:
        self._client = None
        # Another task than the one that began it has a context of its own.
        if _INNERMOST.get() is self:
            _INNERMOST.set(self._around)


_INNERMOST: ContextVar[Block | None] = ContextVar("sluice_innermost_block", default=None)


def _innermost() -> Block | None:
    """The innermost block that has not ended."""
    block = _INNERMOST.get()
    while block is not None and block._client is None:
        block = block._around
    return block


def inside(client: _native.Client) -> list[str]:
    """The concurrency limits of this client of which the blocks around this code hold slots."""
    limits: list[str] = []
    block = _INNERMOST.get()
    while block is not None:
        if block._client is client:
            limits += block._limits
        block = block._around
    return limits


# What a parent holds is not waited for by its child.
os.register_at_fork(after_in_child=lambda: _INNERMOST.set(None))
