//! Events of the SDK (`tracing`) for the program's own log.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use parking_lot::RwLock;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

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
#[must_use]
pub fn level(name: &str) -> Option<Level> {
    Some(match name {
        "error" => Level::ERROR,
        "warn" => Level::WARN,
        "info" => Level::INFO,
        "debug" => Level::DEBUG,
        _ => return None,
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

/// Sends the events of the process to `logger` from now on, and no longer to another; to nobody if there is none.
pub fn log_to(logger: Option<Arc<dyn Logger>>) {
    *LOGGER.write() = logger;
    // An error means that they go there already.
    let _ = tracing::subscriber::set_global_default(ToLogger);
}

/// The most events that wait for the program. What is beyond is dropped, and counted (`log.dropped`).
const MOST_WAITING: usize = 10_000;

/// A logger in a thread of its own, which may wait.
struct InThread {
    level: Level,
    waiting: SyncSender<Record>,
    dropped: Arc<AtomicUsize>,
}

/// Sends events of this level and above to `log`, in a thread of its own, until there is another logger or none.
///
/// # Errors
/// The thread cannot be started.
pub fn log_in_thread(level: Level, log: impl Fn(Record) + Send + 'static) -> std::io::Result<()> {
    let (waiting, records) = sync_channel::<Record>(MOST_WAITING);
    let dropped = Arc::new(AtomicUsize::new(0));
    let lost = Arc::clone(&dropped);
    let thread = std::thread::Builder::new().name("sluice-log".to_owned());
    thread.spawn(move || {
        for record in records {
            match lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => log(Record::dropped(lost)),
            }
            log(record);
        }
    })?;
    log_to(Some(Arc::new(InThread { level, waiting, dropped })));
    Ok(())
}

impl Logger for InThread {
    fn is_enabled(&self, level: Level) -> bool {
        level <= self.level
    }

    fn log(&self, record: Record) {
        if self.waiting.try_send(record).is_err() {
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
