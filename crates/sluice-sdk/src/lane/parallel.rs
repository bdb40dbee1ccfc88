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

/// Runs futures in parallel, each in a task of its own, and returns their results in order.
/// A single future runs in the caller's task.
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

/// Runs futures in parallel in the caller's task, without a task of their own, and returns their results in
/// order. If the caller is dropped, so are they.
pub(super) async fn in_parallel_here<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(done) = std::pin::Pin::new(future).poll(context)
            {
                *output = Some(done);
            }
        }
        match outputs.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// Returns the result of a task. A panic of the task continues in the caller that waits for it.
pub(crate) fn finished<T>(joined: Result<T, JoinError>) -> Result<T, Stopped> {
    match joined {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Stopped),
    }
}
