//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    acquire, bench, buckets, cool_down, dashboard, demo, doctor, history, leases, metrics, penalize, reconcile, redeem,
    run, sandbox, stress, watch,
};

/// Share one vendor's quota between many products, with a DynamoDB table between them and no server.
///
/// The table is named by `SLUICE_TABLE_NAME`, or by `SLUICE_ENV` (sandbox, pre, prod); `sluice sandbox` starts one on this
/// machine and prints the variables to set.
///
/// Exit codes: 0; 1 for an error; 2 for a command line that makes no sense; 75 for a refusal that time will end; and that of the
/// command that `sluice run` ran.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run several processes against three vendors on this machine, kill one, and show what came of it; exits with 1 where a claim fails
    Demo(demo::Options),
    /// Serve an embedded DynamoDB with table and buckets, for development
    Sandbox(sandbox::Options),
    /// Declare, list and remove buckets
    Buckets(buckets::Options),
    /// List leases: who holds what, since when, until when
    Leases(leases::Options),
    /// Acquire, hold for a time, release
    Acquire(acquire::Options),
    /// Take up a start that was booked with acquire --ticket-within, hold for a time, release
    Redeem(redeem::Options),
    /// Run a command inside a slot, and pass its exit code on
    Run(run::Options),
    /// Take a share of a bucket's level away, as after a 429
    Penalize(penalize::Options),
    /// Grant nothing of a bucket for a while, as a vendor's Retry-After asks
    CoolDown(cool_down::Options),
    /// Serve what the table holds to Prometheus, at /metrics
    Metrics(metrics::Options),
    /// Show the table as a web page: levels and use over the last hour, holders, load, sweeps
    Dashboard(dashboard::Options),
    /// Look for what is amiss in the table, and say what to do about it
    Doctor(doctor::Options),
    /// Show every bucket live: level, use, holders, waits
    Watch(watch::Options),
    /// Give back what crashed callers held
    Reconcile(reconcile::Options),
    /// Acquire and release from many workers at once, and judge what came of it (with --history)
    Stress(stress::Options),
    /// Measure the client beside other ways to share a limit
    Bench(bench::Options),
    /// Read histories, and decide whether every promise was kept
    History(history::Options),
    /// One caller process of the demo
    #[command(hide = true)]
    DemoWorker(demo::worker::Options),
    /// The engine of a bench
    #[command(hide = true)]
    BenchEngine(bench::engine::Options),
    /// The process whose memory a bench measures
    #[command(hide = true)]
    BenchMemory(bench::scenario::memory::Options),
    /// One process of a stress run
    #[command(hide = true)]
    StressWorker(stress::worker::Options),
}
