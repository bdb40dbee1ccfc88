//! `sluice reconcile`: the sweep, from a shell.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_sdk::core::Amount;
use sluice_sdk::{SweepOptions, SweepReport};

use crate::arguments::duration;
use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::output;
use crate::signals::stop_requested;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Sweep once and stop; without, sweep on until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Time between two sweeps
    #[arg(long, value_parser = duration, default_value = "5m")]
    interval: Duration,
    /// Print JSON, a line for each sweep
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    loop {
        let swept = client.sweep(SweepOptions::default()).await;
        match swept {
            Ok(report) => print(&report, options.json)?,
            Err(error) if options.once => return Err(error.into()),
            // One sweep that fails is the next one's work.
            Err(error) => anstream::eprintln!("{}error:{} {error}", output::RED.render(), output::RED.render_reset()),
        }
        if options.once {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = tokio::time::sleep(options.interval) => {}
            () = stop_requested() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn print(report: &SweepReport, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let SweepReport {
        rows_scanned,
        expired,
        restored,
        already_capped,
        unparsable,
        left,
        refused,
        segments_unscanned,
        ..
    } = report;
    println!("{rows_scanned} rows, {expired} ended leases: {restored} given back, {already_capped} already capped");
    for (dimension, restored) in &report.dimensions {
        println!("  {dimension}: {}", restored.leases);
    }
    for (dimension, slots) in &report.drift {
        println!("  {dimension}: {}", drift(*slots, report.corrected.get(dimension)));
    }
    if unparsable + left + refused > 0 {
        println!("left alone: {unparsable} unreadable, {refused} refused, {left} for the next sweep");
    }
    if *segments_unscanned > 0 {
        println!("not scanned to the end: {segments_unscanned} segments, by the end of the time or throttling");
    }
    Ok(())
}

/// Slots that are neither free nor held, or free beyond the capacity.
fn drift(slots: Amount, corrected: Option<&Amount>) -> String {
    let what = if slots < Amount::ZERO { "too many" } else { "lost" };
    let next = match corrected {
        Some(corrected) => format!("{} put right", corrected.abs()),
        None => "put right once two sweeps running find it".into(),
    };
    format!("{} slots {what}: {next}", slots.abs())
}
