//! `sluice history`: checks by the records of the callers whether the promises were kept.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_history::{BucketFigures, Checker, FreeSlot, Guarantee, ShareFigures, Verdict, check_files_with};
use sluice_sdk::core::Amount;

use crate::duration::duration;
use crate::failure::Ended;
use crate::output::{self, Align, GREEN, RED};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Histories, as `sluice stress --history FILE` writes them; several are judged as one
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How far the clocks behind the files may be off, as in 5ms; for files of several machines
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    clock_error: Duration,
    /// How long a caller's request may take until its tokens are taken or booked, as in 50ms (of slots, also
    /// a release): so much of a share's refill may be lost, and so much longer may a slot be free, before a
    /// guarantee counts as missed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    request_time: Duration,
    /// Each grant must have been released: for runs that ended in order, as those of `sluice stress`
    #[arg(long)]
    all_released: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The most violations that are listed: a slot never given back makes one of every later grant.
const MOST_NAMED: usize = 20;

pub(crate) fn run(options: &Options) -> Ended {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let mut checker = Checker::new()
        .with_error(micros(options.clock_error))
        .with_request_time(micros(options.request_time));
    if options.all_released {
        checker = checker.with_all_released();
    }
    let verdict = check_files_with(checker, &options.files)?;
    if options.json {
        output::json(&verdict)?;
    } else {
        print(&verdict);
    }
    Ok(exit_code(&verdict))
}

pub(crate) fn exit_code(verdict: &Verdict) -> ExitCode {
    if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn print(verdict: &Verdict) {
    use Align::{Left, Right};
    if !verdict.buckets.is_empty() {
        let columns =
            [("BUCKET", Left), ("GRANTS", Right), ("MOST", Right), ("ALLOWED", Right), ("IN", Right)];
        output::table(columns, verdict.buckets.iter().map(row).collect());
        println!();
    }
    let shares: Vec<_> = verdict.buckets.iter().flat_map(of_shares).collect();
    if !shares.is_empty() {
        let columns = [
            ("BUCKET", Left),
            ("SHARE", Left),
            ("GRANTS", Right),
            ("BORROWED", Right),
            ("WORST", Right),
            ("IN", Right),
            ("LEFT FREE", Right),
        ];
        output::table(columns, shares);
        println!();
    }
    let Verdict { events, grants, violations, .. } = verdict;
    if verdict.holds() {
        anstream::println!(
            "{}ok{}   every promise was kept: {grants} grants, {events} events",
            GREEN.render(),
            GREEN.render_reset()
        );
        return;
    }
    for violation in violations.iter().take(MOST_NAMED) {
        let text = output::lines_beside(5, &violation.to_string()).join("\n     ");
        anstream::println!("{}FAIL{} {text}", RED.render(), RED.render_reset());
    }
    if violations.len() > MOST_NAMED {
        println!("and {} more, which --json names", violations.len() - MOST_NAMED);
    }
    println!("{} in {grants} grants, {events} events", plural(violations.len()));
}

fn plural(violations: usize) -> String {
    if violations == 1 { "1 violation".into() } else { format!("{violations} violations") }
}

/// For a rate bucket the busiest window, for a concurrency bucket the fullest instant.
fn row(bucket: &BucketFigures) -> [String; 5] {
    let window = bucket.busiest.as_ref().or(bucket.peak.as_ref());
    let length = window.map(|window| window.to_micros.saturating_sub(window.from_micros));
    let within = match length {
        Some(length) if bucket.busiest.is_some() => format!("{} s", decimal(length.into())),
        Some(_) => "at once".into(),
        None => "-".into(),
    };
    let amount = |amount: Option<i128>| amount.map_or_else(|| "-".into(), decimal);
    let (most, allowed) = (window.map(|window| window.granted), window.map(|window| window.allowed));
    [bucket.dimension.clone(), bucket.grants.to_string(), amount(most), amount(allowed), within]
}

/// A row for each share of a bucket: the least part of its guarantee that it got while its callers waited;
/// of slots, the longest time in which one was free meanwhile.
fn of_shares(bucket: &BucketFigures) -> Vec<[String; 7]> {
    let row = |of: &ShareFigures| {
        let worst =
            of.worst.as_ref().map_or_else(|| ["-".into(), "-".into()], |worst| [ratio(worst), length(worst)]);
        let [part, within] = worst;
        let (grants, borrowed) = (of.grants.to_string(), decimal(of.borrowed));
        let left_free = of.left_free.as_ref().map_or_else(|| "-".into(), free_for);
        [bucket.dimension.clone(), of.share.clone(), grants, borrowed, part, within, left_free]
    };
    bucket.shares.iter().map(row).collect()
}

fn ratio(worst: &Guarantee) -> String {
    let tenths = worst.granted.saturating_mul(1_000).checked_div(worst.guaranteed).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn length(worst: &Guarantee) -> String {
    format!("{} s", decimal(i128::from(worst.to_micros) - i128::from(worst.from_micros)))
}

fn free_for(window: &FreeSlot) -> String {
    format!("{} s", decimal(i128::from(window.to_micros) - i128::from(window.from_micros)))
}

/// Millionths as a decimal number, with at most three decimals.
fn decimal(micros: i128) -> String {
    output::short(&Amount::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)).to_string())
}
