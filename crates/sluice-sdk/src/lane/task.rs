//! Tasks of one type. Tokio compiles its part of a task, about 2 KB, for each type of future that is spawned,
//! and a client spawns 30 of them.

use std::pin::Pin;

/// A future to be spawned.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Boxes a future that is to be spawned: one more allocation for each task.
pub(crate) fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Box::pin(future)
}
