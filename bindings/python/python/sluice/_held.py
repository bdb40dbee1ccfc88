"""What grants, slots and trackers say without a wait, for threads and for asyncio alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice import _native

if TYPE_CHECKING:
    from datetime import datetime

    from sluice._values import Basis, StaleReport


def since_1970(time: float | datetime | None) -> float | None:
    """Seconds since 1970."""
    return time if time is None or isinstance(time, (int, float)) else time.timestamp()


class BaseGrant:
    def __init__(self, native: _native.Grant) -> None:
        self._native = native

    @property
    def costs(self) -> dict[str, float]:
        """What the grant took, by dimension."""
        return self._native.costs

    @property
    def start_at(self) -> datetime:
        """When the call may be made."""
        return self._native.start_at

    @property
    def booked_wait(self) -> float:
        """How many seconds after the grant the call may be made: zero, unless a start was booked."""
        return self._native.booked_wait

    @property
    def lease_ends(self) -> datetime | None:
        """When the first of the grant's leases ends, as last renewed; `None` if it has none."""
        return self._native.lease_ends

    @property
    def is_lease_lost(self) -> bool:
        """Whether a lease ended while the grant was held, so that its slot may be in use twice."""
        return self._native.is_lease_lost

    @property
    def basis(self) -> Basis:
        """What the grant rests on: `table`; `local_share` or `unchecked` in an outage; `shadow` in shadow mode."""
        return self._native.basis

    @property
    def has_ended(self) -> bool:
        return self._native.has_ended


class BaseSlot:
    def __init__(self, native: _native.Slot) -> None:
        self._native = native

    def used(self, dimension: str, used: float) -> None:
        """Records what the call really used of `dimension`; settled when the block ends."""
        self._native.used(dimension, used)

    @property
    def acquiring(self) -> float:
        """How many seconds DynamoDB took to grant the slot."""
        return self._native.acquiring

    @property
    def start_at(self) -> datetime:
        """When the call was allowed to start."""
        return self._native.start_at

    def start_in(self, dimension: str) -> datetime | None:
        """When one rate limit alone allowed the start."""
        return self._native.start_in(dimension)

    @property
    def basis(self) -> Basis:
        """What the slot rests on: `table`; `local_share` or `unchecked` in an outage; `shadow` in shadow mode."""
        return self._native.basis

    @property
    def is_lease_lost(self) -> bool:
        """Whether the lease ended while the block ran, so that the slot may be in use twice."""
        return self._native.is_lease_lost


class BaseTracker:
    def __init__(self, native: _native.Tracker) -> None:
        self._native = native

    def stale_report(self) -> StaleReport:
        """How the releases of stale grants ended, since the tracker was made."""
        return self._native.stale_report()

    def compact_heap(self) -> int:
        """Removes taken grants from the heap of ages, and returns how many. The tracker does so by itself; this frees
        memory sooner."""
        return self._native.compact()

    @property
    def stale_entry_ratio(self) -> float:
        """The share of taken grants in the heap of ages, 0 to 1."""
        return self._native.stale_entry_ratio

    @property
    def reservation_count(self) -> int:
        """Number of grants held."""
        return self._native.reservation_count

    @property
    def request_count(self) -> int:
        """Number of requests for which a grant is held."""
        return self._native.request_count


class BaseOps:
    def __init__(self, native: _native.Ops) -> None:
        self._native = native
