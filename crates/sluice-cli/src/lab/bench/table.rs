//! Prints the figures for a person, in 80 columns.

use super::measure::Measure;
use super::target::Target;
use super::world::Stage;
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};

#[rustfmt::skip]
const HEADER: [&str; 10] = ["", "grants/s", "false", "req", "failed", "units w/r", "p50", "p99", "p99.9", "cpu"];
#[rustfmt::skip]
const SATURATION_HEADER: [&str; 10] =
    ["", "of quota", "above", "passed", "false", "writes", "failed", "units w/r", "p50", "p99"];

/// The widths of the columns; 80 in all.
const WIDTHS: [usize; 10] = [13, 10, 7, 7, 7, 10, 7, 7, 7, 5];
const SATURATION_WIDTHS: [usize; 10] = [13, 9, 6, 7, 6, 7, 7, 11, 7, 7];

/// A block for each case, under one header for each scenario.
pub(crate) fn measures(measures: &[Measure]) -> Vec<String> {
    let mut lines = Vec::new();
    for block in measures.chunk_by(|a, b| a.scenario == b.scenario) {
        lines.push(String::new());
        lines.extend(scenario(block));
    }
    if !measures.is_empty() {
        lines.push(String::new());
        lines.extend(LEGEND.map(dim));
    }
    lines
}

const LEGEND: [&str; 5] = [
    "req, failed, writes, units: requests, writes without effect, writes, and write",
    "and read units, each for one grant; p50 to p99.9: time of an acquire, or until",
    "a booked start; cpu: time of the clients alone, for one grant, in us",
    "false: refused although there was quota; above: grants above the bound;",
    "passed: grants that started after the grant of a later caller",
];

fn scenario(measures: &[Measure]) -> Vec<String> {
    let Some(name) = measures.first().map(|measure| measure.scenario) else { return Vec::new() };
    let (header, widths) =
        if name == "saturation" { (SATURATION_HEADER, SATURATION_WIDTHS) } else { (HEADER, WIDTHS) };
    let mut lines = Vec::new();
    for stage in measures.chunk_by(|a, b| a.stage == b.stage) {
        let place = match stage.first().map(|measure| measure.stage) {
            Some(Stage::DynamoProfile) => "DynamoDB modelled, virtual time",
            _ => "over loopback",
        };
        lines.push(format!("{}{name}, {place}{}", BOLD.render(), BOLD.render_reset()));
        if name == "memory" {
            lines.extend(stage.iter().map(memory));
            continue;
        }
        lines.push(dim(&aligned(&header, &widths)));
        for case in stage.chunk_by(|a, b| a.case == b.case) {
            lines.extend(case.first().map(|first| first.case.clone()));
            let cells = |measure| if name == "saturation" { saturation(measure) } else { row(measure) };
            for measure in case {
                lines.push(aligned(&cells(measure), &widths));
                lines.extend(errors(measure));
            }
        }
    }
    lines
}

/// A line about a system's errors: a release that fails keeps its slots from all callers.
fn errors(measure: &Measure) -> Option<String> {
    let last: String = measure.last_error.as_deref().unwrap_or_default().chars().take(50).collect();
    let (style, plain) = (RED.render(), RED.render_reset());
    (measure.errors > 0).then(|| format!("{style}{:>13}{plain} errors, as: {last}", refusals(measure.errors)))
}

fn row(measure: &Measure) -> [String; 10] {
    [
        measure.system.to_owned(),
        grouped(measure.grants_per_second),
        refusals(measure.false_refusals),
        optional(measure.requests_per_grant, ratio),
        optional(measure.failed_writes_per_grant, ratio),
        units(measure),
        optional(measure.acquire_p50_us, span),
        optional(measure.acquire_p99_us, span),
        optional(measure.acquire_p999_us, span),
        optional(measure.cpu_us_per_grant, microseconds),
    ]
}

fn saturation(measure: &Measure) -> [String; 10] {
    [
        measure.system.to_owned(),
        optional(measure.quota_used, |share| format!("{:.1} %", share * 100.0)),
        measure.above_bound.map_or_else(absent, refusals),
        measure.out_of_order.map_or_else(absent, refusals),
        refusals(measure.false_refusals),
        optional(measure.writes_per_grant, ratio),
        optional(measure.failed_writes_per_grant, ratio),
        units(measure),
        optional(measure.acquire_p50_us, span),
        optional(measure.acquire_p99_us, span),
    ]
}

fn memory(measure: &Measure) -> String {
    let growth = measure
        .growth_kb
        .map_or_else(absent, |kb| format!("{}.{} MB", kb / 1_024, kb.abs() % 1_024 * 10 / 1_024));
    let count = grouped_count(measure.grants);
    format!("{:<24}{count:>11} in {:.1} s: {growth} more resident", measure.case, measure.seconds)
}

pub(crate) fn targets(targets: &[Target]) -> Vec<String> {
    let mut lines = Vec::new();
    if !targets.is_empty() {
        let (bold, plain) = (BOLD.render(), BOLD.render_reset());
        lines.extend([
            String::new(),
            format!("{bold}{:<54}{:>13}{:>13}{plain}", "targets", "wanted", "measured"),
        ]);
    }
    for scenario in targets.chunk_by(|a, b| a.scenario == b.scenario) {
        lines.extend(scenario.first().map(|first| first.scenario.to_owned()));
        for target in scenario {
            let (style, verdict) = match target.met {
                Some(true) => (GREEN, "met"),
                Some(false) => (RED, "missed"),
                None => (YELLOW, "none"),
            };
            let measured = target.measured.map_or_else(absent, figure);
            let (style, plain) = (style.render(), style.render_reset());
            lines.push(format!(
                "{style}{verdict:<8}{plain}{:<46}{:>13}{measured:>13}",
                target.what, target.wanted
            ));
        }
    }
    if targets.iter().any(|target| target.met.is_none()) {
        lines.push(dim("none: this client does not have the feature that the target measures"));
    }
    lines
}

fn aligned<S: AsRef<str>>(cells: &[S; 10], widths: &[usize; 10]) -> String {
    let mut line = String::new();
    for (n, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let cell = cell.as_ref();
        line += &if n == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
    }
    line
}

fn dim(text: &str) -> String {
    format!("{}{text}{}", DIM.render(), DIM.render_reset())
}

fn absent() -> String {
    "-".to_owned()
}

fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(absent, show)
}

fn units(measure: &Measure) -> String {
    match (measure.write_units_per_grant, measure.read_units_per_grant) {
        (Some(write), Some(read)) => format!("{}/{}", short(write), short(read)),
        _ => absent(),
    }
}

fn refusals(count: u64) -> String {
    if count < 100_000 { count.to_string() } else { format!("{}k", count / 1_000) }
}

/// Three decimals, if they mean something.
fn ratio(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 1_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn short(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 1.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn microseconds(us: f64) -> String {
    match us {
        us if us < 9.95 => format!("{us:.1}"),
        us if us < 9_999.5 => format!("{us:.0}"),
        us => format!("{:.0}k", us / 1e3),
    }
}

/// A length of time, from microseconds.
fn span(us: f64) -> String {
    let digits = |value: f64| if value < 10.0 { 1 } else { 0 };
    match us {
        us if us < 999.5 => format!("{us:.0$}us", digits(us)),
        us if us < 999_500.0 => format!("{:.1$}ms", us / 1e3, digits(us / 1e3)),
        us => format!("{:.1$}s", us / 1e6, digits(us / 1e6)),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn grouped(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.1}"),
        value if value < 1e7 => grouped_count(value.round() as u64),
        value => format!("{:.1} M", value / 1e6),
    }
}

/// A number with a comma between thousands.
fn grouped_count(count: u64) -> String {
    let digits = count.to_string();
    let with_comma = |(n, digit): (usize, char)| {
        let comma = (n > 0 && (digits.len() - n).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(with_comma).collect()
}

fn figure(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => grouped(value),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value == value.trunc() => format!("{value:.0}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests;
