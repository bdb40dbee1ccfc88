"""What a call will most likely use."""

from __future__ import annotations

from sluice import _native


class TokenEstimator:
    """Estimates what a call will most likely use, from what calls of its kind used. For threads and tasks alike."""

    def __init__(self, *, quantile: float = 0.95, half_life_calls: int = 200, max_keys: int = 256) -> None:
        """`quantile` is the share of calls that an estimate covers; a call weighs half after `half_life_calls` of its
        kind; the least recently used of more than `max_keys` kinds are forgotten."""
        self._native = _native.TokenEstimator(quantile, half_life_calls, max_keys)

    def observe(self, key: str, used: int) -> None:
        """Reports what a call of the kind `key` used."""
        self._native.observe(key, used)

    def estimate(self, key: str) -> int | None:
        """The estimate; `None` while too few calls are known."""
        return self._native.estimate(key)

    def estimate_or(self, key: str, max_tokens: int) -> int:
        """The estimate, or `max_tokens` if that is less or too few calls are known."""
        return self._native.estimate_or(key, max_tokens)

    @property
    def key_count(self) -> int:
        """Number of kinds that are known."""
        return self._native.key_count
