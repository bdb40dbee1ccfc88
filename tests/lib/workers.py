"""The workers in tests/languages: how each is started, and what it is told."""

import json
import os
import subprocess
import sys

from history import head
from sandbox import ROOT, TARGET, run

RUST = TARGET / "debug" / "examples" / "language_worker"
PYTHON = TARGET / "python" / "venv" / "bin" / "python"


def commands(names: list, folder: str) -> dict:
    """The command of a worker in each of these languages, to which HISTORY and SECONDS are added. Go's is built
    into the folder."""
    of_python = [name for name in names if name in ("python", "reference")]
    if of_python and not PYTHON.exists():
        sys.exit(f"the environment of Python is missing, which {of_python[0]} runs in: run .ci/python")
    if "reference" in names:
        run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "boto3"])
    if "rust" in names and not RUST.exists():
        sys.exit(f"{RUST} is missing: cargo build --workspace --example language_worker")
    if "node" in names and not list((ROOT / "bindings/node").glob("*.node")):
        sys.exit("the module of Node is missing: run .ci/node")
    if "go" in names:
        go = next((path for path in [TARGET / "go" / "bin" / "go", "go"] if works([path, "version"])), None)
        if go is None or not list((ROOT / "bindings/go").glob("lib/**/*.a")):
            sys.exit("Go or the archive that it links is missing: run .ci/go")
        env = os.environ | {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "-mod=mod"}
        run(
            [go, "build", "-o", f"{folder}/worker", "./internal/worker"],
            cwd=ROOT / "bindings" / "go",
            env=env,
        )
    of_each = {
        "rust": [RUST],
        "python": [PYTHON, ROOT / "tests/languages/worker.py"],
        "node": ["node", ROOT / "tests/languages/worker.mjs", ROOT / "bindings/node"],
        "go": [f"{folder}/worker"],
        "reference": [PYTHON, ROOT / "tests/languages/reference.py"],
    }
    return {name: of_each[name] for name in names}


def wants(costs: dict) -> dict:
    """What the environment tells a worker: what to take of which bucket, and the first line of its history."""
    return {"WANTS": json.dumps(costs), "HISTORY_HEADER": json.dumps(head())}


def works(command) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
