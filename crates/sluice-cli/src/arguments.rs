//! The command line.

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(feature = "lab")]
use crate::lab::{bench, demo, sandbox, stress};
use crate::{
    acquire, buckets, cool_down, dashboard, doctor, groups, history, init, leases, metrics, pages, penalize,
    reconcile, redeem, run, watch,
};

/// Share one vendor's quota between many products, with a DynamoDB table between them and no server.
///
/// `SLUICE_TABLE_NAME`, or `SLUICE_ENV` (sandbox, pre, prod), names the table; `sluice sandbox` starts one on
/// this machine and prints the variables to set.
///
/// Exit codes: 0 for success; 1 for an error; 2 for an invalid command line; 75 for a retryable refusal;
/// `sluice run` returns the exit code of its command, 127 if there is no such command.
///
/// A time is a number with a unit, as in 5s, 250ms or 1m 30s, or a number of seconds. NO_COLOR=1 turns
/// colours off.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, max_term_width = 100)]
pub struct Arguments {
    /// Without one, `sluice` says what to do next.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Arguments {
    /// The command line of this process. Ends the process if it is not valid, or asks for help.
    #[must_use]
    pub fn of_process() -> Self {
        let matches = Self::grouped().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command, whose help shows its commands by who uses them.
    pub(crate) fn grouped() -> clap::Command {
        groups::grouped(Self::command())
    }
}

// One line of at most 60 characters for each command: `groups` lists them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write limits, Terraform variables and the line for a product
    ///
    /// Asks for vendor, tier and environment, unless flags name them.
    Init(init::Options),
    #[cfg(feature = "lab")]
    /// Show the whole system at work on this machine, with a verdict
    ///
    /// Runs processes against three local vendors, kills one process, and checks the result; exits with 1 if
    /// a claim fails.
    Demo(demo::Options),
    #[cfg(feature = "lab")]
    /// Serve an embedded DynamoDB with table and buckets
    Sandbox(sandbox::Options),
    /// Declare, list, refill and remove buckets
    Buckets(buckets::Options),
    /// List leases: who holds what, since when, until when
    Leases(leases::Options),
    /// Acquire, hold for a time, release
    Acquire(acquire::Options),
    /// Take a start that `acquire --ticket-within` booked
    Redeem(redeem::Options),
    /// Run a command inside a slot, and return its exit code
    Run(run::Options),
    /// Take away a part of a bucket's level, as after a 429
    Penalize(penalize::Options),
    /// Grant nothing from a bucket for a while; or end that
    ///
    /// As a vendor's Retry-After asks.
    CoolDown(cool_down::Options),
    /// Serve metrics of the table to Prometheus, at /metrics
    Metrics(metrics::Options),
    /// Show the table as a web page
    ///
    /// Levels and use over the last hour, holders, load, sweeps.
    Dashboard(dashboard::Options),
    /// Check the table for problems, and say what to do
    Doctor(doctor::Options),
    /// Show every bucket live: level, use, holders, waits
    Watch(watch::Options),
    /// Give back what crashed callers held
    Reconcile(reconcile::Options),
    #[cfg(feature = "lab")]
    /// Acquire and release from many workers, and check the result
    Stress(stress::Options),
    #[cfg(feature = "lab")]
    /// Compare the client with other ways to share a limit
    Bench(bench::Options),
    /// Read histories, and check whether every promise was kept
    History(history::Options),
    /// Print what a shell needs to complete `sluice`
    ///
    /// As in `sluice completions bash > ~/.local/share/bash-completion/completions/sluice`.
    Completions(pages::CompletionOptions),
    /// Print the manual page, or write all of them
    Man(pages::ManOptions),
    #[cfg(feature = "lab")]
    /// One caller process of the demo
    #[command(hide = true)]
    DemoWorker(demo::worker::Options),
    #[cfg(feature = "lab")]
    /// The engine of a bench
    #[command(hide = true)]
    BenchEngine(bench::engine::Options),
    #[cfg(feature = "lab")]
    /// The process whose memory a bench measures
    #[command(hide = true)]
    BenchMemory(bench::scenario::memory::Options),
    #[cfg(feature = "lab")]
    /// One process of a stress run
    #[command(hide = true)]
    StressWorker(stress::worker::Options),
}
