"""A rate limiter for the models and embeddings of LlamaIndex:

>>> model = OpenAI(model="gpt-4o", rate_limiter=sluice.llama_index.RateLimiter("openai#rpm"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.rate_limiter import BaseRateLimiter

from sluice._async import AsyncClient
from sluice._sync import Client

if TYPE_CHECKING:
    from sluice._base import BaseClient, Costs
    from sluice._values import Seconds

__all__ = ["RateLimiter"]


class RateLimiter(BaseRateLimiter):
    """Lets a model call when its rate buckets allow it. LlamaIndex tells neither when a call ends nor what it used:
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

    def acquire(self, num_tokens: int = 0) -> None:
        """Waits for the start of a call. LlamaIndex estimates no `num_tokens`: `costs` counts."""
        slot = self._client.slot(*self._dimensions, costs=self._costs, share=self._share, max_wait=self._max_wait)
        slot.grant().release()

    async def async_acquire(self, num_tokens: int = 0) -> None:
        slot = self._async_client.slot(*self._dimensions, costs=self._costs, share=self._share, max_wait=self._max_wait)
        await (await slot.grant()).release()
