"""The command `sluice` of this commit, and a sandbox that it serves."""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SLUICE = os.environ.get("SLUICE_COMMAND", str(TARGET / "debug" / "sluice"))
LEASE_TTL_SECS = 5


def run(command, **options) -> str:
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


class Sandbox:
    def __init__(self, folder: str, faults: float, command: str = SLUICE) -> None:
        self.command = command
        output = pathlib.Path(folder) / "sandbox.txt"
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [command, "sandbox", "--port", "0", "--faults", str(faults)], stdout=file
            )
        until = time.monotonic() + 30
        while not (found := re.search(r"SLUICE_ENDPOINT_URL=(\S+)", output.read_text())):
            assert time.monotonic() < until and self.process.poll() is None, "the sandbox is not up"
            time.sleep(0.05)
        of_shell = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "AWS_"))
        }
        self.env = of_shell | {
            "SLUICE_ENV": "sandbox",
            "SLUICE_ENDPOINT_URL": found[1],
            "SLUICE_LEASE_TTL": str(LEASE_TTL_SECS),
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
        }

    def sluice(self, *arguments) -> str:
        """Runs a command, which faults may make fail."""
        for _ in range(4):
            command = [self.command, *map(str, arguments)]
            done = subprocess.run(command, env=self.env, stdout=subprocess.PIPE, text=True)
            if done.returncode == 0:
                return done.stdout
        sys.exit(f"sluice {' '.join(map(str, arguments))} failed four times")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
