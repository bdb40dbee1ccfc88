"""The report of the stress suite: one page that needs nothing else, with a chart of each figure."""

from __future__ import annotations

import html
import math

from figures import HEAD, rows, short

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 12, 34

STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --soft: #6a6a6a; --line: #dcdcdc; --page: #fff }
:root { --good: #00724a; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --soft: #a0a0a0; --line: #3a3a3a; --page: #161616 }
  :root { --good: #4fc79a; --bad: #ff8a80 }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--page) }
body { margin: 2rem auto; max-width: 1000px; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem }
h3 { font-size: .9rem; margin: 0 0 .2rem; font-weight: 600 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
.wide { overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child, .facts td { text-align: left } th { font-weight: 600; color: var(--soft) }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)) }
.charts { gap: 1.2rem 1.6rem; margin-top: .8rem }
.charts svg { width: 100%; height: auto; display: block }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em }
p { max-width: 46rem } .soft { color: var(--soft) } .good { color: var(--good) }
.bad { color: var(--bad); font-weight: 600 }
text { fill: var(--soft); font: 11px system-ui, sans-serif }
.grid { stroke: var(--line) } .limit { stroke: var(--soft); stroke-dasharray: 5 4; fill: none }
"""


def of(runs: list) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run["figures"]))
    body = [
        f"<h1>Stress suite: {', '.join(html.escape(run['name']) for run in runs)}</h1>",
        facts(runs),
        "<p class=soft>Used: the part of what the limit allowed that was granted (a rate) or held (slots). "
        "Offered: what the callers asked for, of what the limit allowed. P50, P99, Max: how long a granted "
        "acquire took, in ms. Units: written / read for one grant, as DynamoDB stated them to the processes "
        "in Rust.</p>",
        *(section(name, runs) for name in names),
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Stress suite</title><style>{STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def dot(n: int) -> str:
    return f"<span class=dot style='background:{COLOURS[n % len(COLOURS)]}'></span>"


def facts(runs: list) -> str:
    verdicts = {
        True: "<span class=good>every promise was kept</span>",
        False: "<span class=bad>promises were broken</span>",
        None: "not judged",
    }
    lines = [
        ("", lambda n, run: dot(n) + html.escape(run["name"])),
        ("Verdict", lambda _, run: verdicts[run["is_kept"]]),
        ("Began", lambda _, run: run["began"]),
        ("Table", lambda _, run: run["environment"]),
        (
            "Callers of each bucket",
            lambda _, run: f"{run['processes']} processes of {run['workers']} workers",
        ),
        ("Languages", lambda _, run: ", ".join(run["languages"])),
        ("Length", lambda _, run: f"{run['seconds']} s, without acquires in the last {run['wind_down']} s"),
        (
            "Settings",
            lambda _, run: html.escape(", ".join(map("=".join, run["settings"].items())) or "as they come"),
        ),
        ("Commit, cores", lambda _, run: f"{html.escape(run['commit'])}, {run['cores']}"),
    ]
    table = []
    for head, cell in lines:
        cells = "".join(f"<td>{cell(n, run)}</td>" for n, run in enumerate(runs))
        table.append(f"<tr><td class=soft>{head}</td>{cells}</tr>")
    return f"<div class=wide><table class=facts>{''.join(table)}</table></div>"


def section(name: str, runs: list) -> str:
    there = [(n, run["figures"][name], run) for n, run in enumerate(runs) if name in run["figures"]]
    bucket = there[0][2]["buckets"][name]
    limit = f"{bucket['capacity']} at once"
    if there[0][1]["is_rate"]:
        limit = f"{bucket['capacity']} {bucket['type']}, {bucket['refill_rate']} a second"
        limit += f", {bucket['cost_per_call']} a call"
    head = "".join(f"<th>{cell.capitalize()}</th>" for cell in ["Run", *HEAD[1:]])
    lines = []
    for n, _, run in there:
        row = next(row for row in rows(run) if row[0] == name.removeprefix("stress#"))
        cells = "".join(f"<td>{cell}</td>" for cell in row[1:])
        lines.append(f"<tr><td>{dot(n)}{html.escape(run['name'])}</td>{cells}</tr>")
    over_time = "granted in all" if there[0][1]["is_rate"] else "slots held"
    charts = [
        (
            f"Utilisation: {over_time}; dashed: what the limit allows",
            lines_chart([(n, [of["levels"]], of["limit"]) for n, of, _ in there], "s"),
        ),
        (
            "Requests a second: granted; dashed: asked for",
            lines_chart([(n, [of["answers"]], of["asks"]) for n, of, _ in there], "s"),
        ),
        ("Latency of a granted acquire in ms, by percentile", percentiles(there)),
        ("Refusals for one grant, and units of DynamoDB", bars(there)),
    ]
    figures = "".join(f"<div><h3>{title}</h3>{chart}</div>" for title, chart in charts)
    title = f"<h2>{html.escape(name)} <span class=soft>{limit}</span></h2>"
    table = f"<div class=wide><table><tr>{head}</tr>{''.join(lines)}</table></div>"
    return f"{title}{table}<div class=charts>{figures}</div>"


def steps(most: float) -> list:
    """Round values from 0 to a little above the most."""
    most = most or 1.0
    step = 10 ** math.floor(math.log10(most))
    step = next(part * step for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if most / (part * step) <= 5)
    return [n * step for n in range(math.ceil(most / step - 1e-9) + 1)]


def label(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1_000:,.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}" if value == round(value, 2) else f"{value:.2f}"


def svg(inner: str) -> str:
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img>{inner}</svg>"


def axis(marks: list, to_y) -> str:
    drawn = []
    for mark in marks:
        y = to_y(mark)
        drawn.append(f"<line class=grid x1={LEFT} x2={WIDTH - RIGHT} y1={y:.1f} y2={y:.1f} />")
        drawn.append(f"<text x={LEFT - 6} y={y + 4:.1f} text-anchor=end>{label(mark)}</text>")
    return "".join(drawn)


def path(points: list, to_x, to_y) -> str:
    return " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in points)


def lines_chart(series: list, unit: str) -> str:
    """Lines over time. Each of the series is a number of the run, its lines, and a dashed line."""
    points = [point for _, whole, dashed in series for line in [*whole, dashed] for point in line]
    marks, across = steps(max(y for _, y in points)), steps(max(x for x, _ in points))
    to_x = lambda x: LEFT + x / across[-1] * (WIDTH - LEFT - RIGHT)
    to_y = lambda y: HEIGHT - BOTTOM - y / marks[-1] * (HEIGHT - TOP - BOTTOM)
    drawn = [axis(marks, to_y)]
    for x in across:
        text = label(x) + (unit if x == across[-1] else "")
        drawn.append(f"<text x={to_x(x):.1f} y={HEIGHT - BOTTOM + 16} text-anchor=middle>{text}</text>")
    for n, whole, dashed in series:
        colour = COLOURS[n % len(COLOURS)]
        style = f"style='stroke:{colour}'" if len(series) > 1 else ""
        drawn += [
            f"<polyline fill=none stroke='{colour}' stroke-width=1.8 points='{path(line, to_x, to_y)}' />"
            for line in whole
        ]
        drawn.append(f"<polyline class=limit {style} points='{path(dashed, to_x, to_y)}' />")
    return svg("".join(drawn))


def percentiles(there: list) -> str:
    """Latency by percentile, on a logarithmic axis."""
    values = [max(ms, 0.1) for _, of, _ in there for _, ms in of["waits_ms"]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    high += high == low
    to_y = lambda ms: (
        HEIGHT - BOTTOM - (math.log10(max(ms, 0.1)) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    )
    percents = [percent for percent, _ in there[0][1]["waits_ms"]]
    to_x = lambda n: LEFT + 14 + n / (len(percents) - 1) * (WIDTH - LEFT - RIGHT - 40)
    drawn = [axis([10.0**power for power in range(low, high + 1)], to_y)]
    for n, percent in enumerate(percents):
        text = "max" if percent == 100 else f"p{percent:g}"
        drawn.append(f"<text x={to_x(n):.1f} y={HEIGHT - BOTTOM + 16} text-anchor=middle>{text}</text>")
    for run, of, _ in there:
        colour = COLOURS[run % len(COLOURS)]
        points = [(n, ms) for n, (_, ms) in enumerate(of["waits_ms"])]
        drawn.append(
            f"<polyline fill=none stroke='{colour}' stroke-width=1.8 points='{path(points, to_x, to_y)}' />"
        )
        for (n, ms), (percent, _) in zip(points, of["waits_ms"]):
            title = f"<title>{percent:g} %: {ms:.2f} ms</title>"
            drawn.append(f"<circle cx={to_x(n):.1f} cy={to_y(ms):.1f} r=3 fill='{colour}'>{title}</circle>")
    return svg("".join(drawn))


def bars(there: list) -> str:
    """Refusals and units for one grant: a bar for each run."""
    groups = [
        ("refusals", lambda of: of["refusals"] / max(of["grants"], 1)),
        ("units written", lambda of: of["write_units"]),
        ("units read", lambda of: of["read_units"]),
    ]
    room = (HEIGHT - TOP - BOTTOM) / len(groups)
    high = min(26.0, (room - 22) / len(there))
    drawn = []
    for at, (title, value) in enumerate(groups):
        # What rounds to nothing has no bar.
        most = max(0.1, *(value(of) for _, of, _ in there))
        y = TOP + at * room
        drawn.append(f"<text x=4 y={y + 12:.1f}>{title}</text>")
        for n, (run, of, _) in enumerate(there):
            width = max(1.0, value(of) / most * (WIDTH - RIGHT - 70))
            top = y + 18 + n * high
            drawn.append(
                f"<rect x=4 y={top:.1f} width={width:.1f} height={high - 2:.1f} "
                f"fill='{COLOURS[run % len(COLOURS)]}' rx=2 />"
            )
            drawn.append(f"<text x={width + 10:.1f} y={top + high / 2 + 3:.1f}>{short(value(of))}</text>")
    return svg("".join(drawn))
