#!/usr/bin/env python3
"""The figures and the page of a small run whose figures are known: two seconds, one bucket of each kind."""

import json
import pathlib
import tempfile
import unittest

import figures
import page

SECOND = 10**6
RATE = {"type": "requests", "capacity": "4", "refill_rate": "1", "cost_per_call": "1", "level": "4"}
SLOTS = {"type": "concurrent", "capacity": "2", "refill_rate": "0", "cost_per_call": "1", "level": "2"}


def granted(bucket: str, name: str, asked: int, wait: int) -> dict:
    at = asked + wait
    of = {"event": "granted", "id": name, "dimension": bucket, "asked_at_micros": asked, "granted_at_micros": at}
    return of | {"start_at_micros": at, "cost_micros": SECOND}


def run(folder: pathlib.Path, name: str) -> dict:
    folder = folder / name
    folder.mkdir()
    facts = {"name": name, "began": "now", "environment": "sandbox", "commit": "0", "cores": 2, "settings": {}}
    facts |= {"processes": 1, "workers": 4, "seconds": 4, "wind_down": 2, "languages": ["rust"]}
    facts["buckets"] = {"stress#rpm": RATE, "stress#slots": SLOTS}
    (folder / "run.json").write_text(json.dumps(facts))
    # Three of the six that two seconds allow, and three refusals.
    rate = [granted("stress#rpm", f"r{n}", n * SECOND, 1_000 * (n + 1)) for n in range(3)]
    rate += [{"event": "refused", "dimension": "stress#rpm", "asked_at_micros": SECOND}] * 3
    rate += [{"event": "refused", "dimension": "stress#rpm", "asked_at_micros": SECOND, "error": "lost"}]
    # One slot of two, held for one second of two.
    slots = [granted("stress#slots", "s", 0, 0), {"event": "released", "id": "s", "at_micros": SECOND}]
    for bucket, events in (("stress#rpm", rate), ("stress#slots", slots)):
        file = folder / figures.file_name(bucket, "rust")
        file.write_text("".join(json.dumps(event) + "\n" for event in [*events, {"event": "end"}]))
        file.with_suffix(".json").write_text(json.dumps({"grants": 2, "write_units": 3, "read_units": 1}))
    return figures.of_run(folder)


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.runs = [run(pathlib.Path(folder.name), name) for name in ("one", "two")]

    def test_figures_are_those_of_the_histories(self):
        rate, slots = (self.runs[0]["figures"][name] for name in ("stress#rpm", "stress#slots"))
        self.assertEqual((rate["grants"], rate["refusals"], rate["errors"]), (3, 3, 1))
        # Level 4, and 2 refilled in two seconds.
        self.assertEqual((rate["used"], rate["offered"]), (3 / 6, 6 / 6))
        self.assertEqual(rate["levels"][-1][1], 3)
        self.assertEqual(dict(rate["waits_ms"])[50], 2)
        self.assertEqual(dict(rate["waits_ms"])[100], 3)
        self.assertEqual((slots["used"], slots["offered"]), (1 / 4, 4 / 2))
        self.assertEqual(slots["levels"][0][1], 1)
        self.assertEqual(slots["levels"][-1][1], 0)
        self.assertEqual((slots["write_units"], slots["read_units"]), (1.5, 0.5))
        self.assertIn("rpm", figures.table(self.runs[0]))

    def test_each_run_has_its_series_in_each_chart(self):
        one, two = page.of(self.runs[:1]), page.of(self.runs)
        # Of each bucket: utilisation and its limit, requests granted and asked for, percentiles.
        self.assertEqual((one.count("<polyline"), two.count("<polyline")), (10, 20))
        self.assertEqual(two.count("<h2>"), 2)
        for n in (0, 1):
            self.assertIn(f"stroke='{page.COLOURS[n]}'", two)
        self.assertNotIn(page.COLOURS[1], one)
        self.assertIn("<h1>Stress suite: one, two</h1>", two)


if __name__ == "__main__":
    unittest.main()
