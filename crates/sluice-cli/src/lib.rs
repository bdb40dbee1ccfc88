//! The `sluice` command: one module for each subcommand.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod arguments;
mod bench;
mod buckets;
mod connect;
mod cool_down;
mod dashboard;
mod demo;
mod doctor;
mod duration;
mod failure;
mod figures;
mod history;
mod leases;
mod loopback;
mod metrics;
mod output;
mod penalize;
mod reconcile;
mod redeem;
mod run;
mod sandbox;
mod signals;
mod stress;
mod view;
mod watch;

use std::process::ExitCode;

pub use arguments::Arguments;
use arguments::Command;

/// Runs one command. The exit code is 0 for success, 1 for an error, 75 (`EX_TEMPFAIL`) for a retryable
/// refusal, or the exit code of the program that `sluice run` ran.
pub async fn run(arguments: Arguments) -> ExitCode {
    output::end_with_the_reader();
    if !matches!(&arguments.command, Command::Watch(options) if options.owns_the_screen()) {
        connect::log(match &arguments.command {
            Command::CoolDown(_) => Some("sluice_sdk::vendor::cool_down"),
            _ => None,
        });
    }
    let result = match arguments.command {
        Command::Sandbox(options) => sandbox::run(options).await,
        Command::Buckets(options) => buckets::run(options).await,
        Command::Leases(options) => leases::run(options).await,
        Command::Acquire(options) => acquire::run(options).await,
        Command::Redeem(options) => redeem::run(options).await,
        Command::Run(options) => run::run(options).await,
        Command::Penalize(options) => penalize::run(options).await,
        Command::CoolDown(options) => cool_down::run(options).await,
        Command::Metrics(options) => metrics::run(options).await,
        Command::Dashboard(options) => dashboard::run(options).await,
        Command::Doctor(options) => doctor::run(options).await,
        Command::Watch(options) => watch::run(options).await,
        Command::Reconcile(options) => reconcile::run(options).await,
        Command::Demo(options) => demo::run(options).await,
        Command::Stress(options) => stress::run(options).await,
        Command::Bench(options) => bench::run(options).await,
        Command::BenchEngine(options) => bench::engine::serve(options).await,
        Command::BenchMemory(options) => bench::scenario::memory::measure(options).await,
        Command::History(options) => history::run(&options),
        Command::DemoWorker(options) => demo::worker::run(options).await,
        Command::StressWorker(options) => stress::worker::run(options).await,
    };
    result.unwrap_or_else(|failure| {
        output::print_error(failure);
        ExitCode::FAILURE
    })
}
