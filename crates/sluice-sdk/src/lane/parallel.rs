//! Futures side by side, and what follows when their runtime is shut down under them.

use sluice_table::StoreError;
use tokio::task::JoinError;

/// The runtime that ran them was shut down. Whoever asked may still be polled: `Handle::block_on` goes on when its runtime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// What a caller hears whose server ended while a request for it was under way.
pub(crate) fn stopped(operation: &'static str) -> StoreError {
    let message = String::from("the runtime that sent it was shut down");
    StoreError::Unavailable { operation, message, maybe_applied: true }
}

/// Runs futures side by side and returns their results in order. One alone runs where it is.
pub(crate) async fn in_parallel<T: Send + 'static>(
    mut futures: Vec<impl Future<Output = T> + Send + 'static>,
) -> Result<Vec<T>, Stopped> {
    if futures.len() == 1
        && let Some(only) = futures.pop()
    {
        return Ok(vec![only.await]);
    }
    let mut results = Vec::with_capacity(futures.len());
    for task in futures.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        results.push(finished(task.await)?);
    }
    Ok(results)
}

/// The result of a task. Its panic goes on in whoever waits for it.
pub(crate) fn finished<T>(joined: Result<T, JoinError>) -> Result<T, Stopped> {
    match joined {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Stopped),
    }
}
