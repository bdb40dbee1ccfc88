"""A game day: what is broken, how it is played, and the alarms that must go off."""

from collections.abc import Callable
from dataclasses import dataclass

from day import ROOT
from judged import Phase
from lab import Lab

BUCKET = "elevenlabs#concurrent"
LIMITS = f"sluice buckets apply {ROOT}/buckets/sandbox.toml"
Seen = tuple[dict[str, Phase], str]


@dataclass
class GameDay:
    """What is broken, and the alarms that must go off, each with the most minutes after the fault."""

    what: str
    plays: Callable[[Lab], Seen]
    expected: dict[str, int]
    happens_once: bool = False
    """The fault is one event, which does not go on until it is mended."""
    needs_binding: bool = False
    """The callers of the day print metrics."""

    @property
    def name(self) -> str:
        return self.plays.__name__.replace("_", " ")
