"""What the limiter did not do, and why. The texts are those of the Rust SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice._values import RetryIn

__all__ = [
    "AccessDeniedError",
    "AcquireError",
    "ClosedError",
    "ConfigError",
    "ContendedError",
    "CorruptRowError",
    "CredentialsError",
    "EndedError",
    "Error",
    "ForkedError",
    "LeaseGoneError",
    "LimitError",
    "LimitsError",
    "NeverSatisfiableError",
    "NoTableError",
    "PenalizeError",
    "RedeemError",
    "RefillError",
    "RefusedError",
    "RejectedError",
    "ReleaseError",
    "RequestError",
    "ReservationCapacityError",
    "ReservationError",
    "ReservationTakenError",
    "SettleError",
    "StoreError",
    "SweepError",
    "TimedOutError",
    "TooLargeForInlineError",
    "UnavailableError",
    "UnknownDimensionError",
]


class Error(Exception):
    """Every error of this package."""


class ConfigError(Error, ValueError):
    """A setting that cannot be used."""


class LimitError(Error):
    """The limiter could not do what was asked. A refusal of `acquire` is no error: it is a `RetryIn`."""

    @property
    def delay_seconds(self) -> int:
        """In how many seconds another try is worthwhile: for `Retry-After`, or for SQS's `DelaySeconds`."""
        return 1


class RefusedError(LimitError):
    """No start was available within the wait of a slot; the call was not made."""

    def __init__(self, message: str, *, retry: RetryIn) -> None:
        super().__init__(message)
        self.retry = retry

    def __reduce__(self) -> tuple[object, ...]:
        return (_refused, (self.args[0], self.retry))

    @property
    def delay_seconds(self) -> int:
        return self.retry.delay_seconds


def _refused(message: str, retry: RetryIn) -> RefusedError:
    return RefusedError(message, retry=retry)


class TimedOutError(LimitError, TimeoutError):
    """The start, or DynamoDB's answer, came too late; the call was not made."""


class ClosedError(LimitError):
    """The client is closed, or was closed while the call was running."""


class ForkedError(LimitError):
    """The object holds what a parent of this process was granted, and belongs to the parent."""


class EndedError(LimitError):
    """The grant or the slot has ended before."""


class AcquireError(LimitError):
    """Neither a grant nor a refusal; nothing was taken."""


class RequestError(AcquireError, ValueError):
    """The request is invalid, whatever the table contains."""


class UnknownDimensionError(AcquireError):
    """The table has no bucket of this name."""


class NeverSatisfiableError(AcquireError):
    """The call costs more than the capacity of the bucket."""


class TooLargeForInlineError(AcquireError):
    """The bucket has more slots than its row has room for leases."""


class CorruptRowError(AcquireError):
    """The row of the bucket cannot be read."""


class StoreError(AcquireError):
    """The table did not answer, or rejected the request."""


class NoTableError(StoreError):
    """There is no such table in this Region, or at this endpoint."""


class CredentialsError(StoreError):
    """No credentials were found, or AWS did not accept them."""


class AccessDeniedError(StoreError):
    """The role lacks the right to an operation."""


class UnavailableError(StoreError):
    """DynamoDB cannot be reached, does not answer in time, or fails."""


class ContendedError(StoreError):
    """Other writers were faster in every try. Nothing was applied."""


class RejectedError(StoreError):
    """DynamoDB rejected the request itself."""


class SettleError(LimitError):
    """What the call used could not be settled."""


class ReleaseError(LimitError):
    """A release could not be confirmed. The slot comes back at the latest when its lease ends."""


class LeaseGoneError(LimitError):
    """The lease ended, and its slot was given back: someone else may hold it."""


class RedeemError(LimitError):
    """The ticket cannot be read or judged; acquire again without it."""


class PenalizeError(LimitError):
    """A penalty could not be applied."""


class RefillError(LimitError):
    """A level could not be set."""


class LimitsError(Error):
    """A limit could not be applied."""


class SweepError(Error):
    """A sweep ended early: the table did not answer."""


class ReservationError(Error):
    """A grant was not stored. The caller still holds it."""


class ReservationCapacityError(ReservationError):
    """The tracker is full, and none of its grants is stale."""


class ReservationTakenError(ReservationError):
    """The tracker holds a grant of the same request and bucket."""
