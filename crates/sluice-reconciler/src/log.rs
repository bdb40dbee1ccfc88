//! The log: JSON lines on standard output, where Lambda collects them.

use std::io::Write as _;

use serde::Serialize;
use sluice_ops::REPORT_TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logs at `SLUICE_LOG_LEVEL` (INFO by default). The report of a sweep is left out: the function prints it
/// itself, with arrays and objects, which a `tracing` field cannot hold.
pub fn log_to_stdout() {
    let level = std::env::var("SLUICE_LOG_LEVEL").ok();
    let level = level.as_deref().and_then(sluice_table::log_level).and_then(|level| level.parse().ok());
    let level = level.unwrap_or(LevelFilter::INFO);
    let targets = Targets::new()
        .with_target("sluice_ops", level)
        .with_target("sluice_table", level)
        .with_target("sluice_reconciler", level)
        .with_target(REPORT_TARGET, LevelFilter::OFF)
        // This layer would log every error of a run a second time, in full.
        .with_target("lambda_runtime::layers::panic", LevelFilter::OFF)
        .with_default(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false);
    tracing_subscriber::registry().with(targets).with(lines).init();
}

/// Writes a line. A sweep does not stop because its output is closed.
pub(crate) fn print(line: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    if let Ok(line) = serde_json::to_string(line) {
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
