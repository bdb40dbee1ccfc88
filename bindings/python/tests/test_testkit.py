"""What a product's own tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import sluice
from sluice.testkit import Sandbox, sandbox

from conftest import _command, eventually


def test_a_sandbox_is_there_for_its_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COMMAND", _command())
    with sandbox(faults=0.1) as served:
        for name, value in served.variables.items():
            monkeypatch.setenv(name, value)
        with sluice.Client.from_env() as client:
            assert isinstance(client.acquire("openai#rpm"), sluice.Grant)
    with sluice.Client.from_env(max_retries=1) as client, pytest.raises(sluice.UnavailableError):
        client.acquire("openai#rpm")


def test_the_time_of_the_table_is_under_the_control_of_the_test(sluice_sandbox: Sandbox) -> None:
    with sluice.Client.from_env(lease_ttl=30) as client, sluice.Client.from_env() as other:
        client.ops.apply_limit("moved#rpm", sluice.Limit.requests(1))
        client.ops.apply_limit("moved#concurrent", sluice.Limit.concurrent(1))
        for minute in range(3):
            assert isinstance(client.acquire("moved#rpm"), sluice.Grant), minute
            refused = client.acquire("moved#rpm")
            assert isinstance(refused, sluice.RetryIn)
            assert refused.wait > 50, minute
            sluice_sandbox.advance(60)
        # The slot of a holder that died, for the others.
        held = client.acquire("moved#concurrent")
        assert isinstance(held, sluice.Grant)
        assert isinstance(other.acquire("moved#concurrent"), sluice.RetryIn)
        sluice_sandbox.advance(timedelta(minutes=10))
        assert isinstance(other.acquire("moved#concurrent"), sluice.Grant)
        assert held.release() == "lease_gone"
    with pytest.raises(ValueError, match="forward alone"):
        sluice_sandbox.advance(-1)


def test_an_outage_is_a_sandbox_that_was_stopped(sluice_sandbox: Sandbox) -> None:
    with sluice.Client.from_env(max_retries=1) as client:
        assert isinstance(client.acquire("openai#rpm"), sluice.Grant)
        sluice_sandbox.stop()
        with pytest.raises(sluice.UnavailableError):
            client.acquire("openai#rpm")


def test_a_test_has_a_sandbox_of_its_own(sluice_sandbox: Sandbox) -> None:
    with sluice.Client.from_env() as client:
        assert client.ops.bucket("moved#rpm") is None


def test_a_sandbox_ends_with_the_program_that_was_killed(tmp_path: Path) -> None:
    program = "import sys, time; from sluice.testkit import sandbox\n"
    program += "with sandbox() as served:\n    print(served._process.pid, flush=True); time.sleep(60)"
    environment = {**os.environ, "SLUICE_COMMAND": _command()}
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert killed.stdout is not None
    sandbox_of_it = int(killed.stdout.readline())
    killed.kill()
    killed.wait()
    killed.stdout.close()

    def has_ended() -> bool:
        try:
            os.kill(sandbox_of_it, 0)
        except ProcessLookupError:
            return True
        # Nobody may wait for it here: a process that ended is a zombie at most.
        status = Path(f"/proc/{sandbox_of_it}/stat")
        return status.exists() and ") Z" in status.read_text()

    assert eventually(has_ended)


def test_a_command_that_is_no_sandbox_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "sluice"
    failing.write_text(f"#!{sys.executable}\nprint('no such command')\n")
    failing.chmod(0o755)
    with pytest.raises(RuntimeError, match="no such command"), sandbox(str(failing)):
        pytest.fail("the block ran")
    # As if the package `sluice-testkit` were not installed.
    monkeypatch.setattr("sluice.testkit._installed", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("SLUICE_COMMAND", raising=False)
    with pytest.raises(FileNotFoundError, match=r"install sluice-sdk\[testkit\], or name it"), sandbox():
        pytest.fail("the block ran")
