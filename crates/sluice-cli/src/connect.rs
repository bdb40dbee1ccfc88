//! The client of a command, and its log.

use sluice_sdk::Client;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// The client that the environment describes.
pub(crate) async fn client() -> Result<Client, Failure> {
    Ok(Client::from_env().await?)
}

/// Logs of `SLUICE_LOG_LEVEL` (WARN for a command, unless it is set) on standard error, as JSON where that is no terminal.
pub(crate) fn log() {
    use std::io::IsTerminal as _;
    let level = std::env::var("SLUICE_LOG_LEVEL").ok();
    let level = level.as_deref().and_then(sluice_sdk::log_level).unwrap_or("warn");
    let filter = EnvFilter::new(format!("off,sluice_sdk={level},sluice_cli={level}"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        subscriber.compact().without_time().with_target(false).init();
    } else {
        subscriber.json().flatten_event(true).init();
    }
}
