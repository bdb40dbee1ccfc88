//! The client of a command, and its log.

use std::fmt;

use sluice_sdk::{Client, ClientBuilder};
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;
use crate::output::plain;

pub(crate) async fn client() -> Result<Client, Failure> {
    // Cron sets only the second, a container neither.
    let user = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    client_called(user.as_deref().unwrap_or("sluice")).await
}

/// A client whose leases name `who` on this machine as their holder, unless `SLUICE_CALLER` is set. The name
/// of this program would be that of every holder.
pub(crate) async fn client_called(who: &str) -> Result<Client, Failure> {
    // A command prints its answer, and no metrics.
    let client = ClientBuilder::from_env()?.emf(false);
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let client = match is_set("SLUICE_CALLER") || is_set("AWS_LAMBDA_FUNCTION_NAME") {
        true => client,
        false => client.caller(holder(who, machine().as_deref())),
    };
    Ok(client.connect().await)
}

fn holder(who: &str, machine: Option<&str>) -> String {
    let who = if who.is_empty() { "sluice" } else { who };
    machine.map_or_else(|| who.to_owned(), |machine| format!("{who}@{machine}"))
}

/// The name of this machine, if it has one.
fn machine() -> Option<String> {
    let of_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let of_program = || {
        let told = std::process::Command::new("hostname").stdin(std::process::Stdio::null()).output().ok()?;
        String::from_utf8(told.stdout).ok()
    };
    let name = of_kernel.or_else(of_program)?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFor {
    /// A person, or the log of a script: lines.
    People,
    /// Whoever reads the log of a service: lines on a terminal, else JSON.
    Collectors,
}

/// Logs at `SLUICE_LOG_LEVEL` (WARN by default for a command) on standard error. The modules in `known` are
/// silent unless the level is set: the user asked for what they warn of, or the command says it.
pub(crate) fn log(reader: LogFor, known: &'static [&'static str]) {
    use std::io::IsTerminal as _;
    let level = std::env::var("SLUICE_LOG_LEVEL").ok();
    let level = level.as_deref().and_then(sluice_table::log_level).and_then(|level| level.parse().ok());
    let silent = known.iter().filter(|_| level.is_none()).map(|target| (*target, LevelFilter::ERROR));
    let silent: Vec<_> = silent.collect();
    let level = level.unwrap_or(LevelFilter::WARN);
    let targets = Targets::new()
        .with_target("sluice_sdk", level)
        .with_target("sluice_ops", level)
        .with_target("sluice_table", level)
        .with_target("sluice_cli", level)
        .with_targets(silent);
    let registry = tracing_subscriber::registry().with(targets);
    let colours = Colours::of(anstream::AutoStream::choice(&std::io::stderr()));
    if reader == LogFor::People || std::io::stderr().is_terminal() {
        registry.with(lines(std::io::stderr, colours)).init();
    } else {
        registry.with(layer().with_writer(std::io::stderr).json().flatten_event(true)).init();
    }
}

/// Whether log lines have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    On,
    Off,
}

impl Colours {
    fn of(choice: anstream::ColorChoice) -> Self {
        if choice == anstream::ColorChoice::Never { Self::Off } else { Self::On }
    }
}

/// Log lines for a person. Fields contain keys of rows, so control characters are removed from them.
fn lines<S, W>(writer: W, colours: Colours) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        match (field.name(), plain(&value)) {
            ("message", value) => write!(writer, "{value}"),
            (name, value) => write!(writer, "{name}={value}"),
        }
    };
    let layer = layer().compact().without_time().with_target(false).with_ansi(colours == Colours::On);
    layer.fmt_fields(debug_fn(field).delimited(" ")).with_writer(writer)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_holder_is_named_by_who_and_where() {
        assert_eq!(holder("alice", Some("build-7")), "alice@build-7");
        assert_eq!(holder("", Some("build-7")), "sluice@build-7");
        assert_eq!(holder("alice", None), "alice");
    }

    #[test]
    fn a_log_gives_a_terminal_no_commands_from_a_row() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::registry().with(lines(move || writer.clone(), Colours::On));
        tracing::subscriber::with_default(subscriber, || {
            let key = "lease#a#b#\u{1b}]0;stolen\u{7}\r\nc";
            tracing::error!(event = "reconciler.unparsable", lease = %key, "cannot read {key}");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(
            text.contains("event=\"reconciler.unparsable\"") && text.contains("lease=lease#a#b#\u{fffd}]0;"),
            "{text:?}"
        );
        assert!(text.contains("cannot read lease#a#b#\u{fffd}]0;"), "{text:?}");
        assert!(
            !text.contains("\u{1b}]") && !text.contains(['\u{7}', '\r']) && text.lines().count() == 1,
            "{text:?}"
        );
    }
}
