"""What operations return. Times are seconds, amounts are tokens or slots, instants are UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

Seconds: TypeAlias = float | timedelta
"""A time: a number of seconds, or a `timedelta`."""

Released: TypeAlias = Literal["given_back", "already_capped", "lease_gone"]
"""How a release ended. Each outcome is fine for the caller. `already_capped`: there was no room for all of it.
`lease_gone`: the lease had ended, and a sweep had given the slot back."""

Applied: TypeAlias = Literal["created", "unchanged", "repaired", "changed"]
"""What applying a limit did. `repaired`: the anchor was in the future, where a wrong clock had put it."""

Basis: TypeAlias = Literal["table", "local_share", "unchecked", "shadow"]
"""What a grant rests on: the table, or a decision of this process while DynamoDB is out or in shadow mode."""

LimitType: TypeAlias = Literal["requests", "tokens", "concurrent"]
"""What a bucket counts."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A booked start, for work that waits in a queue. `str(ticket)` is its text, to be sent with the work."""

    text: str
    start_at: datetime
    use_by: datetime
    dimensions: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class RetryIn:
    """A refusal: how long to wait, for which dimension, and why."""

    wait: float
    """Seconds from now."""
    dimension: str
    """The dimension that causes the longest wait."""
    reason: Literal["exhausted", "no_free_slot", "cooling_down", "contended"]
    delay_seconds: int
    """The value for SQS's `DelaySeconds`: one second more than the wait, at most 900."""
    ticket: Ticket | None
    """The ticket of a booked start, if one was asked for."""
    no_ticket: str | None
    """Why there is no ticket, if one was asked for."""
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class NotRedeemed:
    """A ticket under which nothing was granted."""

    reason: Literal["spent", "lapsed"]
    """`spent`: it was redeemed before. `lapsed`: its tokens overflowed, or the limits changed; acquire again."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How a settlement ended."""

    outcome: Literal["as_taken", "returned", "owed", "capped"]
    amount: float
    """What went back (`returned`), or was taken in addition (`owed`, `capped`)."""
    not_charged: float
    """Of `capped`: what the call used beyond that."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a call after its reply."""

    action: Literal["retry_inline", "requeue", "give_up", "not_refused"]
    """`retry_inline`: sleep for the wait, acquire, call again. `requeue`: put the work back into its queue.
    `give_up`: no wait helps. `not_refused`: the reply is not a refusal."""
    wait: float | None
    delay_seconds: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a vendor's headers said about one bucket, and what they changed."""

    level: Literal["not_said", "no_grant", "agrees", "lowered", "stale"]
    lowered_by: float | None
    limit: Literal["not_said", "not_lower", "lower", "adopted"]
    reported_limit: float | None
    unreadable: int
    """Number of headers that could not be read."""


@dataclass(frozen=True, slots=True)
class Replied:
    """What a reported reply meant, and what it changed."""

    decision: Decision
    observed: dict[str, Observed]
    """By dimension; empty after a refusal."""


@dataclass(frozen=True, slots=True)
class Penalty:
    applied: bool
    """False if the bucket had nothing to take."""
    level: float


@dataclass(frozen=True, slots=True)
class CoolDown:
    until: datetime
    was_set: bool
    """False if the bucket was blocked for longer already."""


@dataclass(frozen=True, slots=True)
class Refilled:
    before: float
    level: float


@dataclass(frozen=True, slots=True)
class Shed:
    """A request that should not begin."""

    wait: float
    retry_after: float
    """Seconds, for `Retry-After`; spread, so that requests that are shed together do not return together."""
    reason: Literal["over_slo", "upstream_down"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may begin. It acquires as usual: nothing was taken."""

    wait: float | None
    would_shed: Shed | None
    """In shadow mode, the refusal that enforcing would have returned."""


@dataclass(frozen=True, slots=True)
class Closed:
    """How a client ended."""

    cut_off: bool
    """Whether calls still ran, or grants were held, when their time was over."""
    left: list[tuple[str, str]]
    """Dimension and lease of what could not be given back in time. It comes back when its lease ends."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a bucket. Make one with `requests`, `tokens` or `concurrent`."""

    type: LimitType
    capacity: float
    """The largest burst, or the number of slots."""
    per: Seconds | None
    """The time in which `refill` flows back."""
    refill: float | None
    """What flows back in this time; by default the capacity."""
    cost_per_call: float | None
    """What a call takes if it names no cost; by default 1. A bucket of tokens has no such cost by default."""

    @classmethod
    def requests(cls, capacity: float, *, per: Seconds = 60.0, refill: float | None = None) -> Limit:
        """So many requests in a time, by default a minute."""
        return cls("requests", capacity, per, refill, None)

    @classmethod
    def tokens(
        cls,
        capacity: float,
        *,
        per: Seconds = 60.0,
        refill: float | None = None,
        cost_per_call: float | None = None,
    ) -> Limit:
        """So many tokens in a time, by default a minute."""
        return cls("tokens", capacity, per, refill, cost_per_call)

    @classmethod
    def concurrent(cls, capacity: float, *, cost_per_call: float | None = None) -> Limit:
        """So many calls at the same time."""
        return cls("concurrent", capacity, None, None, cost_per_call)


@dataclass(frozen=True, slots=True)
class Share:
    """What a product is guaranteed of a bucket."""

    part: float
    """The part of the bucket's capacity and refill rate, above 0 and below 1."""
    floor: float | None = None
    """What others leave there when they borrow, in tokens or slots; by default a quarter, and at least one call."""
    background: bool = False
    """For work that can wait: the last to borrow."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket as it was read."""

    dimension: str
    limit: Limit
    level: float
    """Tokens or free slots; below zero if starts are booked ahead."""
    cooling_down_until: datetime | None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was listed. Of one that cannot be read, the key alone is known."""

    key: str
    dimension: str | None
    ends: datetime | None
    caller: str | None
    is_inline: bool


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did."""

    rows_scanned: int
    expired: int
    restored: int
    """Leases given back."""
    restored_slots: int
    unparsable: int
    """Leases that cannot be read."""
    unreadable_buckets: int
    """Buckets that cannot be read: all of their callers get errors."""
    left: int
    """Leases left to the next sweep."""
    requests: int
    duration: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a tracker knows of a grant."""

    reservation_id: str
    request_id: str
    bucket_id: str
    estimated_tokens: float | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StaleReport:
    """How the releases of stale grants ended."""

    given_back: int
    late: int
    failed: int
