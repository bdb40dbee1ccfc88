"""What the clients for threads and for asyncio share."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

from sluice import _native

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from sluice._values import Seconds, Ticket

Costs: TypeAlias = Mapping[str, float]
"""Tokens or slots by dimension."""


class FrozenCredentials(Protocol):
    """Keys of AWS, as botocore has them."""

    @property
    def access_key(self) -> str | None: ...
    @property
    def secret_key(self) -> str | None: ...
    @property
    def token(self) -> str | None: ...


class SessionCredentials(Protocol):
    """Credentials that are renewed when they are asked for, as botocore has them."""

    def get_frozen_credentials(self) -> FrozenCredentials: ...


class Session(Protocol):
    """A session of boto3 or botocore, or what has the same method. Its Region is its `region_name`."""

    def get_credentials(self) -> SessionCredentials | None: ...


class Settings(TypedDict, total=False):
    """Settings in code. The default of each is that of its variable: `docs/settings.md`."""

    region: str
    session: Session
    """A session that the program has: its credentials, and its Region unless `region` is given."""
    endpoint: str
    lease_ttl: Seconds
    max_retries: int
    attempt_timeout: Seconds
    answer_within: Seconds
    max_wait: Seconds
    renew_leases: bool
    mode: Literal["enforce", "shadow"]
    leases: Literal["concurrent", "all", "inline"]
    on_unavailable: str
    """`error`, `allow`, `share`, or `share:FACTOR`."""
    admission: Literal["off", "shadow", "enforce"]
    staleness: Seconds
    self_heal: bool
    heal_budget: int
    cap_debt: bool
    max_buckets: int
    longest_cool_down: Seconds
    caller: str
    share: str
    warn_at: float | None
    note_use: bool
    prefetch: Sequence[str]
    vendors: Sequence[str]


class BaseClient:
    """A client of one table, for all threads of a process. A child of a fork makes a connection of its own."""

    def __init__(self, *, table: str, **settings: Unpack[Settings]) -> None:
        self._native = self._connect(table, settings)

    @classmethod
    def from_env(cls, **settings: Unpack[Settings]) -> Self:
        """A client with the settings of the `SLUICE_*` variables and, without a `session`, the AWS credentials of the
        environment. Makes no request. What `settings` names wins over its variable."""
        client = cls.__new__(cls)
        client._native = client._connect(None, settings)
        return client

    @classmethod
    def sharing(cls, other: BaseClient) -> Self:
        """A client for the other kind of program over the same connection: what one closes is closed."""
        client = cls.__new__(cls)
        client._native = other._native
        _open_clients.add(client)
        return client

    def _connect(self, table: str | None, settings: Settings) -> _native.Client:
        given: dict[str, Any] = {
            # A sequence in the eyes of the SDK, which texts are not.
            name: list(value) if name in ("prefetch", "vendors") else value  # type: ignore[call-overload]
            for name, value in settings.items()
            if value is not None or name == "warn_at"
        }
        given.setdefault("caller", _caller())
        if given["caller"] is None:
            del given["caller"]
        native = _native.Client(table, given)
        _open_clients.add(self)
        return native

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._native.table

    @property
    def inline_retry_threshold(self) -> float:
        """The longest wait, in seconds, that is worth sleeping through (`SLUICE_INLINE_RETRY_THRESHOLD`)."""
        return self._native.inline_retry_threshold

    @property
    def longest_acquire(self) -> float:
        """The longest time, in seconds, until `acquire` has its answer, whatever hangs."""
        return self._native.longest_acquire

    def now(self) -> datetime:
        """The time by which this client decides: this machine's clock, corrected by DynamoDB's replies."""
        return self._native.now()


def _caller() -> str | None:
    """The name that leases state as their holder: this program's, since the interpreter is every program's."""
    if os.environ.get("SLUICE_CALLER") or os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        return None
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0] if sys.argv else ""
    return name if name and name != "-c" else None


def own(costs: Costs | None) -> dict[str, float] | None:
    """The costs as a dictionary."""
    return None if costs is None else dict(costs)


def text(ticket: Ticket | str | None) -> str | None:
    return None if ticket is None else str(ticket)


_open_clients: weakref.WeakSet[BaseClient] = weakref.WeakSet()

_LONGEST_EXIT = 2.0
"""How long the end of the process waits for DynamoDB, in seconds, for each client that was not closed."""


@atexit.register
def _at_exit() -> None:
    # What is still held goes back now, rather than when its leases end.
    for client in list(_open_clients):
        # After an error, leases end later.
        with contextlib.suppress(Exception):
            client._native.close(_LONGEST_EXIT).wait()
    _native.stop_asking()
    _native.stop_courier()
