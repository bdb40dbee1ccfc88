"""Starts a worker with four processes on a broker of files, sends it 60 tasks at once, and waits for their results."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("queue", "control", "results"):
            Path(folder, name).mkdir()
        os.environ["EXAMPLE_FOLDER"] = folder
        command = [sys.executable, "-m", "celery", "--workdir", str(HERE), "--app", "tasks", "worker"]
        options = ["--concurrency", "4", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        worker = subprocess.Popen([*command, *options])
        try:
            from tasks import summarize

            sent = [summarize.delay(f"text {at}") for at in range(60)]
            texts = [task.get(timeout=90) for task in sent]
        finally:
            worker.terminate()
            ended = worker.wait(30)
    done = texts.count("Good morning")
    print(f"{done} of 60 tasks done by four processes; the worker ended with {ended}")
    assert (done, ended) == (60, 0)


main()
