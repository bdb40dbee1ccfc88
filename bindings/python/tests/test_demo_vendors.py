"""The packages `openai` and `anthropic`, with their own retries, against the vendors of the demo, which judge by their
own books. One line differs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import sluice
from sluice.testkit import Sandbox, sandbox

from conftest import ROOT, _command, eventually, level

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import anthropic
    import openai

    import sluice.httpx2

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="they need httpx2, which needs Python 3.11")

CALLS = 80
DAY = 86_400.0
ASKED: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def vendors(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    with sandbox(_command(), vendors=True) as served:
        for name, value in served.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        yield served


def books(vendors: Sandbox, vendor: str) -> dict[str, int]:
    url = vendors.variables["OPENAI_BASE_URL"].replace("/openai/v1", "/books")
    with urllib.request.urlopen(url, timeout=10) as answer:
        return dict(json.load(answer)[vendor])


def blocking(package: str, limited: bool) -> tuple[Any, Callable[[], object], Callable[[], object]]:
    """A client, a call, and a call whose answer is a stream."""
    http: Any = {}
    if package == "openai":
        if limited:
            transport = sluice.httpx2.Transport("openai", ask_usage=True)
            http["http_client"] = openai.DefaultHttpx2Client(transport=transport)
        of = openai.OpenAI(**http)
        return (
            of,
            lambda: of.chat.completions.create(**ASKED),
            lambda: list(of.chat.completions.create(**ASKED, stream=True)),
        )
    if limited:
        http["http_client"] = anthropic.DefaultHttpxClient(transport=sluice.httpx2.Transport("anthropic"))
    by = anthropic.Anthropic(**http)
    return by, lambda: by.messages.create(**ASKED), lambda: list(by.messages.create(**ASKED, stream=True))


def awaited(package: str) -> tuple[Any, Callable[[], Awaitable[object]], Callable[[], Awaitable[Any]]]:
    """The same for asyncio, limited; the stream is not read yet."""
    if package == "openai":
        transport = sluice.httpx2.AsyncTransport("openai", ask_usage=True)
        of = openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpx2Client(transport=transport))
        return of, lambda: of.chat.completions.create(**ASKED), lambda: of.chat.completions.create(**ASKED, stream=True)
    transport = sluice.httpx2.AsyncTransport("anthropic")
    by = anthropic.AsyncAnthropic(http_client=anthropic.DefaultAsyncHttpxClient(transport=transport))
    return by, lambda: by.messages.create(**ASKED), lambda: by.messages.create(**ASKED, stream=True)


def count_tokens(package: str) -> Callable[[], int]:
    """Declares a bucket to which nothing flows back, and returns what was taken from it."""
    client = sluice.Client.from_env()
    dimension, most = f"{package}#tpd", 10_000_000
    client.ops.apply_limit(dimension, sluice.Limit.tokens(most, per=100_000 * DAY))
    # Not full: a full bucket takes back no more than has room.
    client.acquire(dimension, costs={dimension: most / 2})
    return lambda: round(most / 2 - level(client, dimension))


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_threads_without_the_line_are_refused_often_and_with_it_never(vendors: Sandbox, package: str) -> None:
    def run(limited: bool) -> int:
        of, call, stream = blocking(package, limited)
        failed = 0
        with of, ThreadPoolExecutor(CALLS) as threads:
            for done in [threads.submit(stream if n % 2 else call) for n in range(CALLS)]:
                failed += done.exception() is not None
        return failed

    taken = count_tokens(package)
    assert run(limited=True) == 0
    seen = books(vendors, package)
    assert (seen["taken"], seen["refused"]) == (CALLS, 0)
    assert eventually(lambda: taken() == seen["tokens"]), (taken(), seen)
    run(limited=False)
    assert books(vendors, package)["refused"] > 20


@pytest.mark.parametrize("package", ["openai", "anthropic"])
async def test_tasks_are_never_refused_and_pay_what_the_vendor_counts(vendors: Sandbox, package: str) -> None:
    taken = count_tokens(package)
    of, call, stream = awaited(package)

    async def read() -> None:
        async for _ in await stream():
            pass

    async with of:
        await asyncio.gather(*(read() if n % 2 else call() for n in range(CALLS)))
    seen = books(vendors, package)
    assert (seen["taken"], seen["refused"]) == (CALLS, 0)
    assert eventually(lambda: taken() == seen["tokens"]), (taken(), seen)


PROGRAM = """\
import json
from concurrent.futures import ThreadPoolExecutor

import {package}

client = {client}()


def ask(_):
    try:
        return client.{api}.create(**{asked}).{text}.split()[0]
    except {package}.RateLimitError as refused:
        return refused.status_code


with ThreadPoolExecutor({calls}) as threads:
    print(json.dumps(list(threads.map(ask, range({calls})))))
"""
"""It makes many calls at once, and prints the first word of each answer, or the status of its refusal."""


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_a_program_differs_in_one_line_and_an_import_if_it_is_limited_and_is_never_refused(
    vendors: Sandbox, package: str
) -> None:
    if package == "openai":
        client, http_client = "openai.OpenAI", "openai.DefaultHttpx2Client"
        api, text = "chat.completions", "choices[0].message.content"
    else:
        client, http_client = "anthropic.Anthropic", "anthropic.DefaultHttpxClient"
        api, text = "messages", "content[0].text"
    without = PROGRAM.format(package=package, client=client, api=api, text=text, asked=ASKED, calls=CALLS)
    line = f'{client}(http_client={http_client}(transport=sluice.httpx2.Transport("{package}")))'
    limited = "import sluice.httpx2\n" + without.replace(f"{client}()", line)
    pairs = zip(without.splitlines(), limited.splitlines()[1:], strict=True)
    assert [after for before, after in pairs if before != after] == [f"client = {line}"]
    assert line.replace(f"{package}.", "") in (ROOT / "docs" / "python.md").read_text()

    def answers(program: str) -> list[str | int]:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=True)
        return list(json.loads(done.stdout))

    assert answers(limited) == ["word"] * CALLS
    seen = books(vendors, package)
    assert (seen["taken"], seen["refused"]) == (CALLS, 0)
    # Without the line the program prints the same, but for its refusals.
    assert {*answers(without), "word", 429} == {"word", 429}
    assert books(vendors, package)["refused"] > 5


@pytest.mark.parametrize("package", ["openai", "anthropic"])
async def test_streams_that_are_left_give_their_slots_back(vendors: Sandbox, package: str) -> None:
    with sluice.Client.from_env() as client:
        client.ops.apply_limit(f"{package}#concurrent", sluice.Limit.concurrent(20))
    of, _, stream = awaited(package)

    async def leave() -> None:
        async with await stream() as events:
            await anext(aiter(events))

    async with of:
        # More than there are slots.
        await asyncio.gather(*(leave() for _ in range(30)))
        with sluice.Client.from_env() as client:
            assert eventually(lambda: level(client, f"{package}#concurrent") == 20)
    # Of OpenAI's calls at once the vendor keeps no book.
    assert eventually(lambda: not books(vendors, package).get("under_way"))
    seen = books(vendors, package)
    assert (seen["taken"], seen["refused"]) == (30, 0)
