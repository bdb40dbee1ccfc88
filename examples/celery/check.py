"""Starts a worker with four processes on a broker of files, sends it 40 tasks at once, and waits for their results."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import sluice

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("queue", "control", "results"):
            Path(folder, name).mkdir()
        os.environ["EXAMPLE_FOLDER"] = folder
        # 5 a second. A bucket that fills within a second gives no tickets: they would lapse at once.
        sluice.Client.from_env().ops.apply_limit("openai#rpm", sluice.Limit.requests(10, per=2))
        command = [sys.executable, "-m", "celery", "--quiet", "--workdir", str(HERE), "--app", "tasks", "worker"]
        options = ["--concurrency", "4", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        worker = subprocess.Popen([*command, *options])  # noqa: S603
        try:
            from tasks import summarize

            sent = [summarize.delay(f"text {at}") for at in range(40)]
            texts = [task.get(timeout=90) for task in sent]
            with_ticket = sum("ticket" in task.kwargs for task in sent)
        finally:
            worker.terminate()
            ended = worker.wait(30)
    done = texts.count("Good morning")
    print(
        f"{done} of 40 tasks done by four processes, {with_ticket} of them with a ticket; the worker ended with {ended}"
    )
    assert (done, ended) == (40, 0)
    assert with_ticket > 0


main()
