#!/usr/bin/env python3
"""docs/cost.md: what an environment costs in a month, from measured units and published prices.

    cost.py            fails if the page is not as computed
    cost.py --write    writes it

Units of a call are those of docs/bench.json; metrics, alarms and the schedule are read from the code and from what Terraform plans.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOURS = 730  # of a month, as AWS reckons
CALLS = 10_000_000
BUCKETS = 10  # of the example, all in use

# US dollars, us-east-1, without free tiers. Each with the page that publishes it.
PRICES = {
    "million write units, on demand": (0.625, "https://aws.amazon.com/dynamodb/pricing/on-demand/"),
    "million read units, on demand": (0.125, "https://aws.amazon.com/dynamodb/pricing/on-demand/"),
    "Contributor Insights on a table, a rule and month": (0.50, "https://aws.amazon.com/cloudwatch/pricing/"),
    "metric, a month": (0.30, "https://aws.amazon.com/cloudwatch/pricing/"),
    "metric that an alarm looks at, a month": (0.10, "https://aws.amazon.com/cloudwatch/pricing/"),
    "dashboard, a month": (3.00, "https://aws.amazon.com/cloudwatch/pricing/"),
    "GB of logs taken in": (0.50, "https://aws.amazon.com/cloudwatch/pricing/"),
    "million invocations of Lambda": (0.20, "https://aws.amazon.com/lambda/pricing/"),
    "GB-second of Lambda, arm64": (0.0000133334, "https://aws.amazon.com/lambda/pricing/"),
}

# Scenario, case and system of docs/bench.json (DynamoDB modelled), and how the page names them.
MODES = [
    ("ample", "64 callers", "sluice", "rate limit, one process, 64 callers at once"),
    ("together", "rpm + tpm, 64 callers", "sluice", "two rate limits in one answer, one process, 64 callers at once"),
    ("processes", "64 processes, 1 caller each", "sluice", "rate limit, 64 processes of one caller (Lambda functions)"),
    ("saturation", "600/min, 50 processes", "sluice", "rate limit, twice as much wanted as is allowed, 50 processes"),
    ("concurrency", "100 slots, 64 processes, 1 caller each", "inline leases", "100 slots, 64 processes, inline leases"),
    (
        "concurrency",
        "100 slots, 64 processes, 1 caller each",
        "row leases",
        "100 slots, 64 processes, lease rows",
    ),
    (
        "concurrency",
        "10 slots, 64 processes, 1 caller each wait",
        "inline leases",
        "10 slots, 64 processes that wait for them, inline leases",
    ),
    (
        "concurrency",
        "10 slots, 64 processes, 1 caller each wait",
        "row leases",
        "10 slots, 64 processes that wait for them, lease rows",
    ),
    (
        "concurrency",
        "100 slots, 64 processes, 1 caller each",
        "reference",
        "for comparison: the first SDK, 100 slots, 64 processes",
    ),
]


def price(what: str) -> float:
    return PRICES[what][0]


def units() -> list[tuple[str, float, float]]:
    measures = json.loads((ROOT / "docs/bench.json").read_text())["measures"]
    found = {(one["scenario"], one["case"], one["system"]): one for one in measures if one["stage"] == "dynamo_profile"}
    rows = []
    for scenario, case, system, title in MODES:
        one = found[scenario, case, system]
        rows.append((title, one["write_units_per_grant"], one["read_units_per_grant"]))
    return rows


def published() -> tuple[int, int, int]:
    """Metrics of an environment, of a bucket in use, and of an environment with `metrics = "alarms"`."""
    source = (ROOT / "crates/sluice-reconciler/src/metrics.rs").read_text()
    environment, bucket = source.split("fn of_bucket")
    names = re.compile(r'"([A-Z]\w+)", (?:COUNT|"[A-Z][\w/]+"),')
    of_alarms = re.search(r"ALARMS: &\[&str\] = &\[(.*?)\]", source, re.S)[1]
    dimensions = {"Environment", "VendorDimension"}
    counts = [len(set(names.findall(part)) - dimensions) for part in (environment, bucket)]
    return *counts, len(re.findall(r'"\w+"', of_alarms))


def printed() -> tuple[int, int]:
    """Metrics of an environment whose callers print them (SLUICE_METRICS=emf), and of each bucket that they name."""
    source = (ROOT / "crates/sluice-table/src/emf/recorder.rs").read_text()
    of_buckets = re.findall(r'Published \{ name: "(\w+)", of: &(\w+)', source)
    labels = (ROOT / "crates/sluice-table/src/metric.rs").read_text()
    by_bucket = [
        name
        for name, of in of_buckets
        if re.search(rf'^    {of}: Process Counter "[^"]+" \w+ \[[^\]]*"dimension"', labels, re.M)
    ]
    return len(of_buckets) + source.count("const OUT: &str"), len(by_bucket)


def looked_at() -> tuple[int, int]:
    """Alarms of prod, and the metrics in them: an alarm on an expression is billed for each."""
    resources = json.loads((ROOT / "infra/tests/planned/prod.json").read_text())
    alarms = [values for address, values in resources.items() if ".aws_cloudwatch_metric_alarm." in address]
    return len(alarms), sum(sum("metric" in query for query in alarm.get("metric_query", [])) or 1 for alarm in alarms)


def dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 0.005 else "under 0.01"


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page() -> str:
    environment, bucket, of_alarms = published()
    alarms, metrics_of_alarms = looked_at()
    of_callers, of_their_buckets = printed()
    runs = HOURS * 12  # every five minutes
    # As operations.md says: 16 segments, two readings of the buckets, the directory, the row of the sweeps;
    # one line, and a load row for each bucket that is in use.
    reads, writes = runs * (16 + 2 * BUCKETS + 2), runs * (2 + BUCKETS)
    sweeps = reads * price("million read units, on demand") / 1e6 + writes * price("million write units, on demand") / 1e6
    function = runs / 1e6 * price("million invocations of Lambda") + runs * 0.125 * 0.5 * price("GB-second of Lambda, arm64")
    # A report of 0.7 KB, a line of metrics of 2.5 KB, and 0.8 KB for each bucket; Lambda's own lines take 0.6
    # KB.
    logs = runs * (0.7 + 2.5 + 0.6 + 0.8 * BUCKETS) / 1e6 * price("GB of logs taken in")
    logs_of_alarms = runs * (0.7 + 1.6 + 0.6) / 1e6 * price("GB of logs taken in")
    each = price("metric, a month")
    every = metrics_of_alarms * price("metric that an alarm looks at, a month")
    insights, dashboard = price("Contributor Insights on a table, a rule and month"), price("dashboard, a month")
    columns = [
        ("metrics of the sweeps", environment * each, (environment + bucket * BUCKETS) * each, of_alarms * each),
        (f"{alarms} alarms, on {metrics_of_alarms} metrics", every, every, every),
        ("dashboard", dashboard, dashboard, dashboard),
        ("throttled keys (`find_hot_keys`)", insights, insights, insights),
        (
            "sweeps: read and write units",
            runs * 18 * price("million read units, on demand") / 1e6 + runs * 2 * price("million write units, on demand") / 1e6,
            sweeps,
            sweeps,
        ),
        ("the function, half a second a run", function, function, function),
        ("its log", runs * 3.8 / 1e6 * price("GB of logs taken in"), logs, logs_of_alarms),
    ]
    totals = [sum(row[index] for row in columns) for index in (1, 2, 3)]
    idle = [[row[0], *(dollars(one) for one in row[1:])] for row in columns]
    idle.append(["**together**", *(f"**{dollars(one)}**" for one in totals)])
    calls = [
        [
            title,
            f"{write:.3f}",
            f"{read:.3f}",
            dollars(
                CALLS / 1e6 * (write * price("million write units, on demand") + read * price("million read units, on demand"))
            ),
        ]
        for title, write, read in units()
    ]
    sources = [
        [what, f"{amount:.10f}".rstrip("0").rstrip(".") if amount < 0.01 else f"{amount:.3f}", link]
        for what, (amount, link) in PRICES.items()
    ]
    return f"""# What it costs

Dollars a month for one environment, computed by `infra/cost.py` from units that were measured ([bench.md](bench.md)), from what Terraform
plans, and from published prices: us-east-1, without free tiers, discounts and taxes. `.ci/infra` fails if this page is not as computed.

## While nothing is called

"In use" means that {BUCKETS} concurrency buckets are in use all month, which makes their metrics appear by name. Storage, EventBridge and the queue
cost less than a cent.

{table(["", "idle", f"{BUCKETS} buckets in use", f'the same, `metrics = "alarms"`'], idle)}

Metrics are the largest part. `metrics = "alarms"` in `infra/envs/ENV.tfvars` leaves {of_alarms} of {environment} and none by bucket: every alarm works,
and the dashboard shows what is left. A dashboard is free if it is among the first three of an account. Slower sweeps
(`schedule_expression`) save next to nothing. A KMS key of your own costs a dollar a month and each use of it.

Callers that print metrics (`SLUICE_METRICS=emf`, [metrics.md](metrics.md#callers-in-lambda)) add at most {of_callers} metrics and {of_their_buckets} by bucket, each for the hours in
which something was counted: {dollars(of_callers * each)} dollars a month, and {dollars(of_their_buckets * BUCKETS * each)} for {BUCKETS} buckets, if all of them are counted all month. The alarms on them are in the
table above, and cost the same without such callers.

## Ten million calls

Beside the table above, by mode. The units of a call, with its release, are those of [bench.json](bench.json) (DynamoDB modelled).

{table(["", "write units a call", "read units a call", "dollars"], calls)}

Prefetch writes once for many calls: fewer than one write for a thousand grants in that scenario. A call that waits looks at its bucket, which is
most of what the last rows read. A write whose condition is false, because others were faster, costs a write unit that
neither the model nor DynamoDB's replies count: multiply `sluice.conflicts` with `reason="condition"` by the price of a write unit.
`sluice.capacity_units` shows what your own calls take.

Where products with shares together want more than is allowed, a call costs 1.13 to 1.29 writes and 0.27 to 1.6 reads of half a unit each
([proof.md](proof.md#shares-under-load) has each case). A row above 1 KB, as with 16 shares, makes every write two units.

## Prices

Known in November 2026; the pages below decide.

{table(["price", "dollars", "published on"], sources)}
"""


def main() -> None:
    file, wanted = ROOT / "docs/cost.md", page()
    if "--write" in sys.argv[1:]:
        file.write_text(wanted)
    if not file.exists() or file.read_text() != wanted:
        sys.exit("docs/cost.md is not as computed: infra/cost.py --write")
    print("docs/cost.md is as computed")


if __name__ == "__main__":
    main()
