//! The command line.

use clap::{Parser, Subcommand};

#[cfg(feature = "lab")]
use crate::lab::{bench, demo, sandbox, stress};
use crate::{
    acquire, buckets, cool_down, dashboard, doctor, history, leases, metrics, penalize, reconcile, redeem, run, watch,
};

/// Share one vendor's quota between many products, with a DynamoDB table between them and no server.
///
/// `SLUICE_TABLE_NAME`, or `SLUICE_ENV` (sandbox, pre, prod), names the table; `sluice sandbox` starts one on
/// this machine and prints the variables to set.
///
/// Exit codes: 0 for success; 1 for an error; 2 for an invalid command line; 75 for a retryable refusal;
/// `sluice run` returns the exit code of its command.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(feature = "lab")]
    /// Run processes against three local vendors, kill one process, check the result; exits with 1 if a claim fails
    Demo(demo::Options),
    #[cfg(feature = "lab")]
    /// Serve an embedded DynamoDB with table and buckets, for development
    Sandbox(sandbox::Options),
    /// Declare, list, refill and remove buckets
    Buckets(buckets::Options),
    /// List leases: who holds what, since when, until when
    Leases(leases::Options),
    /// Acquire, hold for a time, release
    Acquire(acquire::Options),
    /// Take a start that acquire --ticket-within booked, hold for a time, release
    Redeem(redeem::Options),
    /// Run a command inside a slot, and return its exit code
    Run(run::Options),
    /// Take away a share of a bucket's level, as after a 429
    Penalize(penalize::Options),
    /// Grant nothing from a bucket for a while, as a vendor's Retry-After asks; or end that
    CoolDown(cool_down::Options),
    /// Serve metrics of the table to Prometheus, at /metrics
    Metrics(metrics::Options),
    /// Show the table as a web page: levels and use over the last hour, holders, load, sweeps
    Dashboard(dashboard::Options),
    /// Check the table for problems, and say what to do about each
    Doctor(doctor::Options),
    /// Show every bucket live: level, use, holders, waits
    Watch(watch::Options),
    /// Give back what crashed callers held
    Reconcile(reconcile::Options),
    #[cfg(feature = "lab")]
    /// Acquire and release from many workers at once, and check the result (with --history)
    Stress(stress::Options),
    #[cfg(feature = "lab")]
    /// Compare the client with other ways to share a limit
    Bench(bench::Options),
    /// Read histories, and check whether every promise was kept
    History(history::Options),
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
