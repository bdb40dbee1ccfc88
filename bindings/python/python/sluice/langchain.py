"""A rate limiter for LangChain's chat models:

>>> model = init_chat_model("openai:gpt-4o", rate_limiter=sluice.langchain.RateLimiter("openai#rpm"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.rate_limiters import BaseRateLimiter

from sluice._async import AsyncClient, AsyncGrant
from sluice._sync import Client, Grant

if TYPE_CHECKING:
    from sluice._base import BaseClient, Costs
    from sluice._values import Seconds

__all__ = ["RateLimiter"]


class RateLimiter(BaseRateLimiter):
    """Lets a model call when its rate buckets allow it. LangChain does not tell when a call ends, nor what it used:
    name rate buckets alone, with what a call takes at most in `costs`. The transports of `sluice.httpx` and
    `sluice.httpx2` know both.

    A wait longer than `max_wait` (by default `SLUICE_DEFAULT_SLOT_TIMEOUT`, 30 s) raises `sluice.RefusedError`."""

    def __init__(
        self,
        *dimensions: str,
        costs: Costs | None = None,
        share: str | None = None,
        max_wait: Seconds | None = None,
        client: BaseClient | None = None,
    ) -> None:
        client = client or Client.from_env()
        self._client, self._async_client = Client.sharing(client), AsyncClient.sharing(client)
        self._dimensions, self._costs, self._share, self._max_wait = dimensions, costs, share, max_wait

    def acquire(self, *, blocking: bool = True) -> bool:
        client = self._client
        if blocking:
            slot = client.slot(*self._dimensions, costs=self._costs, share=self._share, max_wait=self._max_wait)
            slot.grant().release()
            return True
        outcome = client.acquire(*self._dimensions, costs=self._costs, share=self._share)
        return isinstance(outcome, Grant) and outcome.release() is not None

    async def aacquire(self, *, blocking: bool = True) -> bool:
        client = self._async_client
        if blocking:
            slot = client.slot(*self._dimensions, costs=self._costs, share=self._share, max_wait=self._max_wait)
            await (await slot.grant()).release()
            return True
        outcome = await client.acquire(*self._dimensions, costs=self._costs, share=self._share)
        return isinstance(outcome, AsyncGrant) and await outcome.release() is not None
