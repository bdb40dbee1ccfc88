//! The threads that send and receive.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// The most threads of the runtime. They send and receive, and most calls of a process share a request.
const MOST_THREADS: usize = 2;

/// The runtime of the process. It is never shut down: a child of a fork has none of its threads.
///
/// # Errors
/// The system starts no threads.
pub fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let make = || {
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_THREADS));
        let made =
            Builder::new_multi_thread().worker_threads(threads).thread_name("sluice").enable_all().build();
        made.map_err(|error| format!("sluice cannot start its threads: {error}"))
    };
    RUNTIME.get_or_init(make).as_ref().map_err(Clone::clone)
}
