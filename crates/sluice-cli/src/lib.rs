//! The `sluice` command: one module for each subcommand.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod arguments;
mod buckets;
mod connect;
mod cool_down;
mod dashboard;
mod doctor;
mod duration;
mod failure;
mod groups;
mod history;
mod init;
#[cfg(feature = "lab")]
mod lab;
mod leases;
mod loopback;
mod metrics;
mod output;
mod pages;
mod penalize;
mod reconcile;
mod redeem;
mod run;
mod signals;
mod start;
mod view;
mod watch;

use std::process::ExitCode;

pub use arguments::Arguments;
use arguments::Command;
use connect::LogFor;

/// Runs one command; without one, says what to do next. The exit code is 0 for success, 1 for an error, 75
/// (`EX_TEMPFAIL`) for a retryable refusal, or the exit code of the program that `sluice run` ran.
pub async fn run(arguments: Arguments) -> ExitCode {
    output::end_with_the_reader();
    let Some(command) = arguments.command else {
        start::print();
        return ExitCode::SUCCESS;
    };
    if !matches!(&command, Command::Watch(options) if options.owns_the_screen()) {
        let reader = match &command {
            Command::Metrics(_) | Command::Dashboard(_) => LogFor::Collectors,
            Command::Reconcile(options) if !options.once => LogFor::Collectors,
            _ => LogFor::People,
        };
        let asked_for = match &command {
            Command::CoolDown(_) => &["sluice_sdk::vendor::cool_down", "sluice_sdk::vendor::refill"][..],
            // `apply` prints the warnings about limits itself.
            Command::Buckets(_) => &["sluice_sdk::vendor::refill", "sluice_ops::limits"],
            // A single call cannot act on what a product's owner should know.
            Command::Acquire(_) | Command::Redeem(_) | Command::Run(_) => &["sluice_sdk::bucket::near_limit"],
            _ => &[],
        };
        connect::log(reader, asked_for);
    }
    let result = match command {
        #[cfg(feature = "lab")]
        Command::Sandbox(options) => lab::sandbox::run(options).await,
        Command::Init(options) => init::run(&options),
        Command::Completions(options) => pages::completions(&options, &Arguments::grouped()),
        Command::Man(options) => pages::man(&options, &Arguments::grouped()),
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
        #[cfg(feature = "lab")]
        Command::Demo(options) => lab::demo::run(options).await,
        #[cfg(feature = "lab")]
        Command::Stress(options) => lab::stress::run(options).await,
        #[cfg(feature = "lab")]
        Command::Bench(options) => lab::bench::run(options).await,
        #[cfg(feature = "lab")]
        Command::BenchEngine(options) => lab::bench::engine::serve(options).await,
        #[cfg(feature = "lab")]
        Command::BenchMemory(options) => lab::bench::scenario::memory::measure(options).await,
        Command::History(options) => history::run(&options),
        #[cfg(feature = "lab")]
        Command::DemoWorker(options) => lab::demo::worker::run(options).await,
        #[cfg(feature = "lab")]
        Command::StressWorker(options) => lab::stress::worker::run(options).await,
    };
    result.unwrap_or_else(|failure| {
        output::print_error(failure);
        ExitCode::FAILURE
    })
}
