//! Events of the SDK (`tracing`) for the program's own log.

use std::fmt::{Debug, Write as _};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use parking_lot::RwLock;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::failure::Failure;

/// One event, as text.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// How serious it is.
    #[serde(serialize_with = "level_name")]
    pub level: Level,
    /// Its name, as `limit.near`; empty if it has none.
    pub event: String,
    /// What happened.
    pub message: String,
    /// More of it, in the order in which it was told.
    pub fields: Vec<(&'static str, String)>,
}

fn level_name<S: serde::Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match *level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    })
}

/// The level of this name: `error`, `warn`, `info` or `debug`.
///
/// # Errors
/// [`Failure`]: there is no such level.
pub fn level(name: &str) -> Result<Level, Failure> {
    Ok(match name {
        "error" => Level::ERROR,
        "warn" => Level::WARN,
        "info" => Level::INFO,
        "debug" => Level::DEBUG,
        _ => {
            return Err(Failure::argument(format!(
                "level = {name:?}: it must be error, warn, info or debug"
            )));
        }
    })
}

/// Where events go. It must not wait: it is called in the SDK's threads.
pub trait Logger: Send + Sync + 'static {
    /// Whether events of this level are wanted.
    fn is_enabled(&self, level: Level) -> bool;

    /// Takes an event.
    fn log(&self, record: Record);
}

static LOGGER: RwLock<Option<Arc<dyn Logger>>> = RwLock::new(None);

/// Sends the events of the process to `logger` from now on, and no longer to another; to nobody if there is
/// none.
pub fn log_to(logger: Option<Arc<dyn Logger>>) {
    let before = mem::replace(&mut *LOGGER.write(), logger);
    // Its end is the program's code, which may log.
    drop(before);
    // An error means that they go there already.
    let _ = tracing::subscriber::set_global_default(ToLogger);
}

/// Sends events of this level and above to `take`, which must not wait, and returns false if it has no room.
/// What it does not take is counted (`log.dropped`).
pub fn log_in_place(level: Level, take: impl Fn(Record) -> bool + Send + Sync + 'static) {
    log_in_place_if(move |of| of <= level, take);
}

/// The same for the events of the levels that `is_enabled`, which may change its mind.
pub fn log_in_place_if(
    is_enabled: impl Fn(Level) -> bool + Send + Sync + 'static,
    take: impl Fn(Record) -> bool + Send + Sync + 'static,
) {
    log_to(Some(Arc::new(InPlace { is_enabled, take, dropped: AtomicUsize::new(0) })));
}

/// The most events that wait for the program.
pub const MOST_WAITING: usize = 10_000;

/// Sends events of this level and above to `log`, in a thread of its own, which may wait. The thread ends,
/// and drops `log`, once another logger took its place and what was sent before is logged.
///
/// # Errors
/// The thread cannot be started.
pub fn log_in_thread(level: Level, log: impl Fn(Record) + Send + 'static) -> std::io::Result<()> {
    let (waiting, records) = sync_channel(MOST_WAITING);
    let thread = std::thread::Builder::new().name("sluice-log".to_owned());
    thread.spawn(move || records.into_iter().for_each(log))?;
    log_in_place(level, move |record| waiting.try_send(record).is_ok());
    Ok(())
}

struct InPlace<E, T> {
    is_enabled: E,
    take: T,
    dropped: AtomicUsize,
}

impl<E, T> Logger for InPlace<E, T>
where
    E: Fn(Level) -> bool + Send + Sync + 'static,
    T: Fn(Record) -> bool + Send + Sync + 'static,
{
    fn is_enabled(&self, level: Level) -> bool {
        (self.is_enabled)(level)
    }

    fn log(&self, record: Record) {
        let lost = self.dropped.swap(0, Ordering::Relaxed);
        if lost > 0 && !(self.take)(Record::dropped(lost)) {
            self.dropped.fetch_add(lost, Ordering::Relaxed);
        }
        if !(self.take)(record) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct ToLogger;

impl Subscriber for ToLogger {
    // The logger may change: no answer is remembered.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("sluice")
            && LOGGER.read().as_ref().is_some_and(|logger| logger.is_enabled(*metadata.level()))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut record = Record { level, event: String::new(), message: String::new(), fields: Vec::new() };
        event.record(&mut record);
        let logger = LOGGER.read().clone();
        if let Some(logger) = logger {
            logger.log(record);
        }
    }

    // Spans are for tracers, which a log is not.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Record {
    /// The event as one line: its name, what happened, and the fields.
    #[must_use]
    pub fn line(&self) -> String {
        let colon = if self.event.is_empty() || self.message.is_empty() { "" } else { ": " };
        let mut line = format!("{}{colon}{}", self.event, self.message);
        for (name, value) in &self.fields {
            let _ = write!(line, " {name}={value}");
        }
        line
    }

    fn dropped(records: usize) -> Self {
        let message = "the program's log is slower than the events".to_owned();
        let fields = vec![("records", records.to_string())];
        Self { level: Level::WARN, event: "log.dropped".to_owned(), message, fields }
    }

    fn set(&mut self, field: &Field, value: String) {
        match field.name() {
            "event" => self.event = value,
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// The logger is one for the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn events_go_to_the_last_logger_from_its_level_on_and_to_nobody_without_one() {
        let _alone = ONE_AT_A_TIME.lock();
        let (first, of_first) = channel();
        log_in_thread(Level::WARN, move |record| first.send(record.line()).unwrap()).unwrap();
        tracing::info!(event = "too.low");
        tracing::warn!(event = "settle.not_held", dimension = "a#rpm", used = 3, "nothing is held");
        assert_eq!(of_first.recv().unwrap(), "settle.not_held: nothing is held dimension=a#rpm used=3");

        let (second, of_second) = channel();
        log_in_thread(Level::DEBUG, move |record| second.send(record).unwrap()).unwrap();
        assert!(of_first.recv().is_err(), "its thread has ended, and has dropped it");
        tracing::debug!(event = "low.enough");
        let record = serde_json::to_value(of_second.recv().unwrap()).unwrap();
        assert_eq!((&record["level"], &record["event"]), (&"debug".into(), &"low.enough".into()));

        log_to(None);
        tracing::error!(event = "to.nobody");
        assert!(of_second.recv_timeout(Duration::from_secs(5)).is_err());
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let _alone = ONE_AT_A_TIME.lock();
        let (sender, taken) = sync_channel::<Record>(2);
        log_in_place(Level::WARN, move |record| sender.try_send(record).is_ok());
        for _ in 0..5 {
            tracing::warn!(event = "many");
        }
        assert_eq!(
            (taken.recv().unwrap().event, taken.recv().unwrap().event),
            ("many".to_owned(), "many".to_owned())
        );
        tracing::warn!(event = "after");
        let dropped = taken.recv().unwrap();
        assert_eq!(
            (dropped.event.as_str(), &*dropped.fields),
            ("log.dropped", &[("records", "3".to_owned())][..])
        );
        assert_eq!(taken.recv().unwrap().event, "after");
        log_to(None);
    }

    #[test]
    fn a_level_has_a_name() {
        assert_eq!(level("debug").unwrap(), Level::DEBUG);
        assert_eq!(level("loud").unwrap_err().class, "ArgumentError");
    }
}
