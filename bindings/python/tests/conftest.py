"""A DynamoDB for the tests: the embedded engine, which `sluice sandbox` serves."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.testkit import sandbox

TABLE = "ontopix-vendor-buckets-sandbox"
ROOT = Path(__file__).parents[3]


def _command() -> str:
    """The command `sluice`, with the lab. A missing one fails: no test is skipped in silence."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = os.environ.get("SLUICE_COMMAND") or shutil.which("sluice", path=str(target / "debug"))
    assert found, f"there is no {target}/debug/sluice: `cargo build -p sluice-cli` first, or name one in SLUICE_COMMAND"
    return found


@pytest.fixture(scope="session")
def served() -> Iterator[dict[str, str]]:
    with sandbox(_command()) as served:
        yield served.variables


@pytest.fixture
def endpoint(served: dict[str, str]) -> str:
    return served["SLUICE_ENDPOINT_URL"]


@pytest.fixture(autouse=True)
def environment(served: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What `sluice sandbox` prints to export. Children inherit it."""
    for name in [name for name in os.environ if name.startswith(("SLUICE_", "AWS_")) and name != "SLUICE_COMMAND"]:
        monkeypatch.delenv(name)
    for name, value in served.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def client(environment: None) -> Iterator[sluice.Client]:
    client = sluice.Client.from_env()
    yield client
    client.close(2)


@pytest.fixture
async def aclient(environment: None) -> Any:
    client = sluice.AsyncClient.from_env()
    yield client
    await client.close(2)


_numbers = itertools.count(1)

Declare = Callable[..., str]


@pytest.fixture
def declare(client: sluice.Client) -> Declare:
    """Makes a bucket that no other test uses, and returns its dimension."""

    def declare(limit: sluice.Limit, metric: str = "rpm", vendor: str | None = None) -> str:
        dimension = f"{vendor or f'test{os.getpid()}-{next(_numbers)}'}#{metric}"
        assert client.ops.apply_limit(dimension, limit) == "created"
        return dimension

    return declare


def level(client: sluice.Client, dimension: str) -> float:
    """Tokens or free slots at this moment, as the table has them."""
    bucket = client.ops.bucket(dimension)
    assert bucket is not None
    return bucket.level


def version(dimension: str) -> int:
    """The version of a bucket's row, to which each write adds one."""
    shown = subprocess.run([_command(), "buckets", "show", dimension, "--json"], capture_output=True, check=True)
    return int(json.loads(shown.stdout)["version"])


def used_up_but_for(client: sluice.Client, declare: Declare, share: str) -> str:
    """A bucket of which this share alone has requests left."""
    limit = sluice.Limit.requests(10, per=86_400.0)
    rpm = declare(limit)
    client.ops.apply_limit(rpm, limit, shares={share: sluice.Share(0.5, floor=5)})
    while isinstance(client.acquire(rpm), sluice.Grant):
        pass
    return rpm


def all_free(client: sluice.Client, dimension: str, slots: float, *, swept: bool = False) -> bool:
    """Whether all slots of a bucket come free, and no lease is left; with sweeps, if it is swept."""

    def is_so() -> bool:
        if swept:
            client.ops.sweep()
        left = [lease for lease in client.ops.leases() if lease.dimension == dimension]
        return level(client, dimension) == slots and not left

    return eventually(is_so, 20)


def eventually(is_so: Callable[[], bool], within: float = 5.0) -> bool:
    """Whether something comes true in time. What is given back in the background is waited for."""
    deadline = time.monotonic() + within
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def skip_without_forks() -> None:
    """Skips the test if this build of the module may crash in a fork (`.ci/python`)."""
    if os.environ.get("TESTS_WITHOUT_FORKS"):
        pytest.skip("tests of forks need the wheels")


def in_child(run: Callable[[], None]) -> int:
    """Runs something in a fork, and returns its exit code; 99 if it does not end."""
    skip_without_forks()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)
    done: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            done.append(os.waitstatus_to_exitcode(status))
        return bool(done)

    if not eventually(has_ended, 20):
        os.kill(child, 9)
        os.waitpid(child, 0)
        return 99
    return done[0]
