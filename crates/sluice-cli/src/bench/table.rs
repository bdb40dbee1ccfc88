//! The figures for a person: 80 columns.

use super::measure::Measure;
use super::target::Target;
use super::world::Stage;
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};

#[rustfmt::skip]
const HEADER: [&str; 10] = ["", "grants/s", "false", "req", "failed", "units w/r", "p50", "p99", "p99.9", "cpu"];
#[rustfmt::skip]
const SATURATION_HEADER: [&str; 10] = ["", "of quota", "above", "order", "false", "writes", "failed", "units w/r", "p50", "p99"];

/// Of the columns; 80 in all.
const WIDTHS: [usize; 10] = [13, 10, 7, 7, 7, 10, 7, 7, 7, 5];
const SATURATION_WIDTHS: [usize; 10] = [13, 9, 6, 6, 6, 8, 7, 10, 7, 7];

/// A block for each case, under one header for each scenario.
pub(crate) fn measures(measures: &[Measure]) -> Vec<String> {
    let mut lines = Vec::new();
    for block in measures.chunk_by(|a, b| a.scenario == b.scenario) {
        lines.push(String::new());
        lines.extend(scenario(block));
    }
    if !measures.is_empty() {
        lines.push(String::new());
        lines.push(dim("req, failed, units: requests, writes without effect, write and read units a grant"));
        lines.push(dim("false: refused although there was quota; cpu: us a grant, of the clients alone"));
    }
    lines
}

fn scenario(measures: &[Measure]) -> Vec<String> {
    let Some(name) = measures.first().map(|measure| measure.scenario) else { return Vec::new() };
    let mut lines = vec![format!("{}{name}{}", BOLD.render(), BOLD.render_reset())];
    for case in measures.chunk_by(|a, b| a.case == b.case && a.stage == b.stage) {
        let Some(first) = case.first() else { continue };
        let stage = match first.stage {
            Stage::Loopback => "loopback",
            Stage::DynamoProfile => "DynamoDB modelled, virtual time",
        };
        lines.push(format!("{} {}", first.case, dim(&format!("({stage})"))));
        match name {
            "memory" => lines.extend(case.iter().map(memory)),
            "saturation" => {
                lines.push(dim(&aligned(&SATURATION_HEADER, &SATURATION_WIDTHS)));
                lines.extend(case.iter().map(|measure| aligned(&saturation(measure), &SATURATION_WIDTHS)));
            }
            _ => {
                lines.push(dim(&aligned(&HEADER, &WIDTHS)));
                lines.extend(case.iter().map(|measure| aligned(&row(measure), &WIDTHS)));
            }
        }
    }
    lines
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
        optional(measure.cpu_us_per_grant, |us| if us < 10.0 { format!("{us:.1}") } else { format!("{us:.0}") }),
    ]
}

fn saturation(measure: &Measure) -> [String; 10] {
    let out_of_order = |count| if count == 0 { "kept".to_owned() } else { refusals(count) };
    [
        measure.system.to_owned(),
        optional(measure.quota_used, |share| format!("{:.1} %", share * 100.0)),
        measure.above_bound.map_or_else(absent, refusals),
        measure.out_of_order.map_or_else(absent, out_of_order),
        refusals(measure.false_refusals),
        optional(measure.writes_per_grant, ratio),
        optional(measure.failed_writes_per_grant, ratio),
        units(measure),
        optional(measure.acquire_p50_us, span),
        optional(measure.acquire_p99_us, span),
    ]
}

fn memory(measure: &Measure) -> String {
    let growth =
        measure.growth_kb.map_or_else(absent, |kb| format!("{}.{} MB", kb / 1_024, kb.abs() % 1_024 * 10 / 1_024));
    format!(
        "{:<13}{:>10} in {:.1} s: {growth} more resident memory",
        measure.system,
        grouped_count(measure.grants),
        measure.seconds
    )
}

/// The targets, with met or missed beside each.
pub(crate) fn targets(targets: &[Target]) -> Vec<String> {
    if targets.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        String::new(),
        format!("{}{:<54}{:>12}{:>12}{}", BOLD.render(), "targets", "wanted", "measured", BOLD.render_reset()),
    ];
    for target in targets {
        let (style, verdict) = match target.met {
            Some(true) => (GREEN, "met"),
            Some(false) => (RED, "missed"),
            None => (YELLOW, "none"),
        };
        let what = format!("{} {}", target.scenario, target.what);
        let measured = target.measured.map_or_else(absent, figure);
        lines.push(format!(
            "{}{verdict:<7}{}{what:<47.47}{:>12}{measured:>12}",
            style.render(),
            style.render_reset(),
            target.wanted,
        ));
    }
    if targets.iter().any(|target| target.met.is_none()) {
        lines.push(dim("none: this client has not what the target is about"));
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

/// Three decimals where they say something.
fn ratio(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 1_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn short(value: f64) -> String {
    match value {
        value if value == 0.0 => "0".to_owned(),
        value if value < 1.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Of microseconds.
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

/// With a comma between thousands.
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
