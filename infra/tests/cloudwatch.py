"""A small model of CloudWatch: an alarm as Terraform plans it, played minute by minute against what is
published. It follows AWS's documents ("Configuring how CloudWatch alarms treat missing data", "Using math
expressions"):

- An alarm retrieves more periods than it evaluates: the evaluation range. If the range has as many values as
  the alarm evaluates, the newest of them decide, however old they are; silence is not looked at.
- If it has fewer, missing ones are filled as `treat_missing_data` says. `ignore` keeps the state, unless the
  values that there are decide by themselves.
- Metrics of AWS/DynamoDB always count as `ignore`, whatever the alarm says.
- FILL makes values of what is missing, also of a newest period that is only late. So nothing is missing.

What the documents leave open is a parameter: how long the range is (their examples have two periods more), how
late a metric is, and whether FILL fills a series that has no value in the range at all.
"""

import operator
import re
from bisect import bisect_right

COMPARED = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
}
STATISTIC = {"Sum": sum, "Maximum": max, "Minimum": min}
# Periods of the evaluation range beyond those that the alarm evaluates.
BEYOND = 2

# Namespace, name, dimensions.
Metric = tuple[str, str, frozenset]


def metric(namespace: str, name: str, dimensions: dict[str, str]) -> Metric:
    return namespace, name, frozenset(dimensions.items())


def looked_at(alarm: dict) -> dict[str, tuple[Metric, str, int]]:
    """The metrics of an alarm by their ids in its expression, each with its statistic and its period."""
    if "metric_query" not in alarm:
        of = metric(alarm["namespace"], alarm["metric_name"], alarm["dimensions"])
        return {"": (of, alarm["statistic"], alarm["period"])}
    queries = {query["id"]: query["metric"][0] for query in alarm["metric_query"] if "metric" in query}
    return {
        name: (metric(one["namespace"], one["metric_name"], one["dimensions"]), one["stat"], one["period"])
        for name, one in queries.items()
    }


def expression(alarm: dict) -> str | None:
    return next(
        (query["expression"] for query in alarm.get("metric_query", []) if "expression" in query), None
    )


Series = list[float | None]


def combined(formula: str | None, series: dict[str, Series], is_due: list[bool], fills_empty: bool) -> Series:
    """The values of an expression, newest first: the three forms that infra/modules/alarms uses, no other."""

    def filled(name: str) -> Series:
        if not fills_empty and all(one is None for one in series[name]):
            return series[name]
        return [0 if one is None else one for one in series[name]]

    if formula is None:
        return series[""]
    if since := re.fullmatch(r"IF\(EPOCH\(TIME_SERIES\(1\)\) < \w+, 1, FILL\((\w+), 0\)\)", formula):
        return [one if due else 1 for one, due in zip(filled(since[1]), is_due)]
    if one := re.fullmatch(r"FILL\((\w+), 0\)", formula):
        return filled(one[1])
    if formula == "SUM(FILL(METRICS(), 0))":
        rows = zip(*(filled(name) for name in series))
        known = ([one for one in row if one is not None] for row in rows)
        return [sum(row) if row else None for row in known]
    raise ValueError(f"unknown expression: {formula}")


def missing(alarm: dict) -> str:
    """How the alarm treats what is missing."""
    return "ignore" if alarm.get("namespace") == "AWS/DynamoDB" else alarm["treat_missing_data"]


def evaluated(alarm: dict, values: Series, was: bool) -> bool:
    """Whether the alarm is on, given the values of the evaluation range, newest first."""
    periods, wanted, how = alarm["evaluation_periods"], alarm["datapoints_to_alarm"], missing(alarm)
    known = [COMPARED[alarm["comparison_operator"]](one, alarm["threshold"]) for one in values if one is not None]
    if len(known) >= periods:
        return sum(known[:periods]) >= wanted
    if how == "ignore" and sum(known) < wanted and all(known):
        return was
    to_fill = periods - len(known) if how == "breaching" else 0
    return sum(known) + to_fill >= wanted


def states(
    alarm: dict,
    published: dict[Metric, list],
    end: int,
    due: int = 0,
    late: int = 0,
    fills_empty: bool = True,
) -> list[tuple[int, bool]]:
    """Whether the alarm is on, minute by minute until `end`.

    `published` has (second, value) of each metric, in order; CloudWatch has it `late` seconds later. `due`: when
    a new installation is expected to have swept.
    """
    metrics = looked_at(alarm)
    formula = expression(alarm)
    seconds = {of: [second for second, _ in published.get(of, [])] for of, _, _ in metrics.values()}

    def value(of: Metric, statistic: str, since: int, until: int, now: int) -> float | None:
        first, last = (bisect_right(seconds[of], at) for at in (since, min(until, now - late)))
        inside = [one for _, one in published.get(of, [])[first:last]]
        return STATISTIC[statistic](inside) if inside else None

    on, lasted = False, []
    (period,) = {period for _, _, period in metrics.values()}
    for now in range(0, end, 60):
        ends = [now - index * period for index in range(alarm["evaluation_periods"] + BEYOND)]
        series = {
            name: [value(of, statistic, until - period, until, now) for until in ends]
            for name, (of, statistic, _) in metrics.items()
        }
        # A period carries the time of its beginning.
        is_due = [until - period >= due for until in ends]
        on = evaluated(alarm, combined(formula, series, is_due, fills_empty), on)
        lasted.append((now, on))
    return lasted
