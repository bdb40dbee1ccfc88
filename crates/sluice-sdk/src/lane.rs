//! Lanes: the way of an attempt through the process.
//!
//! Each attempt runs on a task of its own, so that a caller that is dropped (a timeout, a `select!`) never cuts a write off
//! half way: the task finishes, finds nobody waiting, and gives the grant back unused. At present every caller is a lane of
//! its own; callers of the same dimensions will share a write here.

use std::sync::Arc;

use crate::acquire::AcquireError;
use crate::attempt::{Terms, attempt};
use crate::client::Inner;
use crate::outcome::Outcome;
use crate::request::Ask;
use crate::store::StoreError;

/// An answer that nobody has taken yet. Dropped as it is, it gives everything back, rate tokens too: no call was made.
struct Undelivered(Option<Result<Outcome, AcquireError>>);

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(Ok(Outcome::Granted(grant))) = self.0.take() {
            grant.give_back_unused();
        }
    }
}

/// Runs one attempt for one caller.
pub(crate) async fn submit(inner: Arc<Inner>, asks: Vec<Ask>, terms: Terms) -> Result<Outcome, AcquireError> {
    let task = tokio::spawn(async move { Undelivered(Some(attempt(inner, asks, terms).await)) });
    match task.await {
        Ok(mut answer) => answer.0.take().unwrap_or_else(|| Err(stopped("the answer was taken"))),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(stopped("the runtime is shutting down")),
    }
}

fn stopped(message: &str) -> AcquireError {
    AcquireError::Store(StoreError::Unavailable {
        operation: "acquire",
        message: message.to_owned(),
        maybe_applied: true,
    })
}
