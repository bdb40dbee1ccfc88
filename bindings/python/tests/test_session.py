"""A session of boto3 that a program has: its credentials and its Region are those of the requests."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
import pytest

import sluice

from conftest import Declare, in_child


@dataclass(frozen=True)
class Keys:
    access_key: str | None
    secret_key: str | None
    token: str | None = None


class Session:
    """What a client uses of a session of boto3."""

    def __init__(self, keys: Keys | None, region_name: str | None = None) -> None:
        self.keys = keys
        self.region_name = region_name
        self.threads: list[str] = []
        self.takes = 0.0

    def get_credentials(self) -> Session | None:
        return None if self.keys is None else self

    def get_frozen_credentials(self) -> Keys:
        self.threads.append(threading.current_thread().name)
        time.sleep(self.takes)
        assert self.keys is not None
        return self.keys


class Watched(ThreadingHTTPServer):
    """A DynamoDB that notes who asks it: it passes requests on to the sandbox."""

    daemon_threads = True

    def __init__(self, sandbox: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sandbox = sandbox
        self.seen: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Watched

    def do_POST(self) -> None:
        found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", self.headers["Authorization"])
        assert found is not None
        self.server.seen.append((found[1], found[2], self.headers["X-Amz-Security-Token"]))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        passed = urllib.request.Request(self.server.sandbox, body, dict(self.headers))
        try:
            reply = urllib.request.urlopen(passed)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            answer = reply.read()
            self.send_response(reply.status)
            self.send_header("Content-Length", str(len(answer)))
            for name in ("Content-Type", "x-amzn-RequestId", "x-amz-crc32"):
                if name in reply.headers:
                    self.send_header(name, reply.headers[name])
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def watched(endpoint: str) -> Iterator[Watched]:
    with Watched(endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


KEYS = Keys("AKIDSESSION", "secret", "token")


def test_credentials_and_region_of_a_session_sign_the_requests(watched: Watched, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100))
    session = Session(KEYS, "eu-west-3")
    with sluice.Client.from_env(session=session, endpoint=watched.url) as client:
        assert session.threads == [], "a client is made without a request"
        for _ in range(3):
            assert isinstance(client.acquire(rpm), sluice.Grant)
    assert set(watched.seen) == {("AKIDSESSION", "eu-west-3", "token")}
    assert len(session.threads) == 1, "an answer is used for five minutes"
    assert session.threads[0] not in {threading.main_thread().name, "sluice-courier"}

    watched.seen.clear()
    session = Session(Keys("AKIDLASTING", "secret"), "eu-west-3")
    with sluice.Client.from_env(session=session, region="eu-north-1", endpoint=watched.url) as client:
        client.acquire(rpm)
    assert watched.seen[0] == ("AKIDLASTING", "eu-north-1", None)


def _of_boto3() -> Any:
    return boto3.Session("AKIDBOTO", "secret", "token", region_name="eu-west-3")


def _of_botocore() -> Any:
    session = botocore.session.get_session()
    session.set_credentials("AKIDBOTO", "secret", "token")
    session.set_config_variable("region", "eu-west-3")
    return session


@pytest.mark.parametrize("session", [_of_boto3, _of_botocore])
def test_sessions_of_boto3_and_botocore_themselves_are_handed_over(
    watched: Watched, declare: Declare, session: Callable[[], Any]
) -> None:
    rpm = declare(sluice.Limit.requests(100))
    with sluice.Client.from_env(session=session(), endpoint=watched.url) as client:
        assert isinstance(client.acquire(rpm), sluice.Grant)
    assert set(watched.seen) == {("AKIDBOTO", "eu-west-3", "token")}


async def test_a_session_that_waits_lets_the_event_loop_go_on(watched: Watched, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100))
    session = Session(KEYS)
    session.takes = 0.5
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    async with sluice.AsyncClient.from_env(session=session, endpoint=watched.url) as client:
        assert isinstance(await client.acquire(rpm), sluice.AsyncGrant)
    ticking.cancel()
    assert watched.seen[0] == ("AKIDSESSION", "eu-central-1", "token")
    assert ticks > 20


def test_a_session_of_botocore_names_its_region_otherwise(watched: Watched, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100))

    class OfBotocore:
        def get_credentials(self) -> Session:
            return Session(KEYS)

        def get_config_variable(self, name: str) -> str | None:
            return {"region": "eu-west-3"}.get(name)

    with sluice.Client.from_env(session=OfBotocore(), endpoint=watched.url) as client:
        client.acquire(rpm)
    assert watched.seen[0] == ("AKIDSESSION", "eu-west-3", "token")


def test_what_a_session_lacks_is_said(watched: Watched) -> None:
    class Failing(Session):
        def get_frozen_credentials(self) -> Keys:
            raise OSError("the login has expired: run aws sso login")

    class OfAiobotocore(Session):
        async def get_credentials(self) -> Session:  # type: ignore[override]
            return self

    for session, text in [
        (Session(None), "the session has no credentials"),
        (Failing(KEYS), "the login has expired: run aws sso login"),
        (OfAiobotocore(KEYS), "for asyncio"),
        (Session(Keys("AKID", None)), "no access_key or no secret_key"),
    ]:
        with (
            sluice.Client.from_env(session=session, endpoint=watched.url) as client,
            pytest.raises(sluice.CredentialsError, match=text),
        ):
            client.acquire("any#rpm")
    with pytest.raises(TypeError, match="pass a session of boto3"):
        sluice.Client(table="t", session="default")  # type: ignore[arg-type]


def test_a_child_of_a_fork_asks_the_session_itself(watched: Watched, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100))
    session = Session(KEYS, "eu-west-3")
    with sluice.Client.from_env(session=session, endpoint=watched.url) as client:
        client.acquire(rpm)

        def run() -> None:
            session.keys = Keys("AKIDCHILD", "secret")
            assert isinstance(client.acquire(rpm), sluice.Grant)
            assert len(session.threads) == 2

        assert in_child(run) == 0
        assert "AKIDCHILD" in {key for key, _, _ in watched.seen}
        client.acquire(rpm)
        assert len(session.threads) == 1


ENDING = """
import sys, time, threading
import sluice

class Slow:
    region_name = None
    def get_credentials(self):
        time.sleep(float(sys.argv[1]))
        return None

client = sluice.Client.from_env(session=Slow())
threading.Thread(target=lambda: client.acquire("any#rpm"), daemon=True).start()
time.sleep(0.3)
"""


@pytest.mark.parametrize("takes", ["0.1", "3"])
def test_a_process_ends_while_a_session_is_asked(takes: str) -> None:
    program = [sys.executable, "-c", ENDING, takes]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
