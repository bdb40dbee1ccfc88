#!/usr/bin/env python3
"""When alarms go off and end: the alarms of planned/prod.json, played against days as they happen.
cloudwatch.py is the model, and the first tests hold it against AWS's documents.
"""

import json
import re
import unittest
from pathlib import Path

import cloudwatch

PROD = json.loads((Path(__file__).resolve().parent / "planned/prod.json").read_text())
INTERVAL = 300
HOUR = 3600


def alarm(name):
    return next(values for values in PROD.values() if values.get("alarm_name") == f"sluice-prod-{name}")


def states(name, values, end, due=0, **more):
    """Whether the alarm is on, minute by minute. `values`: what is published, as (second, value). The
    installation is at 0. `more`: how late values are, and what FILL does.

    An alarm that adds metrics up gets all values from the first of them.
    """
    this = alarm(name)
    first = next(of for of, _, _ in cloudwatch.looked_at(this).values())
    return cloudwatch.states(this, {first: sorted(values)}, end, due, **more)


def times(lasted):
    """When it went off and when it ended, in minutes."""
    changes, was = [], False
    for now, on in lasted:
        if on != was:
            changes.append(now // 60)
        was = on
    return changes


def sweeps(first, last, value=1, every=INTERVAL):
    # Some seconds early or late, as EventBridge is.
    return [(second + (second // every * 7) % 20, value) for second in range(first, last, every)]


# AWS, "Configuring how CloudWatch alarms treat missing data": values from the oldest to the newest, X breaches;
# the state with ignore, breaching and notBreaching. "-" is the state of before.
THREE_OF_THREE = {
    "0 - X - X": ("OK", "OK", "OK"),
    "- - - - 0": ("OK", "OK", "OK"),
    "- - - - -": ("-", "ALARM", "OK"),
    "0 X X - X": ("ALARM", "ALARM", "ALARM"),
    "- - X - -": ("-", "ALARM", "OK"),
}
TWO_OF_THREE = {
    "0 - X - X": ("ALARM", "ALARM", "ALARM"),
    "0 0 X 0 X": ("ALARM", "ALARM", "ALARM"),
    "0 - X - -": ("OK", "ALARM", "OK"),
    "- - - - 0": ("OK", "ALARM", "OK"),
    "- - - X -": ("-", "ALARM", "OK"),
}
# What the documents do not say: how late a metric is, and what FILL makes of a series without any value.
UNKNOWN = [{"late": late, "fills_empty": fills} for late in (0, 120, 180) for fills in (True, False)]


class Model(unittest.TestCase):
    def test_it_says_what_the_documents_of_aws_say(self):
        for wanted, table in ((3, THREE_OF_THREE), (2, TWO_OF_THREE)):
            for values, results in table.items():
                points = [{"0": 0, "X": 2, "-": None}[one] for one in reversed(values.split())]
                for how, result in zip(("ignore", "breaching", "notBreaching"), results):
                    alarm = {
                        "namespace": "Sluice",
                        "comparison_operator": "GreaterThanThreshold",
                        "threshold": 1,
                        "evaluation_periods": 3,
                        "datapoints_to_alarm": wanted,
                        "treat_missing_data": how,
                    }
                    for was in (False, True):
                        said = {"ALARM": True, "OK": False, "-": was}[result]
                        about = f"{values}, {wanted} of 3, {how}, was {was}"
                        self.assertEqual(cloudwatch.evaluated(alarm, points, was), said, about)

    def test_a_plain_alarm_on_dynamodb_never_ends(self):
        """So no alarm may be one; wiring.py has the rule."""
        alarm = {
            "namespace": "AWS/DynamoDB",
            "metric_name": "WriteThrottleEvents",
            "dimensions": {},
            "statistic": "Sum",
            "period": 300,
            "comparison_operator": "GreaterThanThreshold",
            "threshold": 0,
            "evaluation_periods": 1,
            "datapoints_to_alarm": 1,
            "treat_missing_data": "notBreaching",
        }
        of = cloudwatch.metric("AWS/DynamoDB", "WriteThrottleEvents", {})
        lasted = cloudwatch.states(alarm, {of: [(HOUR, 1)]}, 48 * HOUR)
        self.assertEqual(times(lasted), [60])


class Paging(unittest.TestCase):
    def grace(self):
        expression = cloudwatch.expression(alarm("no-sweep"))
        self.assertTrue(
            re.fullmatch(r"IF\(EPOCH\(TIME_SERIES\(1\)\) < INSTALLED, 1, FILL\(sweeps, 0\)\)", expression),
            expression,
        )
        # tests/alarms.tftest.hcl: a quarter of an hour and three intervals.
        return 900 + 3 * INTERVAL

    def test_a_first_deploy_pages_nobody(self):
        # An apply may take a quarter of an hour, and the schedule begins with its end.
        for apply_takes in (60, 300, 890):
            for unknown in UNKNOWN:
                values = sweeps(apply_takes + INTERVAL, 6 * HOUR)
                lasted = states("no-sweep", values, 6 * HOUR, self.grace(), **unknown)
                self.assertEqual(times(lasted), [], f"{apply_takes} {unknown}")

    def test_a_reconciler_that_never_begins_pages_within_the_hour(self):
        for unknown in UNKNOWN:
            (off,) = times(states("no-sweep", [], 3 * HOUR, self.grace(), **unknown))
            self.assertLessEqual(off, 60)

    def test_a_reconciler_that_stops_pages_after_three_intervals_and_ends_when_it_is_back(self):
        # The last sweep is five minutes before the third hour; three intervals after it are ten minutes later.
        values = sweeps(600, 3 * HOUR) + sweeps(5 * HOUR, 8 * HOUR)
        for unknown in UNKNOWN:
            off, back = times(states("no-sweep", values, 8 * HOUR, self.grace(), **unknown))
            self.assertLessEqual(off, 180 + 10 + 1, unknown)
            self.assertGreaterEqual(off, 180 + 5, unknown)
            self.assertLessEqual(back, 300 + 5, unknown)

    def test_runs_that_fail_page_as_no_sweep(self):
        (off,) = times(
            states("no-sweep", sweeps(600, 2 * HOUR) + sweeps(2 * HOUR, 4 * HOUR, 0), 4 * HOUR, self.grace())
        )
        self.assertLessEqual(off, 120 + 20)

    def test_one_failed_run_is_no_alarm(self):
        for name in ("reconciler-errors", "dead-letters"):
            self.assertEqual(times(states(name, [(HOUR, 1)], 3 * HOUR)), [], name)
            changes = times(states(name, [(HOUR, 1), (HOUR + INTERVAL, 1)], 3 * HOUR))
            self.assertEqual(len(changes), 2, f"{name} goes off after the second, and ends by itself")
            self.assertLessEqual(changes[1], 60 + 25)

    def test_silence_ends_no_alarm(self):
        for name in (
            "unreadable-buckets",
            "leak",
            "drift",
            "unparsable-rows",
            "refused-leases",
            "leases-left",
            "deadline-hit",
        ):
            # Found in every sweep of three hours, and then nothing is published for a day.
            values = sweeps(600, 3 * HOUR, 2)
            self.assertEqual(len(times(states(name, values, 27 * HOUR))), 1, f"{name} stays")
            # A sweep that finds nothing ends it.
            values += sweeps(27 * HOUR, 30 * HOUR, 0)
            self.assertEqual(len(times(states(name, values, 31 * HOUR))), 2, f"{name} ends")

    OF_AN_HOUR = ("leases-left", "deadline-hit", "unfinished-sweeps", "already-capped")

    def test_what_one_sweep_leaves_to_the_next_is_no_alarm(self):
        for name in self.OF_AN_HOUR:
            # From the first sweep of an installation on, and after a day of silence.
            for first in (0, 1):
                for begins in (600, 24 * HOUR):
                    found = enumerate(sweeps(begins, begins + 6 * HOUR))
                    values = [(second, int(index % 2 == first)) for index, (second, _) in found]
                    lasted = states(name, values, begins + 6 * HOUR)
                    self.assertEqual(times(lasted), [], f"{name}, {first}, {begins}")

    def test_what_every_sweep_of_an_hour_leaves_is_an_alarm(self):
        for name in self.OF_AN_HOUR:
            values = sweeps(0, 6 * HOUR, 0) + sweeps(6 * HOUR, 9 * HOUR) + sweeps(9 * HOUR, 12 * HOUR, 0)
            off, back = times(states(name, values, 12 * HOUR))
            self.assertTrue(360 + 45 <= off <= 360 + 65, f"{name} {off}")
            self.assertLessEqual(back, 540 + 6, name)

    OF_DYNAMODB = {"hot-key": (1, 5, 11), "throttles": (1, 10, 16), "system-errors": (10, 8, 8)}

    def test_alarms_on_dynamodb_go_off_and_end_although_silence_is_ignored(self):
        """Value a minute; after how many minutes at most; how long after the end at most."""
        for name, (value, most, clear) in self.OF_DYNAMODB.items():
            for unknown in UNKNOWN:
                late = unknown["late"] // 60
                values = [(second, value) for second in range(HOUR, HOUR + 1_200, 60)]
                lasted = states(name, values, 24 * HOUR, **unknown)
                self.assertEqual(len(times(lasted)), 2, f"{name} goes off once, and ends: {unknown}")
                off, back = times(lasted)
                self.assertLessEqual(off, 60 + most + late, f"{name} {unknown}")
                self.assertLessEqual(back, 60 + 20 + clear + late, f"{name} {unknown}")

    OF_CALLERS = ("refusals", "vendor-refusals", "shedding", "dynamodb-faltered", "dynamodb-unavailable")

    def test_an_account_without_callers_that_print_metrics_is_quiet(self):
        for name in (*self.OF_CALLERS, "caller-refusals"):
            self.assertEqual(times(states(name, [], 24 * HOUR)), [], name)

    def test_a_caller_that_falls_silent_ends_its_alarms(self):
        for name in self.OF_CALLERS:
            values = [(second, 10_000) for second in range(HOUR, 4 * HOUR, 10)]
            off, back = times(states(name, values, 8 * HOUR))
            self.assertLessEqual(off, 60 + 60 + 1, name)
            self.assertLessEqual(back, 240 + 61, name)

    def test_one_blip_of_dynamodb_is_a_warning_and_wakes_nobody(self):
        blip = [(second, 3) for second in range(HOUR, HOUR + 120, 10)]
        self.assertEqual(times(states("dynamodb-unavailable", blip, 3 * HOUR)), [])
        off, back = times(states("dynamodb-faltered", blip, 3 * HOUR))
        self.assertLessEqual(off, 61)
        # CloudWatch looks back three periods for a value.
        self.assertLessEqual(back, 60 + 2 + 3 * 15 + 1)

    def test_dynamodb_out_pages_after_five_minutes(self):
        out = [(second, 1) for second in range(HOUR + 10, 2 * HOUR, 10)]
        off, back = times(states("dynamodb-unavailable", out, 3 * HOUR))
        self.assertEqual(off, 60 + 5)
        self.assertLessEqual(back, 120 + 6)
        # Callers that are refused come back every other minute.
        now_and_then = [(second, 1) for second in range(HOUR, 2 * HOUR, 115)]
        off, _ = times(states("dynamodb-unavailable", now_and_then, 3 * HOUR))
        self.assertLessEqual(off, 60 + 11)

    def test_a_busy_hour_is_no_alarm_and_a_lasting_one_is(self):
        # 999 in each quarter of an hour, then 1,200.
        self.assertEqual(
            times(states("refusals", [(second, 111) for second in range(0, 6 * HOUR, 100)], 6 * HOUR)), []
        )
        self.assertEqual(
            times(states("refusals", [(second, 9_000) for second in range(0, 1_800, 60)], 6 * HOUR)), []
        )
        (off,) = times(states("refusals", [(second, 134) for second in range(0, 6 * HOUR, 100)], 6 * HOUR))
        self.assertLessEqual(off, 61)
        # Sweeps say what all processes wrote into the load rows.
        (off,) = times(states("caller-refusals", sweeps(0, 6 * HOUR, 600), 6 * HOUR))
        self.assertLessEqual(off, 61)

    def test_a_few_refusals_of_a_vendor_are_no_alarm(self):
        self.assertEqual(times(states("vendor-refusals", [(HOUR, 10)], 3 * HOUR)), [])
        off, _ = times(states("vendor-refusals", [(HOUR, 11)], 3 * HOUR))
        self.assertEqual(off, 60)

    def test_shedding_that_lasts_is_an_alarm_and_a_burst_is_not(self):
        self.assertEqual(
            times(states("shedding", [(second, 5) for second in range(HOUR, HOUR + 300, 10)], 3 * HOUR)), []
        )
        off, _ = times(states("shedding", [(second, 1) for second in range(HOUR, 2 * HOUR, 60)], 3 * HOUR))
        self.assertLessEqual(off, 60 + 15)


if __name__ == "__main__":
    unittest.main()
