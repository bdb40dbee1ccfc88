//! Finds slots that wait inside of another slot of the same bucket: such calls can wait for each other.

use std::sync::Arc;

use sluice_core::Dimension;

use crate::api::error::AcquireError;
use crate::api::request::{Ask, RequestError};
use crate::client::Client;
use crate::lane::inner::Inner;

/// A bucket of which a closure holds slots, with the address of its client: another client may have a bucket
/// of the same name in another table.
#[derive(Clone, Debug)]
struct HeldBucket(usize, Dimension);

tokio::task_local! {
    /// The buckets of which the closures around this code hold slots.
    static HELD: Vec<HeldBucket>;
}

/// Runs a closure that holds slots of `slots`.
pub(super) async fn within<T>(inner: &Arc<Inner>, slots: &[Dimension], call: impl Future<Output = T>) -> T {
    if slots.is_empty() {
        return call.await;
    }
    HELD.scope(held_with(inner, slots), call).await
}

/// What the code around holds, and `slots`.
fn held_with(inner: &Arc<Inner>, slots: &[Dimension]) -> Vec<HeldBucket> {
    let mut held = HELD.try_with(Clone::clone).unwrap_or_default();
    held.extend(slots.iter().map(|slots| HeldBucket(address(inner), slots.clone())));
    held
}

impl Client {
    /// Whether the calling code runs inside of a slot of this concurrency limit: in the closure of a
    /// [`slot`](Self::slot) that this client or a clone of it runs. Who waits there for one more slot of the
    /// same limit may wait for himself.
    #[must_use]
    pub fn is_inside_slot(&self, dimension: &str) -> bool {
        is_held(&self.inner, dimension)
    }

    /// Runs `call` as code inside of slots of these concurrency limits
    /// ([`Slot::concurrency_limits`](crate::Slot::concurrency_limits)): for a program whose slots are known
    /// to its own runtime, as that of another language, and not to the task that calls the SDK.
    pub fn inside_slots<F: Future>(
        &self,
        slots: &[Dimension],
        call: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        HELD.scope(held_with(&self.inner, slots), call)
    }
}

fn is_held(inner: &Arc<Inner>, dimension: &str) -> bool {
    let is_it = |held: &HeldBucket| held.0 == address(inner) && held.1.as_str() == dimension;
    HELD.try_with(|held| held.iter().any(is_it)).unwrap_or_default()
}

/// Refuses a wait for slots of a bucket of which the code around holds slots already.
pub(super) fn check(inner: &Arc<Inner>, slots: &[Ask]) -> Result<(), AcquireError> {
    match slots.iter().find(|ask| is_held(inner, ask.dimension.as_str())) {
        Some(ask) => Err(RequestError::Nested(ask.dimension.clone()).into()),
        None => Ok(()),
    }
}

fn address(inner: &Arc<Inner>) -> usize {
    Arc::as_ptr(inner).addr()
}
