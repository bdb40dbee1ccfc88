//! An operation of the SDK, for both kinds of Python programs: `wait` blocks, `await` does not.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sluice_bindings::{Begun, UnderWay, begin};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::answer::{Answer, settle};
use crate::errors::Raise;
use crate::logs;
use crate::mailbox::Mailbox;
use crate::process::runtime;
use crate::values::IntoPython;

/// How long a blocking wait takes at most to notice a signal, such as that of Ctrl-C.
const SLICE: Duration = Duration::from_millis(20);

type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// An operation that is not begun. `wait()` blocks until it is done and lets other threads run meanwhile;
/// `await` it in asyncio. Once only.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct Operation {
    work: Mutex<Option<Work>>,
}

impl Operation {
    pub(crate) fn new<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Self
    where
        T: IntoPython + Send + 'static,
        E: Raise + Send + 'static,
    {
        let work = async move {
            let result = work.await;
            let answer: Answer = Box::new(move |py| match result {
                Ok(value) => Ok(value.into_python(py)?.unbind()),
                Err(error) => Err(error.raise(py)),
            });
            answer
        };
        Self { work: Mutex::new(Some(Box::pin(work))) }
    }

    fn begin(&self, py: Python<'_>) -> PyResult<Work> {
        logs::follow_level(py);
        let begun =
            || PyRuntimeError::new_err("the operation was begun before: ask the client for a new one");
        self.work.lock().take().ok_or_else(begun)
    }
}

#[pymethods]
impl Operation {
    /// Blocks until the operation is done. A signal whose handler raises, as that of Ctrl-C does, ends it.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut work = self.begin(py)?;
        let runtime = runtime()?;
        // A finalizer may run in any thread, also in one of the runtime.
        if Handle::try_current().is_ok() {
            return Err(PyRuntimeError::new_err("sluice cannot block in a thread of its own runtime"));
        }
        // Most grants from stock are ready at once: they need no timer.
        let answer = py.detach(|| {
            let polled = {
                let _in_runtime = runtime.enter();
                work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            };
            match polled {
                Poll::Ready(answer) => Ok(answer),
                Poll::Pending => runtime.block_on(until_signal(work)),
            }
        })?;
        answer(py)
    }

    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let work = self.begin(py)?;
        let runtime = runtime()?;
        let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = event_loop.call_method0("create_future")?;
        match py.detach(|| begin(work, runtime.handle())) {
            Begun::Done(answer) => settle(&future, answer)?,
            Begun::Waits(waits) => {
                let (mailbox, told) = (Mailbox::of(&event_loop)?, future.clone().unbind());
                let under_way = waits.tell(move |answer| {
                    if let Some(answer) = answer {
                        mailbox.put(told, answer);
                    }
                });
                future.call_method1("add_done_callback", (Canceller(under_way),))?;
            }
        }
        future.call_method0("__await__")
    }
}

/// Waits for the work. If the handler of a signal raises, the work is dropped: it gives back what it has.
async fn until_signal(mut work: Work) -> PyResult<Answer> {
    let mut is_main = None;
    loop {
        tokio::select! {
            biased;
            answer = &mut work => return Ok(answer),
            () = sleep(SLICE) => {}
        }
        // Handlers run in the main thread alone.
        let checked = Python::try_attach(|py| {
            let is_main = match is_main {
                Some(is_main) => is_main,
                None => *is_main.insert(in_main_thread(py)?),
            };
            if is_main { py.check_signals().map(|()| true) } else { Ok(false) }
        });
        if !checked.unwrap_or(Ok(false))? {
            return Ok(work.await);
        }
    }
}

fn in_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    Ok(threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?))
}

/// Ends the work of a future that was cancelled.
#[pyclass(frozen, module = "sluice._native")]
struct Canceller(UnderWay);

#[pymethods]
impl Canceller {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        self.0.cancel();
    }
}
