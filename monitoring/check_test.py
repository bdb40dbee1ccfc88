#!/usr/bin/env python3
"""Plants faults in copies of the rules and the dashboard: `check.py` must name each. And the command of metrics.md
gives each rule the URL of a runbook.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES, DASHBOARD = "monitoring/prometheus/sluice.rules.yml", "monitoring/grafana/sluice.json"

# File, what is replaced once, by what, and what the check says.
PLANTED = [
    (RULES, "min by (environment) (sluice_sweep_age_seconds)", "min(sluice_sweep_age_seconds)", "merges environments"),
    (RULES, "by (environment, dimension) (sluice_load_leaked)", "by (dimension) (sluice_load_leaked)", "merges environments"),
    (RULES, "unless on (environment, dimension)", "unless on (dimension)", "merges environments"),
    (RULES, "sluice_bucket_drift", "sluice_bucket_drifts", "there is no metric sluice_bucket_drifts"),
    (RULES, "severity: critical", "severity: page", "neither critical nor warning"),
    (RULES, "#no-sweep", "#no-sweeps", "leads nowhere"),
    (DASHBOARD, '"unit": "percentunit"', '"unit": ""', "no unit"),
    (DASHBOARD, "sluice_load_pending", "sluice_load_taken", "there is no metric sluice_load_taken"),
    (DASHBOARD, "sluice:grants:rate5m", "sluice:grants:rate1m", "there is no metric sluice:grants:rate1m"),
    (
        DASHBOARD,
        "max by (environment, dimension) (sluice_load_leaked",
        "max by (dimension) (sluice_load_leaked",
        "merges environments",
    ),
    (DASHBOARD, '"x": 12,', '"x": 11,', "lies on"),
    (DASHBOARD, '"panels": [', '"panels": ', "JSONDecodeError"),
]


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "monitoring/check.py", root], capture_output=True, text=True)


def main() -> None:
    for file, old, new, says in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            shutil.copytree(ROOT / "monitoring", root / "monitoring")
            (root / "docs").mkdir()
            for page in ("metrics.md", "operations.md"):
                shutil.copy(ROOT / "docs" / page, root / "docs" / page)
            text = (root / file).read_text()
            assert old in text, f"{file} has no {old!r} to replace"
            (root / file).write_text(text.replace(old, new, 1))
            checked = check(root)
            assert checked.returncode != 0, f"{old!r} -> {new!r} was not seen"
            assert says in checked.stdout + checked.stderr, f"{old!r} -> {new!r}: {checked.stdout}{checked.stderr}"
    print(f"{len(PLANTED)} planted faults were found")
    every_rule_takes_the_url()


def every_rule_takes_the_url() -> None:
    (command,) = re.findall(r"```sh\n(runbook=.*?)```", (ROOT / "docs/metrics.md").read_text(), re.S)
    command = command.replace("> sluice.rules.yml", "")
    made = subprocess.run(["bash", "-euc", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    written = (ROOT / RULES).read_text()
    assert made.count("runbook_url: https://") == written.count("runbook_url:") > 0, "a rule kept its path"
    assert "docs/operations.md#" not in made, "a rule kept its path"


if __name__ == "__main__":
    main()
