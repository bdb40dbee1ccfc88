"""The fixture of pytest that comes with `sluice-sdk[testkit]`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sluice.testkit import Sandbox, sandbox


@pytest.fixture
def sluice_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A sandbox of this test alone, which `Client.from_env` and child processes find in the environment."""
    with sandbox() as served:
        for name in [name for name in os.environ if name.startswith(("SLUICE_", "AWS_")) and name != "SLUICE_COMMAND"]:
            monkeypatch.delenv(name)
        for name, value in served.variables.items():
            monkeypatch.setenv(name, value)
        yield served
