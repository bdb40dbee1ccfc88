"""The figures of a run of the stress suite, from its histories."""

from __future__ import annotations

import json
import pathlib

PERCENTS = [50, 75, 90, 95, 99, 99.5, 99.9, 100]
MILLION = 10**6


def file_name(bucket: str, language: str) -> str:
    return f"{bucket.replace('#', '-')}.{language}.ndjson"


def of_run(folder: pathlib.Path) -> dict:
    """What is known of a run, with the figures of each of its buckets."""
    facts = json.loads((folder / "run.json").read_text())
    verdict = folder / "verdict.json"
    is_kept = json.loads(verdict.read_text())["is_kept"] if verdict.exists() else None
    return facts | {
        "is_kept": is_kept,
        "figures": {name: of_bucket(folder, facts, name) for name in facts["buckets"]},
    }


def of_bucket(folder: pathlib.Path, facts: dict, name: str) -> dict:
    bucket = facts["buckets"][name]
    grants, refusals, errors, releases = [], [], 0, {}
    for language in facts["languages"]:
        with (folder / file_name(name, language)).open() as file:
            for event in map(json.loads, file):
                kind = event["event"]
                if kind == "granted":
                    grants.append(event)
                elif kind == "released":
                    releases[event["id"]] = event["at_micros"]
                elif kind == "refused" and "error" in event:
                    errors += 1
                elif kind == "refused":
                    refusals.append(event["asked_at_micros"])
    asked = [grant["asked_at_micros"] for grant in grants] + refusals
    begin, end = min(asked, default=0), max(asked, default=0)
    # Processes of several languages do not begin at one moment.
    seconds = max(facts["seconds"] - facts["wind_down"], (end - begin) / MILLION)
    waits = sorted(grant["granted_at_micros"] - grant["asked_at_micros"] for grant in grants)
    cost = sum(grant["cost_micros"] for grant in grants) / MILLION
    capacity, rate = float(bucket["capacity"]), float(bucket["refill_rate"])
    is_rate = bucket["type"] != "concurrent"
    rust = json.loads((folder / file_name(name, "rust")).with_suffix(".json").read_text())
    of_rust = max(rust["grants"], 1)
    figures = {
        "grants": len(grants),
        "refusals": len(refusals),
        "errors": errors,
        "is_rate": is_rate,
        "waits_ms": [(percent, percentile(waits, percent) / 1e3) for percent in PERCENTS],
        "write_units": rust["write_units"] / of_rust,
        "read_units": rust["read_units"] / of_rust,
        "asks": per_second(asked, begin, seconds),
        "answers": per_second([grant["granted_at_micros"] for grant in grants], begin, seconds),
    }
    if is_rate:
        # The level as the run began, and what has refilled since.
        level = float(bucket["level"])
        allowed = level + rate * seconds
        unit = float(bucket["cost_per_call"])
        levels = cumulative(
            [(grant["start_at_micros"], grant["cost_micros"] / MILLION) for grant in grants], begin, seconds
        )
        figures |= {
            "used": cost / allowed,
            "offered": len(asked) * unit / allowed,
            "levels": levels,
            "limit": [(at, level + rate * at) for at, _ in levels],
        }
    else:
        holds = [
            (grant["granted_at_micros"], releases.get(grant["id"], grant["granted_at_micros"]))
            for grant in grants
        ]
        levels = held(holds, begin, seconds)
        mean = sum(to - at for at, to in holds) / MILLION / seconds
        # Each worker wants a slot at all times. The reference client is one.
        of_language = {"rust": facts["workers"] * facts["processes"], "reference": 1}
        callers = sum(of_language.get(language, facts["workers"]) for language in facts["languages"])
        figures |= {
            "used": mean / capacity,
            "offered": callers / capacity,
            "levels": levels,
            "limit": [(at, capacity) for at, _ in levels],
        }
    return figures


def percentile(ordered: list, percent: float) -> float:
    """The least value that so many percent do not exceed."""
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


def bins(seconds: float) -> int:
    """The points of a chart over time: a quarter of a second each, or more."""
    return min(120, max(1, int(seconds * 4)))


def bin_of(at: int, begin: int, seconds: float) -> int:
    return min(bins(seconds) - 1, max(0, int((at - begin) / MILLION / seconds * bins(seconds))))


def per_second(times: list, begin: int, seconds: float) -> list:
    counts = [0] * bins(seconds)
    for at in times:
        counts[bin_of(at, begin, seconds)] += 1
    width = seconds / bins(seconds)
    return [((n + 0.5) * width, count / width) for n, count in enumerate(counts)]


def cumulative(amounts: list, begin: int, seconds: float) -> list:
    """What was granted until the end of each interval."""
    sums = [0.0] * bins(seconds)
    for at, amount in amounts:
        sums[bin_of(at, begin, seconds)] += amount
    total, points = 0.0, []
    for n, amount in enumerate(sums, 1):
        total += amount
        points.append((n * seconds / bins(seconds), total))
    return points


def held(holds: list, begin: int, seconds: float) -> list:
    """How many slots were held in each interval, on average."""
    width = seconds * MILLION / bins(seconds)
    sums = [0.0] * bins(seconds)
    for at, to in holds:
        for n in range(bin_of(at, begin, seconds), bin_of(to, begin, seconds) + 1):
            sums[n] += max(0.0, min(to, begin + (n + 1) * width) - max(at, begin + n * width))
    return [((n + 0.5) * seconds / bins(seconds), total / width) for n, total in enumerate(sums)]


def short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


HEAD = ["BUCKET", "GRANTS", "USED", "OFFERED", "REFUSED", "FAILED", "P50", "P99", "MAX", "UNITS"]


def rows(run: dict) -> list:
    """A row for each bucket, as the terminal and the page show it."""
    lines = []
    for name, of in run["figures"].items():
        waits = dict(of["waits_ms"])
        lines.append(
            [
                name.removeprefix("stress#"),
                str(of["grants"]),
                f"{of['used'] * 100:.1f}%",
                f"{of['offered']:.1f}x",
                str(of["refusals"]),
                str(of["errors"]),
                short(waits[50]),
                short(waits[99]),
                short(waits[100]),
                f"{of['write_units']:.1f}/{of['read_units']:.1f}",
            ]
        )
    return lines


def table(run: dict) -> str:
    """The figures of a run, in at most 80 columns."""
    lines = [HEAD, *rows(run)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    text = [
        " ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        )
        for line in lines
    ]
    verdict = {True: "every promise was kept", False: "PROMISES WERE BROKEN", None: "not judged yet"}[
        run["is_kept"]
    ]
    languages = ", ".join(run["languages"])
    callers = (
        f"{run['processes']} processes of {run['workers']} workers a bucket, {run['seconds']} s, {languages}"
    )
    return "\n".join(
        [
            f"{run['name']}: {verdict}",
            callers,
            "",
            *text,
            "",
            "USED: of what the limit allowed. OFFERED: of what the limit allowed, asked for",
            "P50, P99, MAX: of granted acquires, in ms. UNITS: written/read, for one grant",
        ]
    )
