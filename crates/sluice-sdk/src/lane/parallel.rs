//! Runs futures in parallel, and handles a runtime that is shut down under them.

use sluice_table::StoreError;
use tokio::task::JoinError;

use crate::lane::task::boxed;

/// The runtime that ran the futures was shut down. The caller may still be polled: `Handle::block_on` goes on
/// when its runtime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Returns the error for a caller whose request was under way when the task that sent it ended.
pub(crate) fn stopped(operation: &'static str) -> StoreError {
    let message = String::from("the runtime that sent the request was shut down");
    StoreError::Unavailable { operation, message, maybe_applied: true }
}

/// Runs futures in parallel and returns their results in order. A single future runs in the caller's task.
pub(crate) async fn in_parallel<T: Send + 'static>(
    mut futures: Vec<impl Future<Output = T> + Send + 'static>,
) -> Result<Vec<T>, Stopped> {
    if futures.len() == 1
        && let Some(only) = futures.pop()
    {
        return Ok(vec![only.await]);
    }
    let mut results = Vec::with_capacity(futures.len());
    for task in futures.into_iter().map(|future| tokio::spawn(boxed(future))).collect::<Vec<_>>() {
        results.push(finished(task.await)?);
    }
    Ok(results)
}

/// Returns the result of a task. A panic of the task continues in the caller that waits for it.
pub(crate) fn finished<T>(joined: Result<T, JoinError>) -> Result<T, Stopped> {
    match joined {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Stopped),
    }
}
