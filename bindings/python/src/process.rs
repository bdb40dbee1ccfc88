//! What belongs to one process. A child of a fork has none of its parent's threads, and must not touch what
//! they hold, so it makes its own, and leaves the parent's alone.

use std::sync::OnceLock;

use pyo3::PyResult;
use pyo3::exceptions::PyOSError;
use tokio::runtime::{Builder, Runtime};

/// A value that only the process that made it uses. In any other process it is forgotten instead of dropped:
/// a drop would give back what the parent holds, or wait for a thread or a lock that is not there.
pub(crate) struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// The value; `None` in a child of the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// One value for each process, made when the process first asks for it.
///
/// A list, to which each generation of processes adds: a lock around one value could be copied while another
/// thread holds it, and nobody would ever release the copy. Here the only moment of that kind is the store of
/// a pointer.
pub(crate) struct PerProcess<T>(OnceLock<Box<Generation<T>>>);

struct Generation<T> {
    value: OfProcess<T>,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value of this process; `None` if none was made.
    pub(crate) fn get(&self) -> Option<&T> {
        let mut generation = self.0.get();
        while let Some(found) = generation {
            match found.value.get() {
                Some(value) => return Some(value),
                None => generation = found.next.0.get(),
            }
        }
        None
    }

    /// The value of this process, made by `make` if there is none. If two threads make one at once, one is
    /// dropped.
    pub(crate) fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let mut made = Some(Box::new(Generation { value: OfProcess::new(make()?), next: Self::new() }));
        let mut at = self;
        loop {
            let generation =
                at.0.get_or_init(|| made.take().unwrap_or_else(|| unreachable!("it is returned below")));
            match generation.value.get() {
                Some(value) => return Ok(value),
                None => at = &generation.next,
            }
        }
    }
}

/// The most threads of the runtime. They send and receive, and most calls of a process share a request.
const MOST_THREADS: usize = 2;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// The runtime of this process.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let make = || {
        // Reads files of the system: not with every call.
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_THREADS));
        Builder::new_multi_thread().worker_threads(threads).thread_name("sluice").enable_all().build()
    };
    RUNTIME
        .get_or_try(make)
        .map_err(|error| PyOSError::new_err(format!("sluice cannot start its threads: {error}")))
}
