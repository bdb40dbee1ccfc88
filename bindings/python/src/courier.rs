//! The thread that brings answers and log records to Python. The threads of the runtime never wait for the
//! interpreter: renewals of leases must not wait while Python computes.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::answer::{Answer, settle};
use crate::process::PerProcess;

/// What is brought to Python.
pub(crate) enum Parcel {
    /// The answer for a future of an event loop.
    Answer { event_loop: Py<PyAny>, future: Py<PyAny>, answer: Answer },
    /// A call of Python code that waits for nothing.
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
    /// The interpreter ends.
    Stop,
}

/// How much is brought at once, while the interpreter is held.
const MOST_AT_ONCE: usize = 1_024;

pub(crate) struct Courier {
    sender: Sender<Parcel>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

static COURIER: PerProcess<Courier> = PerProcess::new();

/// The courier of this process. `stop_courier` ends it before the interpreter ends.
pub(crate) fn of_process() -> PyResult<&'static Courier> {
    COURIER.get_or_try(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("sluice-courier".to_owned());
        let thread = thread.spawn(move || bring_all(&receiver));
        let thread = thread.map_err(|error| PyOSError::new_err(format!("sluice cannot start a thread: {error}")))?;
        Ok(Courier { sender, thread: Mutex::new(Some(thread)) })
    })
}

/// Sends a call, if this process has a courier.
pub(crate) fn call(call: impl FnOnce(Python<'_>) + Send + 'static) {
    if let Some(courier) = COURIER.get() {
        courier.send(Parcel::Call(Box::new(call)));
    }
}

impl Courier {
    /// Without a courier, as when the interpreter has ended, the parcel is dropped.
    pub(crate) fn send(&self, parcel: Parcel) {
        let _ = self.sender.send(parcel);
    }
}

/// Ends the courier, once it has brought what was sent. A thread that asked for the interpreter after its end would
/// never come back.
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
    let mut deliveries: Vec<(Py<PyAny>, Answers)> = Vec::new();
    for parcel in parcels {
        match parcel {
            Parcel::Answer { event_loop, future, answer } => {
                match deliveries.iter_mut().find(|(of, _)| of.is(&event_loop)) {
                    Some((_, answers)) => answers.push((future, answer)),
                    None => deliveries.push((event_loop, vec![(future, answer)])),
                }
            }
            Parcel::Call(call) => call(py),
            Parcel::Stop => is_over = true,
        }
    }
    for (event_loop, answers) in deliveries {
        let delivery = Delivery(Mutex::new(answers));
        // An event loop that is closed takes nothing: the answers are dropped, and give back what they hold.
        let _ = event_loop.call_method1(py, "call_soon_threadsafe", (delivery,));
    }
    is_over
}

/// Answers for the futures of one event loop.
#[pyclass(frozen, module = "sluice._native")]
struct Delivery(Mutex<Answers>);

/// Futures, and the answer of each.
type Answers = Vec<(Py<PyAny>, Answer)>;

#[pymethods]
impl Delivery {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let answers = std::mem::take(&mut *self.0.lock());
        // An error of one, as of an event loop that is not asyncio's, does not keep the others from their answers.
        answers.into_iter().map(|(future, answer)| settle(future.bind(py), answer)).fold(Ok(()), Result::and)
    }
}
