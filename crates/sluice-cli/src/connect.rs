//! The client of a command, and its log.

use sluice_sdk::Client;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;

/// The client that the environment describes.
pub(crate) async fn client() -> Result<Client, Failure> {
    Ok(Client::from_env().await?)
}

/// Logs of `SLUICE_LOG_LEVEL` (WARN for a command, unless it is set) on standard error, as JSON where that is no terminal.
///
/// A warning of what somebody just asked for tells nothing new: the module in `asked_for` is silent, unless the level is set.
pub(crate) fn log(asked_for: Option<&'static str>) {
    use std::io::IsTerminal as _;
    let level = std::env::var("SLUICE_LOG_LEVEL").ok();
    let level = level.as_deref().and_then(sluice_sdk::log_level).and_then(|level| level.parse().ok());
    let silent = asked_for.filter(|_| level.is_none()).map(|target| (target, LevelFilter::ERROR));
    let level = level.unwrap_or(LevelFilter::WARN);
    let targets = Targets::new().with_target("sluice_sdk", level).with_target("sluice_cli", level).with_targets(silent);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    if std::io::stderr().is_terminal() {
        registry.with(lines.compact().without_time().with_target(false)).init();
    } else {
        registry.with(lines.json().flatten_event(true)).init();
    }
}
