//! Events of the SDK (`tracing`) in the logger `sluice` of Python's `logging`.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::courier;

/// One event, as text.
struct Record {
    level: Level,
    event: String,
    message: String,
    fields: Vec<(&'static str, String)>,
}

/// How long a change of the logger's level may take to be noticed.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// The most records that wait for the interpreter. What is beyond is dropped.
const MOST_WAITING: usize = 10_000;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The lowest level of the logger, in Python's numbers.
static LEVEL: AtomicUsize = AtomicUsize::new(30);

static FOLLOWED: Mutex<Option<Instant>> = Mutex::new(None);

/// Reads the level of the logger now and then, and sends events to it.
pub(crate) fn follow_level(py: Python<'_>) {
    // For the first record, also in a child of a fork. Without a courier, there is no log.
    let _ = courier::of_process();
    let now = Instant::now();
    let Some(mut followed) = FOLLOWED.try_lock() else { return };
    if followed.is_some_and(|last| now.duration_since(last) < FOLLOWS_WITHIN) {
        return;
    }
    if followed.is_none() {
        // An error means that events go elsewhere already.
        let _ = tracing::subscriber::set_global_default(ToLogging);
    }
    *followed = Some(now);
    drop(followed);
    let level = logger(py).and_then(|logger| logger.call_method0("getEffectiveLevel")?.extract());
    LEVEL.store(level.unwrap_or(30), Ordering::Relaxed);
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || py.import("logging")?.call_method1("getLogger", ("sluice",)).map(Bound::unbind);
    Ok(LOGGER.get_or_try_init(py, make)?.bind(py).clone())
}

const fn number(level: Level) -> usize {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Writes a record to the logger. A failure of a log must not fail anything else.
fn write(py: Python<'_>, record: &Record) {
    WAITING.fetch_sub(1, Ordering::Relaxed);
    let write = || -> PyResult<()> {
        let mut text = record.event.clone();
        if !record.message.is_empty() {
            let colon = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{colon}{}", record.message);
        }
        let fields = PyDict::new(py);
        for (name, value) in &record.fields {
            let _ = write!(text, " {name}={value}");
            fields.set_item(name, value)?;
        }
        let extra = PyDict::new(py);
        extra.set_item("event", &record.event)?;
        extra.set_item("fields", fields)?;
        let named = PyDict::new(py);
        named.set_item("extra", extra)?;
        logger(py)?.call_method("log", (number(record.level), "%s", text), Some(&named)).map(drop)
    };
    if let Err(error) = write() {
        error.write_unraisable(py, None);
    }
}

struct ToLogging;

impl Subscriber for ToLogging {
    // The level may change: no answer is remembered.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("sluice")
            && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        if WAITING.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let level = *event.metadata().level();
        let mut record = Record { level, event: String::new(), message: String::new(), fields: Vec::new() };
        event.record(&mut record);
        courier::call(move |py| write(py, &record));
    }

    // Spans are for tracers, which `logging` is not.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Record {
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
