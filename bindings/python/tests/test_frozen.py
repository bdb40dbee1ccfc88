"""A process that is frozen in the middle of its work and thawed later, as by AWS Lambda, goes on and leaks nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import sluice

from conftest import Declare, eventually, level

FUNCTION = """
import sys, time
began = time.perf_counter()
import sluice
client = sluice.{kind}.from_env(lease_ttl=1)
print(f"{{(time.perf_counter() - began) * 1e3:.0f}}", flush=True)
"""

BLOCKING = (
    FUNCTION.format(kind="Client")
    + """
for _ in sys.stdin:
    with client.slot(sys.argv[1], max_wait=10) as slot:
        print("calls", flush=True)
        sys.stdin.readline()
        time.sleep(0.3)
    print("kept" if not slot.is_lease_lost else "lost", flush=True)
client.close()
"""
)

ASYNC = (
    FUNCTION.format(kind="AsyncClient")
    + """
import asyncio

async def main():
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        async with client.slot(sys.argv[1], max_wait=10) as slot:
            print("calls", flush=True)
            await loop.run_in_executor(None, sys.stdin.readline)
            await asyncio.sleep(0.3)
        print("kept" if not slot.is_lease_lost else "lost", flush=True)
    await client.close()

asyncio.run(main())
"""
)


class Line:
    """A way to the engine whose connections can be cut, as they are while a process is frozen."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.removeprefix("http://").split(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, far = self._listener.accept()[0], socket.create_connection(self._to)
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, of: socket.socket, to: socket.socket) -> None:
        with of, suppress(OSError):
            while piece := of.recv(65_536):
                to.sendall(piece)
            to.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.fixture
def line(endpoint: str) -> Iterator[Line]:
    line = Line(endpoint)
    yield line
    line.close()


@pytest.mark.parametrize("program", [BLOCKING, ASYNC], ids=["blocking", "asyncio"])
def test_a_frozen_process_goes_on_and_leaks_nothing(
    client: sluice.Client, declare: Declare, line: Line, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    env = os.environ | {"SLUICE_ENDPOINT_URL": line.url}
    function = subprocess.Popen(
        [sys.executable, "-c", program, slots], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert function.stdin is not None
    assert function.stdout is not None
    told, asks = function.stdout, function.stdin

    def say(text: str) -> None:
        asks.write(f"{text}\n")
        asks.flush()

    def answer() -> str:
        return told.readline().strip()

    def free() -> bool:
        client.ops.sweep()
        return level(client, slots) == 1

    try:
        init_ms = answer()
        assert re.fullmatch(r"\d+", init_ms)

        # In the middle of a call, until its lease has ended and another has the slot.
        say("an invocation")
        assert answer() == "calls"
        function.send_signal(signal.SIGSTOP)
        line.cut()
        assert eventually(free, 20)
        other = client.acquire(slots)
        assert isinstance(other, sluice.Grant)
        function.send_signal(signal.SIGCONT)
        say("the vendor's answer")
        assert answer() == "lost"
        assert level(client, slots) == 0, "what is not its own any more is not given back"
        other.release()

        # Between two calls.
        function.send_signal(signal.SIGSTOP)
        line.cut()
        time.sleep(2)
        function.send_signal(signal.SIGCONT)
        say("an invocation")
        assert answer() == "calls"
        say("the vendor's answer")
        assert answer() == "kept"
        asks.close()
        assert function.wait(15) == 0
    finally:
        function.kill()
        function.wait()
        told.close()
    assert level(client, slots) == 1
    assert [lease for lease in client.ops.leases() if lease.dimension == slots] == []
    with capsys.disabled():
        print(f"\nfrom nothing to a client: {init_ms} ms")
