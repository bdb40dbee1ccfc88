"""A limiter for the models and agents of Pydantic AI:

>>> model = ConcurrencyLimitedModel("openai:gpt-4o", limiter=sluice.pydantic_ai.Limiter("openai#concurrent"))
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pydantic_ai.concurrency import AbstractConcurrencyLimiter

from sluice._async import AsyncClient, AsyncGrant

if TYPE_CHECKING:
    from sluice._base import BaseClient, Costs
    from sluice._values import Seconds

__all__ = ["Limiter"]


class Limiter(AbstractConcurrencyLimiter):
    """Holds slots and takes tokens for each call. Pydantic AI does not tell what a call used: `costs` names what it
    takes at most, and that stays spent.

    A wait longer than `max_wait` (by default `SLUICE_DEFAULT_SLOT_TIMEOUT`, 30 s) raises `sluice.RefusedError`."""

    def __init__(
        self,
        *dimensions: str,
        costs: Costs | None = None,
        share: str | None = None,
        max_wait: Seconds | None = None,
        client: BaseClient | None = None,
    ) -> None:
        self._client = AsyncClient.from_env() if client is None else AsyncClient.sharing(client)
        self._dimensions, self._costs, self._share, self._max_wait = dimensions, costs, share, max_wait
        self._held: deque[AsyncGrant] = deque()

    async def acquire(self, source: str) -> None:
        slot = self._client.slot(*self._dimensions, costs=self._costs, share=self._share, max_wait=self._max_wait)
        self._held.append(await slot.grant())

    def release(self) -> None:
        # The grants are alike, so any will do. One that is dropped gives its slots back, and nobody waits.
        self._held.popleft()
