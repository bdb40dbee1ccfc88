"""A DynamoDB for the tests of a product, without AWS and Docker: the embedded engine, as `sluice sandbox` serves it.
`pip install sluice-sdk[testkit]` brings the command, and the fixture `sluice_sandbox` for pytest. Without pytest:

    with sluice.testkit.sandbox() as served:
        os.environ.update(served.variables)
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

_LONGEST_START = 30.0
"""In seconds."""

_LONGEST_ANSWER = 10.0

_MEMORY = 1.1
"""How long a client answers a refusal from memory, and a little more."""

_VENDORS = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
"""The variables by which the packages of these vendors find the sandbox's, in the order in which it prints them."""


class Sandbox:
    """A sandbox that runs."""

    variables: dict[str, str]
    """The variables to set in `os.environ`, so that `Client.from_env` finds the sandbox."""

    def __init__(self, process: subprocess.Popen[str], command: str) -> None:
        self._process, self._command = process, command
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, vendors: bool) -> None:
        self.variables = {
            "SLUICE_ENV": "sandbox",
            "SLUICE_ENDPOINT_URL": self._expect(r"SLUICE_ENDPOINT_URL=(\S+)", _LONGEST_START),
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
        }
        for name in _VENDORS if vendors else ():
            self.variables[name] = self._expect(rf"{name}=(\S+)", _LONGEST_START)

    def advance(self, by: float | timedelta) -> None:
        """Moves the time of the table forward by so many seconds, and sweeps: tokens refill, cool-downs end, slots of
        leases that have ended come back. It takes 1.1 s, after which no client refuses from memory any more. Clients
        learn the time with their next request; a wait that is under way is not shortened."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not seconds >= 0:
            raise ValueError(f"the time of a sandbox moves forward alone: {seconds} s is less than 0")
        assert self._process.stdin is not None
        self._process.stdin.write(f"advance {round(seconds * 1000)}ms\n")
        self._process.stdin.flush()
        self._expect("(advanced)", _LONGEST_ANSWER)
        time.sleep(_MEMORY)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put(None)

    def _expect(self, pattern: str, within: float) -> str:
        """What the sandbox prints."""
        printed = []
        try:
            while (line := self._lines.get(timeout=within)) is not None:
                printed.append(line)
                if found := re.search(pattern, line):
                    return found[1]
        except queue.Empty:
            raise TimeoutError(f"{self._command} sandbox does not answer within {within:.0f} s") from None
        raise RuntimeError(f"{self._command} sandbox: {''.join(printed)}")

    def stop(self) -> None:
        """Ends the sandbox before its block does, as an outage would. Clients stay usable, and get no answer."""
        self._process.terminate()
        self._process.wait(10)
        self._reader.join()
        assert self._process.stdin is not None
        self._process.stdin.close()


@contextmanager
def sandbox(command: str | None = None, *, faults: float = 0.0, vendors: bool = False) -> Iterator[Sandbox]:
    """Serves a DynamoDB on a port of its own until the block ends.

    `command` is the path of the command `sluice`; by default that of `SLUICE_COMMAND`, of `sluice-sdk[testkit]`, or
    what `PATH` has. `faults` is the part of the requests that are throttled, lost, late, or applied without a reply.
    With `vendors` it also serves vendors that answer 429 above their limits, which the packages `openai` and
    `anthropic` call by the variables `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`, and has buckets for them."""
    found = command or os.environ.get("SLUICE_COMMAND") or _installed() or shutil.which("sluice")
    if not found:
        raise FileNotFoundError("no command `sluice`: install sluice-sdk[testkit], or name it in SLUICE_COMMAND")
    asked = [found, "sandbox", "--port", "0", "--control"]
    asked += ["--faults", str(faults)] if faults else []
    asked += ["--vendors"] if vendors else []
    process = subprocess.Popen(  # noqa: S603
        asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    served = Sandbox(process, found)
    try:
        served._start(vendors)
        yield served
    finally:
        served.stop()


def _installed() -> str | None:
    """The command that the package `sluice-testkit` put beside the interpreter, also if that is not on `PATH`."""
    return shutil.which("sluice", path=sysconfig.get_path("scripts"))
