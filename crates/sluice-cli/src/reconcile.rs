//! `sluice reconcile`: runs the sweep from a shell.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_ops::{SweepOptions, SweepReport};
use sluice_sdk::core::Amount;

use crate::connect::client;
use crate::duration::duration;
use crate::failure::{Ended, Failure};
use crate::output;
use crate::signals::stop_requested;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Sweep once and stop; without it, sweep until Ctrl-C
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two sweeps, one second at least
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "5m")]
    interval: Duration,
    /// The longest time that a call takes, one second at least. Waits are estimated as if each slot came free
    /// at least once in this time [default: SLUICE_SLOWEST_CALL, as in 15m or 900; else 15m]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    slowest_call: Option<Duration>,
    /// Print JSON, a line for each sweep
    #[arg(long)]
    json: bool,
}

/// Parses a time of one second at least: a sweep reads the whole table, and zero sets no floor.
fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        interval if interval < Duration::from_secs(1) => {
            Err("it must be one second at least, as in 5m".into())
        }
        interval => Ok(interval),
    }
}

pub(crate) async fn run(options: Options) -> Ended {
    // One listener for the whole run: a signal during a sweep counts too. A sweep may be cut off anywhere.
    let mut stop = std::pin::pin!(stop_requested());
    let ops = client().await?.ops();
    let mut how = SweepOptions::from_env()?;
    how.slowest_call = options.slowest_call.unwrap_or(how.slowest_call);
    if !options.once && !options.json {
        println!("sweeping every {}; Ctrl-C stops", humantime::format_duration(options.interval));
    }
    loop {
        let swept = tokio::select! {
            swept = ops.sweep(how.clone()) => swept,
            () = &mut stop => return Ok(ExitCode::SUCCESS),
        };
        match swept {
            Ok(report) => print(&report, options.json)?,
            Err(error) if options.once => return Err(error.into()),
            // If a sweep fails, the next one does its work.
            Err(error) => output::print_error(error),
        }
        if options.once {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = tokio::time::sleep(options.interval) => {}
            () = &mut stop => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn print(report: &SweepReport, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let SweepReport { expired, restored, already_capped, lost_races, unparsable, left, refused, .. } = report;
    println!(
        "{} read, {}: {restored} given back",
        count(report.rows_scanned, "row"),
        count(*expired, "ended lease")
    );
    for (dimension, restored) in &report.dimensions {
        let what = if restored.slots > 0 { ", its slots are free" } else { "" };
        println!("  {dimension}: {}{what}", count(restored.leases, "lease"));
    }
    for (dimension, slots) in &report.drift {
        println!("  {dimension}: {}", drift(*slots, report.corrected.get(dimension)));
    }
    for (dimension, fault) in &report.unreadable {
        println!("  {dimension}: the row cannot be read, and all callers get errors: {fault}");
    }
    let unnamed = report.unreadable_buckets.saturating_sub(report.unreadable.len());
    if unnamed > 0 {
        println!("  {} more cannot be read", count(unnamed, "bucket"));
    }
    let rest = [
        (*already_capped, "deleted without all of their slots: the bucket was full"),
        (*lost_races, "released or renewed meanwhile"),
        (*left, "left for the next sweep"),
        (*refused, "rejected by DynamoDB, or of a bucket that cannot be read; the log says why"),
        (*unparsable, "not readable: repair or delete the rows that the log names"),
    ];
    for (leases, what) in rest.iter().filter(|(leases, _)| *leases > 0) {
        println!("  {} {what}", count(*leases, "lease"));
    }
    if report.segments_unscanned > 0 {
        let segments = count(report.segments_unscanned, "segment");
        println!("  {segments} of the table not scanned to the end, because of throttling");
    }
    Ok(())
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Slots that are neither free nor held, or that are free beyond the capacity.
fn drift(slots: Amount, corrected: Option<&Amount>) -> String {
    let what = if slots < Amount::ZERO { "too many" } else { "lost" };
    let next = match corrected {
        Some(corrected) => format!("{} corrected", corrected.abs()),
        None => "corrected if the next sweep finds it too".into(),
    };
    format!("slots {what}: {}; {next}", slots.abs())
}
