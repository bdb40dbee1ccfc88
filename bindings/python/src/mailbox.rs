//! Answers on their way to an event loop of asyncio. A thread of the runtime puts an answer in and wakes the
//! event loop by a byte on a socket, as a reply from the network would; it never waits for the interpreter,
//! and no thread is in between.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::answer::{Answer, settle};
use crate::process::OfProcess;

/// The answers for the futures of one event loop.
pub(crate) struct Mailbox {
    /// The event loop, which lives as long as the mailbox is open.
    address: usize,
    /// `None` once the event loop is closed.
    answers: OfProcess<Mutex<Option<Answers>>>,
    bell: UnixStream,
}

/// Futures, and the answer of each.
type Answers = Vec<(Py<PyAny>, Answer)>;

thread_local! {
    /// The mailboxes of the event loops that run in this thread, mostly one.
    static OPEN: RefCell<Vec<Arc<Mailbox>>> = const { RefCell::new(Vec::new()) };
}

impl Mailbox {
    /// The mailbox of the event loop that runs in this thread.
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let address = event_loop.as_ptr().addr();
        let is_it = |mailbox: &&Arc<Self>| mailbox.address == address && mailbox.is_open();
        if let Some(mailbox) = OPEN.with_borrow(|open| open.iter().find(is_it).cloned()) {
            return Ok(mailbox);
        }
        let made = Self::new(event_loop)?;
        OPEN.with_borrow_mut(|open| {
            open.retain(|mailbox| mailbox.is_open());
            open.push(Arc::clone(&made));
        });
        Ok(made)
    }

    fn is_open(&self) -> bool {
        self.answers.get().is_some_and(|answers| answers.lock().is_some())
    }

    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let (bell, rings) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rings.set_nonblocking(true)?;
        let answers = OfProcess::new(Mutex::new(Some(Vec::new())));
        let mailbox = Arc::new(Self { address: event_loop.as_ptr().addr(), answers, bell });
        let socket = rings.as_raw_fd();
        let reader = Reader { mailbox: Arc::clone(&mailbox), rings };
        event_loop.call_method1("add_reader", (socket, reader))?;
        Ok(mailbox)
    }

    /// Puts an answer in. If the event loop is closed, the answer is dropped, and gives back what it holds.
    pub(crate) fn put(&self, future: Py<PyAny>, answer: Answer) {
        let Some(answers) = self.answers.get() else { return };
        let mut answers = answers.lock();
        let Some(waiting) = &mut *answers else { return };
        waiting.push((future, answer));
        let is_first = waiting.len() == 1;
        drop(answers);
        if is_first {
            // If there is no room for the byte, others are there.
            let _ = (&self.bell).write(&[0]);
        }
    }
}

/// What the event loop calls when the bell rings. The event loop drops it when it is closed.
#[pyclass(frozen, module = "sluice._native")]
struct Reader {
    mailbox: Arc<Mailbox>,
    rings: UnixStream,
}

#[pymethods]
impl Reader {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        while let Err(error) = (&self.rings).read(&mut bytes) {
            match error.kind() {
                ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let Some(answers) = self.mailbox.answers.get() else { return Ok(()) };
        let answers = answers.lock().as_mut().map(std::mem::take).unwrap_or_default();
        // An error of one, as of an event loop that is not asyncio's, does not keep the others from their
        // answers.
        answers.into_iter().map(|(future, answer)| settle(future.bind(py), answer)).fold(Ok(()), Result::and)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let left = self.mailbox.answers.get().and_then(|answers| answers.lock().take());
        drop(left);
    }
}
