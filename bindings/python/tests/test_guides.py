"""The programs of the documents: the types of each are right, and each runs that is not `no_run`, those with tests in
pytest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = tempfile.TemporaryDirectory()
subprocess.run([sys.executable, str(ROOT / ".ci/guides"), "blocks", "python", FOLDER.name], check=True)
PROGRAMS = sorted(Path(FOLDER.name).glob("*.py"))


def test_the_programs_have_the_types_that_they_use() -> None:
    assert len(PROGRAMS) > 10
    # The cache is that of the package's own check: most of the time is for the vendors' packages.
    cache = f"--cache-dir={ROOT / 'bindings/python/.mypy_cache'}"
    strict = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", cache, *map(str, PROGRAMS)]
    done = subprocess.run(strict, cwd=FOLDER.name, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    "program", [program for program in PROGRAMS if "no_run" not in program.stem], ids=lambda program: program.stem
)
def test_a_program_of_the_documents_runs(program: Path) -> None:
    has_tests = "\ndef test_" in program.read_text()
    pytest_of_it = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider"] if has_tests else []
    command = [sys.executable, *pytest_of_it, str(program)]
    done = subprocess.run(command, cwd=FOLDER.name, capture_output=True, text=True, timeout=60, check=False)
    # Warnings of the SDK are no errors: some programs show what is refused.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
