"""A small model of CloudWatch: an alarm as Terraform plans it, played minute by minute against what is
published.

Every minute an alarm looks at its last periods, counts those that breach, and treats a period without a value
as `treat_missing_data` says. If all periods are empty, `ignore` keeps the state. (AWS looks further back than
that if values are missing, so an alarm may end later than here, never sooner.)
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


def combined(formula: str | None, values: dict[str, float | None], is_due: bool) -> float | None:
    """The value of an expression: the three forms that infra/modules/alarms uses, and no other."""
    if formula is None:
        return values[""]
    if since := re.fullmatch(r"IF\(EPOCH\(TIME_SERIES\(1\)\) < \w+, 1, (\w+)\)", formula):
        return values[since[1]] if is_due else 1
    if formula == "SUM(FILL(METRICS(), 0))":
        added = list(values)
    elif re.fullmatch(r"FILL\(\w+, 0\)( \+ FILL\(\w+, 0\))*", formula):
        added = re.findall(r"FILL\((\w+), 0\)", formula)
    else:
        raise ValueError(f"unknown expression: {formula}")
    known = [values[name] for name in added if values[name] is not None]
    return sum(known) if known else None


def states(alarm: dict, published: dict[Metric, list], end: int, due: int = 0) -> list[tuple[int, bool]]:
    """Whether the alarm is on, minute by minute until `end`.

    `published` has (second, value) of each metric, in order. `due`: when a new installation is expected to
    have swept.
    """
    metrics = looked_at(alarm)
    formula = expression(alarm)
    seconds = {of: [second for second, _ in published.get(of, [])] for of, _, _ in metrics.values()}

    def value(of: Metric, statistic: str, since: int, until: int) -> float | None:
        first, last = (bisect_right(seconds[of], at) for at in (since, until))
        inside = [one for _, one in published.get(of, [])[first:last]]
        return STATISTIC[statistic](inside) if inside else None

    on, lasted = False, []
    for now in range(0, end, 60):
        breaching, empty = 0, 0
        for index in range(alarm["evaluation_periods"]):
            values = {}
            for name, (of, statistic, period) in metrics.items():
                until = now - index * period
                values[name] = value(of, statistic, until - period, until)
            point = combined(formula, values, until >= due)
            if point is None:
                empty += 1
                breaching += alarm["treat_missing_data"] == "breaching"
            else:
                breaching += COMPARED[alarm["comparison_operator"]](point, alarm["threshold"])
        if not (alarm["treat_missing_data"] == "ignore" and empty == alarm["evaluation_periods"]):
            on = breaching >= alarm["datapoints_to_alarm"]
        lasted.append((now, on))
    return lasted
