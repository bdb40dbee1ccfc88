"""What a product's own tests use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sluice
from sluice.testkit import sandbox

from conftest import _command


def test_a_sandbox_is_there_for_its_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COMMAND", _command())
    with sandbox(faults=0.1) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with sluice.Client.from_env() as client:
            assert isinstance(client.acquire("openai#rpm"), sluice.Grant)
    with sluice.Client.from_env(max_retries=1) as client, pytest.raises(sluice.UnavailableError):
        client.acquire("openai#rpm")


def test_a_command_that_is_no_sandbox_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "sluice"
    failing.write_text(f"#!{sys.executable}\nprint('no such command')\n")
    failing.chmod(0o755)
    with pytest.raises(RuntimeError, match="no such command"), sandbox(str(failing)):
        pytest.fail("the block ran")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("SLUICE_COMMAND", raising=False)
    with pytest.raises(FileNotFoundError, match="SLUICE_COMMAND"), sandbox():
        pytest.fail("the block ran")
