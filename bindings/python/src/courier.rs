//! The thread that brings log records to Python. The threads of the runtime never wait for the interpreter:
//! renewals of leases must not wait while Python computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sluice_bindings::logs::MOST_WAITING;

use crate::process::PerProcess;

/// What is brought to Python.
pub(crate) enum Parcel {
    /// A call of Python code that waits for nothing.
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
    /// The interpreter ends.
    Stop,
}

/// How much is brought at once, while the interpreter is held.
const MOST_AT_ONCE: usize = 1_024;

pub(crate) struct Courier {
    sender: Sender<Parcel>,
    /// How many log records wait.
    records: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

static COURIER: PerProcess<Courier> = PerProcess::new();

/// The courier of this process. `stop_courier` ends it before the interpreter ends.
pub(crate) fn of_process() -> PyResult<&'static Courier> {
    COURIER.get_or_try(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("sluice-courier".to_owned());
        let thread = thread.spawn(move || bring_all(&receiver));
        let thread =
            thread.map_err(|error| PyOSError::new_err(format!("sluice cannot start a thread: {error}")))?;
        Ok(Courier { sender, records: Arc::default(), thread: Mutex::new(Some(thread)) })
    })
}

/// Sends a log record. Returns false if too many wait, or if this process has no courier.
pub(crate) fn log(write: impl FnOnce(Python<'_>) + Send + 'static) -> bool {
    let Some(courier) = COURIER.get() else { return false };
    if courier.records.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
        courier.records.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let records = Arc::clone(&courier.records);
    courier.send(Parcel::Call(Box::new(move |py| {
        records.fetch_sub(1, Ordering::Relaxed);
        write(py);
    })));
    true
}

impl Courier {
    /// Without a courier, as when the interpreter has ended, the parcel is dropped.
    pub(crate) fn send(&self, parcel: Parcel) {
        let _ = self.sender.send(parcel);
    }
}

/// Ends the courier, once it has brought what was sent. A thread that asked for the interpreter after its end
/// would never come back.
#[pyfunction]
pub(crate) fn stop_courier(py: Python<'_>) {
    let Some(courier) = COURIER.get() else { return };
    courier.send(Parcel::Stop);
    let thread = courier.thread.lock().take();
    if let Some(thread) = thread {
        let _ = py.detach(|| thread.join());
    }
}

fn bring_all(receiver: &Receiver<Parcel>) {
    while let Ok(first) = receiver.recv() {
        let parcels = std::iter::once(first).chain(receiver.try_iter().take(MOST_AT_ONCE));
        let is_over = Python::try_attach(|py| bring(py, parcels));
        if is_over.unwrap_or(true) {
            return;
        }
    }
}

/// Brings each parcel. Returns whether it was the last.
fn bring(py: Python<'_>, parcels: impl Iterator<Item = Parcel>) -> bool {
    let mut is_over = false;
    for parcel in parcels {
        match parcel {
            Parcel::Call(call) => call(py),
            Parcel::Stop => is_over = true,
        }
    }
    is_over
}
