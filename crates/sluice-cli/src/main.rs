//! `sluice`: see `sluice --help`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    sluice_cli::run(sluice_cli::Arguments::of_process()).await
}
