"""A DynamoDB for the tests of a product, without AWS and Docker: the embedded engine, as `sluice sandbox` serves it.
The command is in a release's `sluice-lab`, or is built by `cargo build -p sluice-cli`.

    @pytest.fixture(scope="session")
    def sluice_env():
        with sluice.testkit.sandbox() as variables:
            yield variables
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_START = 30.0
"""In seconds."""


@contextmanager
def sandbox(command: str | None = None, *, faults: float = 0.0) -> Iterator[dict[str, str]]:
    """Serves a DynamoDB on a port of its own until the block ends, and gives the variables to set in `os.environ`, so
    that `Client.from_env` finds it.

    `command` is the path of the command `sluice`; by default that of `SLUICE_COMMAND`, or what `PATH` has. `faults` is
    the share of the requests that are throttled, lost, late, or applied without a reply."""
    found = command or os.environ.get("SLUICE_COMMAND") or shutil.which("sluice")
    if not found:
        raise FileNotFoundError("there is no command `sluice` on PATH: name one in SLUICE_COMMAND")
    asked = [found, "sandbox", "--port", "0", *(["--faults", str(faults)] if faults else [])]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield {
            "SLUICE_ENV": "sandbox",
            "SLUICE_ENDPOINT_URL": _endpoint(found, lines),
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
        }
    finally:
        process.terminate()
        process.wait(10)
        reader.join()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.put(line)
    lines.put(None)


def _endpoint(command: str, lines: queue.Queue[str | None]) -> str:
    told = []
    try:
        while (line := lines.get(timeout=_LONGEST_START)) is not None:
            told.append(line)
            if found := re.search(r"SLUICE_ENDPOINT_URL=(\S+)", line):
                return found[1]
    except queue.Empty:
        raise TimeoutError(f"{command} sandbox is not up after {_LONGEST_START:.0f} s") from None
    raise RuntimeError(f"{command} sandbox: {''.join(told)}")
