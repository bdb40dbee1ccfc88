#!/usr/bin/env python3
"""The Python packages that the scripts here need: boto3, and ministack, which stands in for AWS (DynamoDB, Lambda, EventBridge).

Where this interpreter lacks them, they go into a virtual environment of their own in the cache folder, in the versions below.
Run as a program, it prints the interpreter that has them.
"""

import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES = {"boto3": "1.43.106", "ministack": "1.5.33"}
CACHE = Path(os.environ.get("SLUICE_CI_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice-ci")
HOME = CACHE / "-".join(f"{name}-{version}" for name, version in PACKAGES.items())


def are_here() -> bool:
    """Any boto3 does; ministack's version is part of what was tried."""
    try:
        importlib.metadata.version("boto3")
        return importlib.metadata.version("ministack") == PACKAGES["ministack"]
    except importlib.metadata.PackageNotFoundError:
        return False


def interpreter() -> str:
    """An interpreter that has the packages."""
    return sys.executable if are_here() else str(virtual_environment())


def ensure() -> None:
    """Runs the calling script again with an interpreter that has the packages, unless this one has."""
    if not are_here():
        python = virtual_environment()
        os.execv(python, [str(python), *sys.argv])


def virtual_environment() -> Path:
    python = HOME / "bin" / "python"
    if not has_packages(python):
        print(f"installing {', '.join(PACKAGES)} into {HOME}", file=sys.stderr)
        try:
            venv.create(HOME, clear=True, with_pip=True)
            pinned = [f"{name}=={version}" for name, version in PACKAGES.items()]
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"could not install {', '.join(PACKAGES)}: {error}; install them by hand, in these versions: {PACKAGES}")
        if not has_packages(python):
            sys.exit(f"{python} still lacks {', '.join(PACKAGES)}; remove {HOME} and try again")
    return python


def has_packages(python: Path) -> bool:
    if not python.exists():
        return False
    probe = [str(python), __file__, "--probe"]
    return subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        sys.exit(not are_here())
    print(interpreter())
