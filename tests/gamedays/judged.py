"""What a game day published, and what the alarms that Terraform plans for prod make of it. Starts nothing and
reads no clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import cloudwatch
import wiring
from cloudwatch import Metric, metric

PLAN = wiring.agreed("prod")
ALARMS = [values for values in PLAN.values() if "alarm_name" in values]
MINUTE, HOUR = 60, 3_600
# The schedule of prod.
INTERVAL = next(
    query for alarm in ALARMS for query in alarm.get("metric_query", []) if query["id"] == "sweeps"
)["metric"][0]["period"]
# A fault comes after hours without one, right after a sweep, and is mended after hours.
BROKEN, MENDED, END = 2 * HOUR, 5 * HOUR, 8 * HOUR


def short(alarm: dict) -> str:
    return alarm["alarm_name"].removeprefix("sluice-prod-")


def planned(kind: str) -> dict:
    return next(values for address, values in PLAN.items() if f".{kind}." in address)


class Missed(Exception):
    """Alarms did not do what they are for."""


@dataclass
class Phase:
    """What was published while a day was healthy, broken, or mended."""

    runs: list[dict[Metric, float]] = field(default_factory=list)
    """What each run of the reconciler published."""
    lines: list[tuple[float, Metric, float]] = field(default_factory=list)
    """What callers printed, and what DynamoDB counts: the second within the phase, and the value."""
    seconds: float = 0.0


@dataclass
class Paged:
    """An alarm that went off: minutes from the fault, and minutes from the mend to the all-clear."""

    name: str
    is_critical: bool
    after: int
    clear_after: int

    def __str__(self) -> str:
        return f"{self.name}{' (critical)' if self.is_critical else ''} {self.begins}, clear {self.ends}"

    @property
    def begins(self) -> str:
        mend = (MENDED - BROKEN) // MINUTE
        return str(self.after) if self.after <= mend else f"{self.after - mend} after the mend"

    @property
    def ends(self) -> str:
        return str(self.clear_after) if self.clear_after >= 0 else "by itself"


def played(phases: dict[str, Phase], happens_once: bool) -> dict[Metric, list[tuple[int, float]]]:
    """The day at the schedule of prod, without any figure that was not published.

    Each run publishes what the same run of the day published, and runs after the last one what that one did.
    While the fault lasts, lines repeat, unless it happens once. After the mend they come once: they are the
    rest of the outage.
    """
    published: dict[Metric, list] = {}
    for (name, phase), begin, end in zip(phases.items(), (0, BROKEN, MENDED), (BROKEN, MENDED, END)):
        for number, second in enumerate(range(begin + INTERVAL, end + 1, INTERVAL)):
            for of, value in phase.runs[min(number, len(phase.runs) - 1)].items() if phase.runs else ():
                published.setdefault(of, []).append((second, value))
        repeats = name == "broken" and not happens_once
        rounds = int((end - begin) // phase.seconds) if repeats and phase.seconds else 1
        for at in range(rounds):
            for offset, of, value in phase.lines:
                published.setdefault(of, []).append((begin + at * phase.seconds + offset, value))
    return {of: sorted(values) for of, values in published.items()}


def alarms_of(phases: dict[str, Phase], happens_once: bool, alarms: list[dict]) -> list[Paged]:
    """Those that notify somebody, the first one first. An alarm is missed if nobody is notified of it, or
    of its end.
    """
    published, found = played(phases, happens_once), []
    for alarm in alarms:
        name = short(alarm)
        lasted = cloudwatch.states(alarm, published, END, due=15 * MINUTE + 3 * INTERVAL)
        on = [now for now, is_on in lasted if is_on]
        if not on or not alarm["actions_enabled"] or not alarm.get("alarm_actions"):
            continue
        if on[0] < BROKEN:
            raise Missed(f"{name} is an alarm before the fault")
        if not happens_once and not all(is_on for now, is_on in lasted if on[0] <= now < MENDED):
            raise Missed(f"{name} ends while the fault lasts")
        if on[-1] == lasted[-1][0] or not alarm.get("ok_actions"):
            raise Missed(f"no all-clear of {name} follows within {(END - MENDED) // HOUR} h")
        clear_after = (on[-1] + MINUTE - MENDED) // MINUTE
        found.append(Paged(name, name in wiring.CRITICAL, (on[0] - BROKEN) // MINUTE, clear_after))
    return sorted(found, key=lambda one: (one.after, one.name))


def judge(
    phases: dict[str, Phase],
    expected: dict[str, int],
    happens_once: bool = False,
    alarms: list[dict] = ALARMS,
) -> list[Paged]:
    """The alarms that go off. Fails unless they are the expected ones, each after so many minutes at most."""
    found = alarms_of(phases, happens_once, alarms)
    after = {one.name: one.after for one in found}
    wrong = [f"{name} is silent" for name in expected if name not in after]
    wrong += [
        f"{name} goes off after {minutes} min, and is not expected"
        for name, minutes in after.items()
        if name not in expected
    ]
    wrong += [
        f"{name} goes off after {after[name]} min, not {most}"
        for name, most in expected.items()
        if after.get(name, 0) > most
    ]
    if wrong:
        raise Missed("; ".join(wrong))
    return found


def silenced(name: str) -> Iterator[list[dict]]:
    """The planned alarms, one of which is silent: it notifies nobody, is switched off, or never breaches."""
    changes = [
        {"alarm_actions": []},
        {"actions_enabled": False},
        {"comparison_operator": "LessThanThreshold", "threshold": -1, "treat_missing_data": "notBreaching"},
    ]
    for change in changes:
        yield [alarm | change if short(alarm) == name else alarm for alarm in ALARMS]


def judge_strictly(
    phases: dict[str, Phase], expected: dict[str, int], happens_once: bool = False
) -> list[Paged]:
    """Judges a day, and shows that the verdict is another if any of its alarms is silent."""
    found = judge(phases, expected, happens_once)
    for name in expected:
        for alarms in silenced(name):
            try:
                judge(phases, expected, happens_once, alarms)
            except Missed:
                continue
            raise Missed(f"the day does not notice that {name} is silent")
    return found


# Metrics that AWS publishes itself.


def run_failed() -> dict[Metric, float]:
    """Of a run that failed: an error of the function, and its event in the queue to which the plan sends such
    events.
    """
    function, config = planned("aws_lambda_function"), planned("aws_lambda_function_event_invoke_config")
    queue = config["destination_config"][0]["on_failure"][0]["destination"].split(":")[-1]
    return {
        metric("AWS/Lambda", "Errors", {"FunctionName": function["function_name"]}): 1,
        metric("AWS/SQS", "NumberOfMessagesSent", {"QueueName": queue}): 1,
    }


def of_request(operation: str, status: str) -> Metric:
    """What DynamoDB counts for a request that it `throttled` or `failed`."""
    table = planned("aws_dynamodb_table")["name"]
    if status == "failed":
        return metric("AWS/DynamoDB", "SystemErrors", {"TableName": table, "Operation": operation})
    reads = operation in ("GetItem", "BatchGetItem", "Scan", "Query")
    return metric("AWS/DynamoDB", f"{'Read' if reads else 'Write'}ThrottleEvents", {"TableName": table})


def printed(line: dict) -> dict[Metric, float]:
    """The metrics of a line in the Embedded Metric Format."""
    found = {}
    for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
        for names in directive["Dimensions"]:
            dimensions = {name: line[name] for name in names}
            for one in directive["Metrics"]:
                found[metric(directive["Namespace"], one["Name"], dimensions)] = line[one["Name"]]
    return found
