//! Prints metrics of callers for CloudWatch: the one recorder that the SDK can install itself.

use std::sync::OnceLock;
use std::time::Duration;

use sluice_core::schema::{ENVIRONMENTS, table_name};
use sluice_table::Clock;
use sluice_table::emf::EmfRecorder;

/// How often the counts are printed. CloudWatch keeps them by the minute.
const EVERY: Duration = Duration::from_secs(10);

static INSTALLED: OnceLock<EmfRecorder> = OnceLock::new();

/// The program has a recorder of its own, which receives all metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metrics cannot be printed for CloudWatch: this program has installed another recorder of `metrics`")]
pub struct InstallError;

/// Prints the refusals of callers and of vendors, shed requests, and the times without DynamoDB as metrics of
/// CloudWatch (Embedded Metric Format), in namespace `Sluice`, by `Environment` and by bucket.
/// `docs/metrics.md` names them. The environment is that of the table that `SLUICE_TABLE_NAME`, else
/// `SLUICE_ENV` names, as for a client: alarms look at this name.
///
/// A line is printed every 10 s in which something was counted; [`flush`] prints at once. A second call does
/// nothing.
///
/// # Errors
/// [`InstallError`] if the program has installed another recorder.
pub fn install() -> Result<(), InstallError> {
    let table = table_of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    install_for_table(table.as_deref().unwrap_or("unknown"))
}

/// The table that a client would use with these variables.
fn table_of(set: impl Fn(&str) -> Option<String>) -> Option<String> {
    set("SLUICE_TABLE_NAME").or_else(|| set("SLUICE_ENV").map(|environment| table_name(&environment)))
}

/// As [`install`], for a client of `table`.
pub(crate) fn install_for_table(table: &str) -> Result<(), InstallError> {
    install_for(environment_of(table))
}

/// The environment of a table with the usual name, else the table's name.
fn environment_of(table: &str) -> &str {
    ENVIRONMENTS.into_iter().find(|environment| table_name(environment) == table).unwrap_or(table)
}

fn install_for(environment: &str) -> Result<(), InstallError> {
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    let recorder = EmfRecorder::new(environment);
    ::metrics::set_global_recorder(recorder.clone()).map_err(|_| InstallError)?;
    let _ = INSTALLED.set(recorder);
    // A thread, because a function may have no runtime between two events. Frozen with the function, it goes
    // on with the next event.
    let print = || {
        loop {
            std::thread::sleep(EVERY);
            flush();
        }
    };
    // Without the thread, only `flush` prints.
    let _ = std::thread::Builder::new().name("sluice-emf".into()).spawn(print);
    Ok(())
}

/// Prints what was counted since the last line, for the end of an invocation: a function that is frozen
/// prints the rest only with its next event. Does nothing without [`install`].
pub fn flush() {
    if let Some(recorder) = INSTALLED.get() {
        recorder.flush(Clock::system().now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to begin print one name: the alarms look at it.
    #[test]
    fn the_environment_is_that_of_the_table_however_it_is_named() {
        let named = |table: Option<&str>, env: Option<&str>| {
            let table = table_of(|name| if name == "SLUICE_ENV" { env } else { table }.map(str::to_owned));
            table.map(|table| environment_of(&table).to_owned())
        };
        assert_eq!(named(None, Some("prod")).as_deref(), Some("prod"));
        assert_eq!(named(Some("ontopix-vendor-buckets-pre"), Some("prod")).as_deref(), Some("pre"));
        let prefixed = "acme-ontopix-vendor-buckets-prod";
        assert_eq!(named(Some(prefixed), Some("prod")).as_deref(), Some(prefixed));
        assert_eq!(named(None, None), None);
    }

    #[test]
    fn a_second_call_changes_nothing() {
        assert_eq!((install_for("prod"), install_for("pre")), (Ok(()), Ok(())));
        flush();
    }
}
