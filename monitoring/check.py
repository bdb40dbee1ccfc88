#!/usr/bin/env python3
"""Checks that the rules for Prometheus and the dashboard for Grafana name metrics that exist, by environment.

    check.py [ROOT]

`promtool` checks the syntax of the rules; this checks what it cannot know: names, by docs/metrics.md; that each alert has a severity
and an address in the runbook that is there; that no aggregation merges environments; and that each panel has a unit and a place.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
HISTOGRAM = ("_bucket", "_sum", "_count")
OTHER = {"up", "ALERTS"}


def documented() -> set[str]:
    """Every metric of docs/metrics.md, as Prometheus spells it with its recommended naming."""
    names = set()
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        row = re.match(r"\| `(sluice\.[a-z_.]+)` \| (counter|gauge|histogram) \| ([^|]+) \|", line)
        if not row:
            continue
        name = row[1].replace(".", "_") + ("_seconds" if row[3] == "seconds" else "")
        if row[2] == "histogram":
            names |= {name + ending for ending in ("", *HISTOGRAM)}
        else:
            names.add(name + ("_total" if row[2] == "counter" else ""))
    assert len(names) > 40, "docs/metrics.md has no table of metrics"
    return names


def rules() -> list[dict[str, str]]:
    """The rules of both files, as texts by key. What is folded is one line."""
    found: list[dict[str, str]] = []
    for file in ("sluice.rules.yml", "sluice.environments.yml"):
        key = ""
        for line in (ROOT / "monitoring/prometheus" / file).read_text().splitlines():
            # Comments, and the lines of a group.
            if re.match(r" *(#|$)| {2}- | {0,4}\w", line):
                continue
            if start := re.match(r"      - (alert|record): (\S+)$", line):
                found.append({start[1]: start[2]})
            elif found and (pair := re.match(r" {8,12}(\w+):(?: (.*))?$", line)):
                key = pair[1]
                found[-1][key] = (pair[2] or "").strip("|>- ")
            elif found:
                found[-1][key] += " " + line.strip()
    assert len(found) > 20, "no rules were found"
    return found


def names_in(expression: str) -> set[str]:
    """Metrics that an expression names: words before a selector that are neither functions nor labels."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    words = re.findall(r"(?<![\w:])(sluice[\w:]+|up|ALERTS)(?![\w:(])", bare)
    return set(words)


def merges(expression: str) -> list[str]:
    """Aggregations that drop the environment."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    aggregations = re.finditer(r"\b(sum|min|max|avg|count|stddev|topk|bottomk)\b\s*(by\s*\(([^)]*)\))?", bare)
    wrong = [found[0] for found in aggregations if "environment" not in (found[3] or "")]
    wrong += [found[0] for found in re.finditer(r"\bon\s*\(([^)]*)\)", bare) if "environment" not in found[1]]
    return wrong


def anchors() -> set[str]:
    """Sections of the runbook, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", (ROOT / "docs/operations.md").read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def faults_of_rules(known: set[str]) -> list[str]:
    faults, sections = [], anchors()
    for rule in rules():
        name = rule.get("alert") or rule["record"]
        faults += [f"{name}: there is no metric {metric}" for metric in sorted(names_in(rule["expr"]) - known)]
        faults += [f"{name}: `{part}` merges environments" for part in merges(rule["expr"])]
        if "alert" in rule:
            if rule.get("severity") not in ("critical", "warning"):
                faults.append(f"{name}: the severity is neither critical nor warning")
            page, _, section = rule.get("runbook_url", "").partition("#")
            if page != "docs/operations.md" or section not in sections:
                faults.append(f"{name}: runbook_url leads nowhere")
    return faults


def faults_of_dashboard(known: set[str]) -> list[str]:
    dashboard = json.loads((ROOT / "monitoring/grafana/sluice.json").read_text())
    faults, taken = [], {}
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    if not {"datasource", "environment", "dimension"} <= variables:
        faults.append("the dashboard cannot choose data source, environment and bucket")
    panels = dashboard["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        faults.append("two panels have one id")
    for panel in panels:
        title, place = panel.get("title", ""), panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if not title or place["x"] + place["w"] > 24:
            faults.append(f"{title!r}: no title, or beyond the 24 columns")
        faults += [f"{title!r} lies on {taken[cell]!r}" for cell in sorted(cells & taken.keys())[:1]]
        taken |= dict.fromkeys(cells, title)
        if panel["type"] == "row":
            continue
        if not panel.get("fieldConfig", {}).get("defaults", {}).get("unit"):
            faults.append(f"{title!r}: no unit")
        if not panel.get("description") or not panel.get("targets"):
            faults.append(f"{title!r}: no description, or nothing to show")
        for target in panel.get("targets", []):
            expression = target["expr"]
            faults += [f"{title!r}: there is no metric {metric}" for metric in sorted(names_in(expression) - known)]
            faults += [f"{title!r}: `{part}` merges environments" for part in merges(expression)]
            if 'environment=~"$environment"' not in expression or "{{environment}}" not in target.get("legendFormat", ""):
                faults.append(f"{title!r}: does not tell environments apart")
    return faults


def main() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    known = documented() | recorded | OTHER
    faults = faults_of_rules(known) + faults_of_dashboard(known)
    print("\n".join(faults) or f"{len(rules())} rules and the dashboard name {len(known)} known metrics, by environment")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
