//! `sluice`: see `sluice --help`.

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    sluice_cli::run(sluice_cli::Arguments::parse()).await
}
