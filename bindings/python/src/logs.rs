//! Events of the SDK in the logger `sluice` of Python's `logging`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use sluice_bindings::logs::{Record, log_in_place_if};
use tracing::Level;

use crate::courier;

/// How long a change of the logger's level may take to be noticed.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

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
        // What finds no room is counted, and reported when there is room again.
        log_in_place_if(
            |level| number(level) >= LEVEL.load(Ordering::Relaxed),
            |record| courier::log(move |py| write(py, &record)),
        );
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
    let write = || -> PyResult<()> {
        let fields = PyDict::new(py);
        record.fields.iter().try_for_each(|(name, value)| fields.set_item(name, value))?;
        let extra = PyDict::new(py);
        extra.set_item("event", &record.event)?;
        extra.set_item("fields", fields)?;
        let named = PyDict::new(py);
        named.set_item("extra", extra)?;
        logger(py)?.call_method("log", (number(record.level), "%s", record.line()), Some(&named)).map(drop)
    };
    if let Err(error) = write() {
        error.write_unraisable(py, None);
    }
}
