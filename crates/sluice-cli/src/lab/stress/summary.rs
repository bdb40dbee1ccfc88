//! The figures of a run.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use sluice_history::Verdict;

use super::Options;
use super::worker::Figures;
use crate::history;
use crate::lab::figures::{percentile_ms, ratio, rounded};
use crate::output::{BOLD, DIM, RED, YELLOW};

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    dimensions: Vec<String>,
    processes: u32,
    workers: u32,
    seconds: f64,
    grants: u64,
    grants_per_second: f64,
    refusals: u64,
    without_table: u64,
    errors: u64,
    last_error: Option<String>,
    acquire_p50_ms: f64,
    acquire_p99_ms: f64,
    read_units: u64,
    write_units: u64,
    history: Option<PathBuf>,
    pub(crate) verdict: Option<Verdict>,
}

impl Summary {
    pub(crate) fn new(
        options: &Options,
        reports: Vec<Figures>,
        lasted: Duration,
        verdict: Option<Verdict>,
    ) -> Self {
        let sum = |count: fn(&Figures) -> u64| reports.iter().map(count).sum::<u64>();
        let (grants, refusals, errors) = (sum(|r| r.grants), sum(|r| r.refusals), sum(|r| r.errors));
        let without_table = sum(|r| r.without_table);
        let (read_units, write_units) = (sum(|r| r.read_units), sum(|r| r.write_units));
        let last_error = reports.iter().find_map(|report| report.last_error.clone());
        let mut micros: Vec<u64> = reports.into_iter().flat_map(|report| report.acquire_micros).collect();
        micros.sort_unstable();
        let lasted_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        Self {
            dimensions: options.dimensions.clone(),
            processes: options.processes,
            workers: options.workers,
            seconds: rounded(lasted.as_secs_f64()),
            grants,
            grants_per_second: rounded(1_000.0 * ratio(grants, lasted_ms)),
            refusals,
            without_table,
            errors,
            last_error,
            acquire_p50_ms: percentile_ms(&micros, 50),
            acquire_p99_ms: percentile_ms(&micros, 99),
            read_units,
            write_units,
            history: options.history.clone(),
            verdict,
        }
    }

    pub(crate) fn print(&self) {
        let Self { grants, grants_per_second, refusals, without_table, errors, seconds, .. } = self;
        let (bold, plain) = (BOLD.render(), BOLD.render_reset());
        println!();
        anstream::println!(
            "{bold}grants{plain}   {grants} in {seconds:.1} s, {grants_per_second:.1} a second"
        );
        anstream::println!("{bold}refusals{plain} {refusals}; errors {errors}");
        anstream::println!(
            "{bold}acquire{plain}  p50 {:.1} ms, p99 {:.1} ms (of granted acquires)",
            self.acquire_p50_ms,
            self.acquire_p99_ms
        );
        anstream::println!(
            "{bold}units{plain}    {} written, {} read, as DynamoDB states them",
            self.write_units,
            self.read_units
        );
        if let Some(error) = &self.last_error {
            anstream::println!("{}last error{} {error}", RED.render(), RED.render_reset());
        }
        if *without_table > 0 {
            anstream::println!(
                "{}{without_table} grants without the table{} are not in the history",
                YELLOW.render(),
                YELLOW.render_reset()
            );
        }
        match &self.verdict {
            Some(verdict) => {
                println!();
                history::print(verdict);
            }
            None => {
                let how = self.history.as_ref().map_or_else(
                    || "give --history FILE".into(),
                    |file| format!("sluice history {} judges it", file.display()),
                );
                anstream::println!("{}not judged: {how}{}", DIM.render(), DIM.render_reset());
            }
        }
    }
}
