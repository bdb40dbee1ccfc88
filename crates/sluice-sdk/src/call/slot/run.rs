//! Runs a closure in a slot: waits for its start, and gives back what the slot held, however the closure
//! ends.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_core::{Dimension, ShareName};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::nested;
use super::start::{Start, limited};
use super::{CallState, Slot, SlotBuilder, SlotState, concurrency_of};
use crate::call::counted;
use crate::call::error::LimitError;
use crate::grant::Grant;
use crate::lane::part::{Hold, Part};
use crate::telemetry::span;
use crate::vendor::observe::Mark;
use crate::vendor::rate_limited::Decision;

impl SlotBuilder {
    /// Waits for the start, runs `call`, and gives back what the slot held: after success, error, panic,
    /// timeout, and when this future is dropped. Concurrency slots are taken first, in the order of requests
    /// within the process, and kept while a start is booked. Tokens are taken last, so that none is kept long
    /// before its use.
    ///
    /// **A closure that fails after the vendor has worked** (its reply cannot be parsed, a check fails)
    /// should report the reply first, by [`Slot::reply`] or [`Slot::used`]. The tokens of a failed call go
    /// back, as by [`Grant::failed`](crate::Grant::failed), unless a reply with a status of success was
    /// reported: a vendor that counted them would be called above its limit. A recorded use counts however
    /// the closure ends.
    ///
    /// Takes at most the wait and 0.25 s until the closure begins, and 3 s after it has ended. With a wait
    /// below 50 ms, the slot asks once, as [`Client::acquire`](crate::Client::acquire) does, and the answer
    /// may take as long as there. A slot inside of another slot of the same concurrency bucket is an error
    /// ([`RequestError::Nested`](crate::RequestError::Nested)).
    ///
    /// # Errors
    /// The closure's own error; or a [`LimitError`]: [`Refused`](LimitError::Refused) if no start is
    /// available within the wait, [`TimedOut`](LimitError::TimedOut) if the call outlasts its time,
    /// [`Closed`](LimitError::Closed) if the client is closed meanwhile. A failed release is logged and is
    /// not an error: the sweep gives the slot back.
    pub async fn run<T, E: From<LimitError>>(
        self,
        call: impl AsyncFnOnce(Slot) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_once(call).await.0
    }

    /// Runs the closure once. Also returns what the vendor's reply means, if the closure reported it.
    pub(super) async fn run_once<T, E: From<LimitError>>(
        self,
        call: impl AsyncFnOnce(Slot) -> Result<T, E>,
    ) -> (Result<T, E>, Option<Decision>) {
        let span = span::slot(self.request.dimensions());
        let inner = Arc::clone(&self.client.inner);
        let (ran, decision) = self.run_within(&span, call).instrument(span.clone()).await;
        span.record("sluice.outcome", ran.name());
        let result = match ran {
            Ran::Returned(value) => Ok(value),
            Ran::Failed(error) => Err(error),
            Ran::Limited(error) => Err(limited(&inner, &span, error).into()),
        };
        (result, decision)
    }

    async fn run_within<T, E>(
        self,
        span: &Span,
        call: impl AsyncFnOnce(Slot) -> Result<T, E>,
    ) -> (Ran<T, E>, Option<Decision>) {
        let Start { client, mut grant, asked, asked_at, deadline, acquiring } = match self.start(span).await {
            Ok(start) => start,
            Err(error) => return (Ran::Limited(error), None),
        };
        let inner = &client.inner;
        let state = Arc::new(SlotState {
            start_at: grant.start_at(),
            acquiring,
            deadline,
            basis: grant.basis(),
            leases: grant.leases().to_vec(),
            inner: Arc::clone(inner),
            asked,
            marks: grant.parts().iter().filter_map(Mark::of).collect(),
            slots: slots_of(&grant),
            counts_in: concurrency_of(&grant),
            let_through: grant.parts().iter().filter(|part| part.is_let_through()).cloned().collect(),
            call: Mutex::new(Some(CallState::default())),
        });
        // A client that is closed waits for this call.
        let _running = inner.background.token();
        let called = tokio::select! {
            biased;
            called = nested::within(inner, &state.counts_in, call(Slot { state: Arc::clone(&state) })) => Ok(called),
            () = timed_out(deadline) => Err(LimitError::TimedOut(asked_at.elapsed())),
            () = inner.background.cut() => Err(LimitError::Closed),
        };
        let names = grant.names();
        let CallState { used, decision, is_answered } = state.call.lock().take().unwrap_or_default();
        used.iter().for_each(|(dimension, used)| grant.charge(dimension.as_str(), *used));
        let is_refused = decision.is_some_and(|decision| decision != Decision::NotRefused);
        if is_refused || matches!(called, Ok(Err(_))) && !is_answered {
            grant.charge_failure();
        }
        grant.release_in_time().await;
        let ran = match called {
            Ok(Ok(value)) => Ran::Returned(value),
            Ok(Err(error)) => Ran::Failed(error),
            Err(error) => {
                if let LimitError::TimedOut(after) = error {
                    counted::slot_timed_out(inner, &state.asked);
                    tracing::warn!(event = "slot.timeout", dimensions = %names, timeout_ms = after.as_millis());
                }
                Ran::Limited(error)
            }
        };
        (ran, decision)
    }
}

/// How a slot ended.
enum Ran<T, E> {
    /// The closure's value.
    Returned(T),
    /// The closure's error.
    Failed(E),
    /// The closure did not run, or was cut off.
    Limited(LimitError),
}

impl<T, E> Ran<T, E> {
    /// The outcome of a slot, as spans name it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Returned(_) => "ok",
            Self::Failed(_) => "call_failed",
            Self::Limited(error) => error.as_str(),
        }
    }
}

fn slots_of(grant: &Grant) -> Vec<(Dimension, Option<ShareName>)> {
    let slots = grant.parts().iter().filter(|part| matches!(part.hold, Hold::Slots(_) | Hold::Inline(_)));
    let of =
        |part: &Part| (part.entry.asked().clone(), part.entry.share_of().map(|(_, share)| share.clone()));
    slots.map(of).collect()
}

async fn timed_out(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
