"""Celery tasks that share a vendor's limits. A task whose start is in the future goes back to the worker with its
booked start as a ticket, and no process of the pool sleeps for it."""

from __future__ import annotations

import os

import httpx2
from celery import Celery, Task
from celery.signals import worker_process_init

import sluice

app = Celery("tasks")
app.config_from_object("celeryconfig")

# Made before the pool forks; each process of it has a connection of its own.
limits = sluice.Client.from_env()
COST = {"openai#tpm": 100}
vendor: httpx2.Client


@worker_process_init.connect
def connect(**_signal: object) -> None:
    global vendor  # noqa: PLW0603
    vendor = httpx2.Client(base_url=os.environ["OPENAI_BASE_URL"], timeout=20)


@app.task(bind=True, max_retries=None, acks_late=True)
def summarize(self: Task, text: str, ticket: str | None = None) -> str:
    outcome = limits.acquire("openai#rpm", "openai#tpm", costs=COST, ticket_within=900, with_ticket=ticket)
    if isinstance(outcome, sluice.RetryIn):
        booked = {"ticket": str(outcome.ticket)} if outcome.ticket else {}
        raise self.retry(args=(text,), kwargs=booked, countdown=outcome.wait)
    with outcome as grant:
        body = {"model": "small", "messages": [{"role": "user", "content": text}]}
        reply = vendor.post("chat/completions", json=body)
        # Settles the tokens that the call used; a 429 slows the whole fleet.
        used = {"openai#tpm": reply.json()["usage"]["total_tokens"]} if reply.is_success else None
        decision = grant.reply(reply, used=used).decision
    if decision.delay_seconds is not None:  # the vendor refused the call, and a wait helps
        raise self.retry(args=(text,), kwargs={}, countdown=decision.delay_seconds)
    reply.raise_for_status()
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content
