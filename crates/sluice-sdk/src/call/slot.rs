//! Slots: book a start, wait for it, run the call, and give back what the slot held however the call ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Dimension, Timestamp};
use sluice_vendors::Headers;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::api::request::{Quantity, Request, RequestError};
use crate::call::counted;
use crate::call::error::LimitError;
use crate::client::Client;
use crate::grant::{Grant, Holding};
use crate::lane::inner::Inner;
use crate::lane::part::Hold;
use crate::lane::settle;
use crate::lane::settle::SettleError;
use crate::telemetry::span;
use crate::vendor::observe;
use crate::vendor::observe::{Mark, Observed};

mod start;
mod wait;

use crate::call::slot::start::{Start, limited};

/// A slot that is not requested yet: see [`Client::slot`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` is called"]
pub struct SlotBuilder {
    client: Client,
    request: Request<'static>,
    timeout: Duration,
    max_wait: Option<Duration>,
    holding: Holding,
}

/// What a closure can learn about the slot that it runs in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Slot {
    state: Arc<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    start_at: Timestamp,
    acquiring: Duration,
    deadline: Option<Instant>,
    basis: Basis,
    lease_lost: Arc<AtomicBool>,
    inner: Arc<Inner>,
    marks: Vec<Mark>,
    /// The concurrency limits of which it holds slots.
    slots: Vec<Dimension>,
    /// What the call used, to be settled when it ends.
    used: Mutex<Vec<(Dimension, Amount)>>,
}

impl Slot {
    /// Records what the call really used of `dimension`. It is settled when the closure has ended or timed
    /// out: see [`Grant::settle`](crate::Grant::settle). If it is recorded again, the last value counts. If
    /// the future of `run` is dropped, the tokens stay as they were taken.
    ///
    /// # Errors
    /// [`LimitError::Settle`]: a dimension that the slot does not hold, a concurrency limit, or a number below zero.
    pub fn used(&self, dimension: &str, used: impl Into<Quantity>) -> Result<(), LimitError> {
        let used = settle::parse(dimension, &used.into())?;
        if self.state.basis != Basis::Table {
            return Ok(());
        }
        if let Some(slots) = self.state.slots.iter().find(|slots| slots.as_str() == dimension) {
            return Err(SettleError::Concurrency(slots.clone()).into());
        }
        let mark = self.mark(dimension).ok_or_else(|| SettleError::NotHeld(dimension.to_owned()))?;
        self.state.used.lock().push((mark.dimension.clone(), used));
        Ok(())
    }

    /// Applies the reply's rate-limit headers, in at most the time of [`Client::observe`], which has the
    /// details. An error is a failure of the limiter; do not let it fail a call that was made.
    ///
    /// # Errors
    /// [`LimitError::Acquire`]: a dimension of which the slot holds nothing ([`RequestError::NotHeld`]), a row that
    /// cannot be read, or a table that does not answer.
    pub async fn observe(&self, dimension: &str, headers: &impl Headers) -> Result<Observed, LimitError> {
        let holds_slots = || self.state.slots.iter().any(|slots| slots.as_str() == dimension);
        if self.state.basis == Basis::Table && self.mark(dimension).is_none() && !holds_slots() {
            return Err(AcquireError::from(RequestError::NotHeld(dimension.to_owned())).into());
        }
        Ok(observe::observe(&self.state.inner, dimension, headers, self.mark(dimension).cloned()).await?)
    }

    fn mark(&self, dimension: &str) -> Option<&Mark> {
        self.state.marks.iter().find(|mark| mark.dimension.as_str() == dimension)
    }

    /// How long DynamoDB took to grant the slot: the time of the requests, without the waits in the queue and
    /// for the start.
    #[must_use]
    pub fn acquiring(&self) -> Duration {
        self.state.acquiring
    }

    /// When the call was allowed to start: not before all of its limits allowed it.
    #[must_use]
    pub fn start_at(&self) -> Timestamp {
        self.state.start_at
    }

    /// When the rate limit `dimension` alone allowed the start, by this process's clock: the booked start,
    /// or, without a wait, the moment at which the write was planned, before DynamoDB's reply. The bucket's
    /// bound holds for these times. `None` for a limit that the slot was not asked for, for a concurrency
    /// limit, and for a grant made while DynamoDB was out.
    #[must_use]
    pub fn start_in(&self, dimension: &str) -> Option<Timestamp> {
        self.mark(dimension).map(|mark| mark.start)
    }

    /// What is left of the timeout; `None` if the slot may be held as long as the call takes.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.state.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What the slot rests on: the table, or a decision of this process while DynamoDB is out.
    #[must_use]
    pub fn basis(&self) -> Basis {
        self.state.basis
    }

    /// Whether the lease ended while the closure ran, so that the slot may be in use twice. The closure is
    /// not stopped: a failure of the limiter must not kill healthy work.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.state.lease_lost.load(Ordering::Relaxed)
    }
}

impl Client {
    /// Prepares a slot in the dimensions of `request`: [`SlotBuilder::run`] waits for its start and runs a
    /// closure in it.
    pub fn slot<'a>(&self, request: impl Into<Request<'a>>) -> SlotBuilder {
        SlotBuilder {
            client: self.clone(),
            request: request.into().into_owned(),
            timeout: self.inner.config.slot_timeout,
            max_wait: None,
            holding: Holding::WithinTimeout,
        }
    }
}

impl SlotBuilder {
    /// What the call takes from `dimension`, if it is not the bucket's `cost_per_call`.
    pub fn cost(mut self, dimension: impl Into<String>, cost: impl Into<Quantity>) -> Self {
        self.request = self.request.cost(dimension.into(), cost);
        self
    }

    /// How long waiting and running may take together; `SLUICE_DEFAULT_SLOT_TIMEOUT` by default. In a Lambda,
    /// keep it 5 s below the function's own timeout, so that the release still runs.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How far away the start may be; the whole timeout by default. Shorter leaves more time to the call.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Lets the closure run as long as it takes, and renews its lease: the timeout bounds only the wait.
    pub fn hold_until_done(mut self) -> Self {
        self.holding = Holding::Renewed;
        self
    }

    /// Waits for the start, runs `call`, and gives back what the slot held: after success, error, panic,
    /// timeout, and when this future is dropped. Concurrency slots are taken first, in the order of requests
    /// within the process, and kept while a start is booked. Tokens are taken last, so that none is kept long
    /// before its use.
    ///
    /// **A closure that fails after the vendor has worked** (its reply cannot be parsed, a check fails, a
    /// stream breaks off) should call [`Slot::used`] first. The tokens of a failed call go back, as by
    /// [`Grant::failed`](crate::Grant::failed): a vendor that counted them would be called above its limit. A
    /// recorded use counts however the closure ends.
    ///
    /// Takes at most its timeout and 0.25 s until the closure begins, and 3 s after it has ended.
    ///
    /// # Errors
    /// The closure's own error; or a [`LimitError`]: [`Refused`](LimitError::Refused) if no start is available
    /// within the wait, [`TimedOut`](LimitError::TimedOut) if the call outlasts the timeout. A failed release
    /// is logged and is not an error: the sweep gives the slot back.
    pub async fn run<T, E: From<LimitError>>(self, call: impl AsyncFnOnce(Slot) -> Result<T, E>) -> Result<T, E> {
        let span = span::slot(self.request.dimensions());
        let inner = Arc::clone(&self.client.inner);
        let ran = self.run_within(&span, call).instrument(span.clone()).await;
        span.record("sluice.outcome", ran.name());
        match ran {
            Ran::Returned(value) => Ok(value),
            Ran::Failed(error) => Err(error),
            Ran::Limited(error) => Err(limited(&inner, &span, error).into()),
        }
    }

    async fn run_within<T, E>(self, span: &Span, call: impl AsyncFnOnce(Slot) -> Result<T, E>) -> Ran<T, E> {
        let holding = self.holding;
        let Start { client, mut grant, asked, timeout, deadline, lease_lost, acquiring } =
            match self.start(span, holding).await {
                Ok(start) => start,
                Err(error) => return Ran::Limited(error),
            };
        let state = Arc::new(SlotState {
            start_at: grant.start_at(),
            acquiring,
            deadline,
            basis: grant.basis(),
            lease_lost: Arc::clone(&lease_lost),
            inner: Arc::clone(&client.inner),
            marks: grant.parts().iter().filter_map(Mark::of).collect(),
            slots: slots_of(&grant),
            used: Mutex::default(),
        });
        let called = tokio::select! {
            biased;
            called = call(Slot { state: Arc::clone(&state) }) => Some(called),
            () = timed_out(deadline) => None,
            () = grant.keep_alive(holding, &lease_lost) => None,
        };
        let names = grant.names();
        let used = std::mem::take(&mut *state.used.lock());
        used.iter().for_each(|(dimension, used)| grant.charge(dimension.as_str(), *used));
        if matches!(called, Some(Err(_))) {
            grant.charge_failure();
        }
        grant.release_in_time().await;
        match called {
            Some(Ok(value)) => Ran::Returned(value),
            Some(Err(error)) => Ran::Failed(error),
            None => {
                counted::slot_timed_out(&client.inner, &asked);
                tracing::warn!(event = "slot.timeout", dimensions = %names, timeout_ms = timeout.as_millis());
                Ran::Limited(LimitError::TimedOut(timeout))
            }
        }
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

fn slots_of(grant: &Grant) -> Vec<Dimension> {
    let slots = grant.parts().iter().filter(|part| matches!(part.hold, Hold::Slots(_) | Hold::Inline(_)));
    slots.map(|part| part.entry.dimension.clone()).collect()
}

async fn timed_out(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
