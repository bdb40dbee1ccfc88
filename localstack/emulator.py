#!/usr/bin/env python3
"""Runs ministack in the foreground, on one port of the loopback interface: `emulator.py PORT FOLDER`.

What it unpacks goes into FOLDER. It becomes ministack by exec, so whoever starts this holds the process id that ends it.
"""

import os
import sys

import packages


def main() -> None:
    packages.ensure()
    port, folder = sys.argv[1:]
    # Functions inherit its environment: none of the caller's settings or credentials may get in.
    foreign = ("AWS_", "SLUICE_", "LAMBDA_", "MINISTACK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    os.environ.clear()
    os.environ.update(kept, BIND_HOST="127.0.0.1", GATEWAY_PORT=port, TMPDIR=folder, PYTHONUNBUFFERED="1")
    os.execv(sys.executable, [sys.executable, "-m", "ministack"])


if __name__ == "__main__":
    main()
