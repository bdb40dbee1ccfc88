"""The client for asyncio: every operation is awaited. Its cancellation gives back what it had, or was about to get."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from sluice import _native
from sluice._base import BaseClient, Costs, own, text
from sluice._held import BaseGrant, BaseOps, BaseSlot, BaseTracker, since_1970
from sluice._nesting import Block, inside
from sluice._reply import AnyReply, Headers, pairs, parts
from sluice.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from typing_extensions import Self

    from sluice._values import (
        Admitted,
        Applied,
        Bucket,
        Closed,
        CoolDown,
        Decision,
        Lease,
        Limit,
        NotRedeemed,
        Observed,
        Penalty,
        Refilled,
        Released,
        Replied,
        Reservation,
        RetryIn,
        Seconds,
        Settled,
        Share,
        Shed,
        StaleReport,
        SweepReport,
        Ticket,
    )


class AsyncClient(BaseClient):
    """Shares vendors' quotas through one DynamoDB table. One client serves all event loops of a process.

    >>> client = sluice.AsyncClient.from_env()
    >>> async with client.slot("openai#rpm", "openai#tpm", costs={"openai#tpm": 1_200}) as slot:
    ...     reply = await call_vendor()
    """

    async def acquire(
        self,
        *dimensions: str,
        costs: Costs | None = None,
        share: str | None = None,
        ticket_within: Seconds | None = None,
        with_ticket: Ticket | str | None = None,
    ) -> AsyncGrant | RetryIn:
        """Takes what a call needs from all of `dimensions` or from none; never waits for quota.

        A bucket of tokens needs its cost in `costs`. `share` pays in place of the client's own. With `ticket_within`,
        a refusal may carry a booked start up to so far ahead; `with_ticket` redeems one of a refusal first."""
        asked = self._native.acquire(list(dimensions), own(costs), share, ticket_within, text(with_ticket))
        outcome = await asked
        return AsyncGrant(outcome) if isinstance(outcome, _native.Grant) else outcome

    def slot(
        self, *dimensions: str, costs: Costs | None = None, share: str | None = None, max_wait: Seconds | None = None
    ) -> AsyncSlotContext:
        """A slot, as a context manager: waits for its start, at most `max_wait` (by default
        `SLUICE_DEFAULT_SLOT_TIMEOUT`, 30 s), runs the block, and gives back what it held on every way out."""
        return AsyncSlotContext(self._native, list(dimensions), own(costs), share, max_wait)

    async def redeem(self, ticket: Ticket | str) -> AsyncGrant | RetryIn | NotRedeemed:
        """Redeems a ticket alone: for work that must not run twice."""
        outcome = await self._native.redeem(str(ticket))
        return AsyncGrant(outcome) if isinstance(outcome, _native.Grant) else outcome

    async def admit(
        self,
        dimension: str,
        cost: float = 1,
        *,
        slo: Seconds | None = None,
        backlog: float | None = None,
        share: str | None = None,
    ) -> Admitted | Shed:
        """Asks whether a request is worth beginning: whether it will be done within `slo`. Takes nothing.

        `backlog` is what waits in a queue of the program's own; the line of `share` is judged in place of the
        client's own."""
        return await self._native.admit(dimension, cost, slo, backlog, share)

    async def observe(self, dimension: str, headers: Headers, *, grant: AsyncGrant | None = None) -> Observed:
        """Applies the rate-limit headers of a reply to one bucket. `grant` is that of the call."""
        return await self._native.observe(dimension, pairs(headers), None if grant is None else grant._native)

    async def on_rate_limited(
        self, *dimensions: str, reply: AnyReply, costs: Costs | None = None, share: str | None = None
    ) -> Decision:
        """Lets the fleet react to a refused call for `dimensions`. `reply` is a response, or a `Reply`."""
        status, of, body = parts(reply)
        return await self._native.on_rate_limited(list(dimensions), own(costs), share, (status, of), body)

    async def penalize(self, dimension: str, factor: float) -> Penalty:
        """Lowers the level of a bucket to this share of it, for all callers."""
        return await self._native.penalize(dimension, factor)

    async def cool_down(self, dimension: str, pause: Seconds) -> CoolDown:
        """Lets nothing be granted for a time, for all callers."""
        return await self._native.cool_down(dimension, pause)

    async def end_cool_down(self, dimension: str) -> datetime | None:
        """Ends a cool-down. Returns when it would have ended; `None` if none was in force."""
        return await self._native.end_cool_down(dimension)

    async def refill(self, dimension: str, level: float | None = None) -> Refilled:
        """Sets the level of a rate bucket, by default to its capacity."""
        return await self._native.refill(dimension, level)

    async def limit(self, dimension: str) -> Limit | None:
        """The limit of a bucket; `None` if the table has no such bucket."""
        return await self._native.limit(dimension)

    def reservations(
        self,
        *,
        max_reservations: int = 10_000,
        max_reservation_age: Seconds = 300.0,
        stale_cleanup_interval: Seconds = 30.0,
    ) -> AsyncReservationTracker:
        """A tracker for grants of calls whose two ends do not share a scope, such as streams."""
        return AsyncReservationTracker(
            self._native.reservations(max_reservations, max_reservation_age, stale_cleanup_interval)
        )

    @property
    def ops(self) -> AsyncOps:
        """What operators do with the table: declare limits, list, sweep."""
        return AsyncOps(self._native.ops())

    async def finish_healing(self) -> None:
        """Waits for the search for slots of crashed holders that a refusal began."""
        await self._native.finish_healing()

    async def close(self, within: Seconds = 10.0) -> Closed:
        """Ends the client: nothing is granted any more, and what is held goes back, in at most `within`."""
        return await self._native.close(within)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncGrant(BaseGrant):
    """Permission to call the vendor. Release it when the call is over, or use it in an `async with` statement. A grant
    that is forgotten gives back its slots; its tokens stay spent."""

    async def release(self) -> Released:
        """Gives back what the call held: slots and lease rows. Tokens stay spent."""
        return await self._native.release()

    async def failed(self) -> Released:
        """Ends a failed call: what its vendor does not count goes back too."""
        return await self._native.failed()

    async def cancel(self) -> None:
        """Gives everything back: the call was not made."""
        await self._native.cancel()

    async def renew(self) -> None:
        """Renews the leases now."""
        await self._native.renew()

    async def settle(self, dimension: str, used: float) -> Settled:
        """Charges what the call really used of `dimension`."""
        return await self._native.settle(dimension, used)

    async def observe(self, dimension: str, headers: Headers) -> Observed:
        """Applies the rate-limit headers of the reply to one bucket."""
        return await self._native.observe(dimension, pairs(headers))

    async def reply(self, reply: AnyReply, *, used: Costs | None = None) -> Replied:
        """Reports the vendor's reply: settles `used`, applies the headers, or lets the fleet react to a refusal."""
        return await self._native.reply(*parts(reply), own(used))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_ended:
            return
        # Of a call that was interrupted, it is not known what the vendor did: its tokens stay spent.
        await (self.failed if isinstance(error, Exception) else self.release)()


class AsyncSlot(BaseSlot):
    """A slot that is under way."""

    async def observe(self, dimension: str, headers: Headers) -> Observed:
        """Applies the rate-limit headers of the reply to one bucket."""
        return await self._native.observe(dimension, pairs(headers))

    async def reply(self, reply: AnyReply, *, used: Costs | None = None) -> Replied:
        """Reports the vendor's reply: applies the headers to every bucket of the slot, or lets the fleet react to a
        refusal, and records what was `used`."""
        return await self._native.reply(*parts(reply), own(used))


class AsyncSlotContext:
    """A slot that is not requested yet."""

    def __init__(
        self,
        client: _native.Client,
        dimensions: list[str],
        costs: dict[str, float] | None,
        share: str | None,
        max_wait: Seconds | None,
    ) -> None:
        self._client = client
        self._asked = (dimensions, costs, share, max_wait)
        self._slots: list[tuple[_native.Slot, Block]] = []

    async def grant(self) -> AsyncGrant:
        """Waits for the start and returns the grant: for a call whose end is elsewhere."""
        return AsyncGrant(await self._client.slot_grant(*self._asked, inside(self._client)))

    async def __aenter__(self) -> AsyncSlot:
        slot = await self._client.slot(*self._asked, inside(self._client))
        self._slots.append((slot, Block(self._client, slot.concurrency_limits)))
        return AsyncSlot(slot)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slot, block = self._slots.pop()
        block.end()
        if error is not None and not isinstance(error, Exception):
            # An interrupt: the vendor may have worked. It is not waited for.
            slot.abandon()
        elif error is None:
            await slot.end(False)
        else:
            # The block's own error counts, also if the client was closed meanwhile.
            with suppress(LimitError):
                await slot.end(True)


class AsyncReservationTracker(BaseTracker):
    """Holds grants from the start of a call to its end, by request and bucket, in this process alone. A grant that
    nobody takes within `max_reservation_age` is stale: the background task, or a store that finds no room, releases
    it."""

    async def start(self) -> None:
        """Starts the background task; does nothing if it runs."""
        self._native.start()

    async def stop(self) -> None:
        """Ends the background task, and waits for its releases under way."""
        await self._native.stop()

    async def store(self, request_id: str, bucket_id: str, grant: AsyncGrant) -> str:
        """Stores a grant, and returns the id of its reservation. After an error, the caller still holds the grant."""
        return self._native.store(request_id, bucket_id, grant._native)

    async def get(self, request_id: str, bucket_id: str) -> Reservation | None:
        """What is known of a grant, which stays."""
        return self._native.get(request_id, bucket_id)

    async def get_and_clear(
        self, request_id: str, bucket_id: str | None = None
    ) -> tuple[Reservation, AsyncGrant] | None:
        """Takes a grant out, for the end of its call; the oldest of the request, if no bucket is named. If several
        callers take it at once, one gets it."""
        taken = self._native.take(request_id, bucket_id)
        return None if taken is None else (taken[0], AsyncGrant(taken[1]))

    async def clear_all_for_request(self, request_id: str) -> list[tuple[Reservation, AsyncGrant]]:
        """Takes out all grants of a request, oldest first: for a request that failed."""
        return [(known, AsyncGrant(grant)) for known, grant in self._native.take_request(request_id)]

    async def get_and_clear_stale(
        self, cutoff_time: float | datetime | None = None
    ) -> list[tuple[Reservation, AsyncGrant]]:
        """Takes out all grants that were stored before `cutoff_time` (seconds since 1970, or a `datetime`), oldest
        first; without it, those older than `max_reservation_age`."""
        return [(known, AsyncGrant(grant)) for known, grant in self._native.take_stale(since_1970(cutoff_time))]

    async def release_stale(self) -> StaleReport:
        """Takes out all stale grants and releases them."""
        return await self._native.release_stale()


class AsyncOps(BaseOps):
    """What operators do with a table; for tests and scripts."""

    async def apply_limit(
        self, dimension: str, limit: Limit, *, shares: Mapping[str, float | Share] | None = None
    ) -> Applied:
        """Gives a bucket this limit: creates it, full, or changes the limit and keeps the level. With `shares`, it has
        these and no others; a share is its part, or a `Share`. Without, those that it has stay."""
        return await self._native.apply_limit(dimension, limit, None if shares is None else dict(shares))

    async def bucket(self, dimension: str) -> Bucket | None:
        return await self._native.bucket(dimension)

    async def buckets(self) -> list[Bucket]:
        """Every bucket that can be read. A scan: for people and tests."""
        return await self._native.buckets()

    async def remove_bucket(self, dimension: str) -> bool:
        """Removes a bucket; false if there was none."""
        return await self._native.remove_bucket(dimension)

    async def leases(self) -> list[Lease]:
        """Every lease. A scan: for people and tests."""
        return await self._native.leases()

    async def sweep(self, *, budget: Seconds | None = None) -> SweepReport:
        """Gives back what crashed callers held. Nothing new begins after `budget`."""
        return await self._native.sweep(budget)
