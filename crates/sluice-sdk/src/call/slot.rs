//! Slots: book a start, wait for it, run the call, and give back what the slot held however the call ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sluice_core::{Amount, COMMON, Dimension, ShareName, Timestamp};
use sluice_vendors::Headers;
use tokio::time::Instant;

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::api::quantity::Quantity;
use crate::api::request::{Request, RequestError};
use crate::call::error::LimitError;
use crate::client::Client;
use crate::grant::Grant;
use crate::grant::held_leases::HeldLeases;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part};
use crate::lane::settle;
use crate::lane::settle::SettleError;
use crate::vendor::observe::{Mark, Observed};
use crate::vendor::rate_limited::{Decision, Reply};
use crate::vendor::reply::{HeldPart, Replied, Usage};
use crate::vendor::{observe, reply};

mod nested;
pub(crate) mod retry;
mod run;
mod start;
mod wait;

use crate::call::slot::retry::RetrySlot;

/// A slot that is not requested yet: see [`Client::slot`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` is called"]
pub struct SlotBuilder {
    client: Client,
    request: Request<'static>,
    max_wait: Option<Duration>,
    max_call: Option<Duration>,
    timeout: Option<Duration>,
    until: Option<SystemTime>,
    /// The end of all tries together.
    ends_at: Option<Instant>,
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
    leases: Vec<Arc<HeldLeases>>,
    inner: Arc<Inner>,
    /// The dimensions that were asked for.
    asked: Vec<Dimension>,
    marks: Vec<Mark>,
    /// The concurrency limits of which it holds slots, each with the share whose they are; `None` is the
    /// common line.
    slots: Vec<(Dimension, Option<ShareName>)>,
    /// The concurrency limits that the call counts in.
    counts_in: Vec<Dimension>,
    /// What shadow mode let through: nothing is held of it.
    let_through: Vec<Part>,
    /// What is known of the call; `None` once the slot has ended.
    call: Mutex<Option<CallState>>,
}

/// What a closure reported of its call.
#[derive(Debug, Default)]
struct CallState {
    /// What the call used, to be settled when it ends.
    used: Vec<(Dimension, Amount)>,
    /// What the vendor's last reply means, if it was reported.
    decision: Option<Decision>,
    /// Whether that reply was a success: the vendor has worked, however the closure ends.
    is_answered: bool,
}

impl Slot {
    /// Records what the call really used of `dimension`. It is settled when the closure has ended or timed
    /// out: see [`Grant::settle`](crate::Grant::settle). If it is recorded again, the last value counts. If
    /// the future of `run` is dropped, the tokens stay as they were taken.
    ///
    /// # Errors
    /// [`LimitError::Settle`]: a dimension that the slot does not hold, a concurrency limit, a number below
    /// zero, or a slot that has ended ([`SettleError::Ended`]).
    pub fn used(&self, dimension: &str, used: impl Into<Quantity>) -> Result<(), LimitError> {
        let used = settle::parse(dimension, &used.into())?;
        if let Some((slots, _)) = self.slots_of(dimension) {
            return Err(SettleError::Concurrency(slots.clone()).into());
        }
        let Some(mark) = self.mark(dimension) else {
            return match self.state.basis {
                Basis::Table => Err(SettleError::NotHeld(dimension.to_owned()).into()),
                _ => Ok(()),
            };
        };
        match &mut *self.state.call.lock() {
            Some(call) => call.used.push((mark.dimension.clone(), used)),
            None => return Err(SettleError::Ended(mark.dimension.clone()).into()),
        }
        Ok(())
    }

    /// Applies the reply's rate-limit headers, in at most the time of [`Client::observe`], which has the
    /// details. An error is a failure of the limiter; do not let it fail a call that was made.
    ///
    /// # Errors
    /// [`LimitError::Acquire`]: a dimension of which the slot holds nothing ([`RequestError::NotHeld`]), a
    /// row that cannot be read, or a table that does not answer.
    pub async fn observe(&self, dimension: &str, headers: &impl Headers) -> Result<Observed, LimitError> {
        let holds_slots = || self.slots_of(dimension).is_some();
        if self.state.basis == Basis::Table && self.mark(dimension).is_none() && !holds_slots() {
            return Err(AcquireError::from(RequestError::NotHeld(dimension.to_owned())).into());
        }
        Ok(observe::observe_or_spare(&self.state.inner, dimension, headers, self.mark(dimension).cloned())
            .await?)
    }

    /// Reports the vendor's reply, in one call:
    ///
    /// - If the vendor refused the call (a 429, or what its vendor sends for it): the fleet reacts as by
    ///   [`Client::on_rate_limited`], and the call is charged what its vendor counts of a refused call.
    /// - Otherwise the headers are applied to every dimension of the slot, as by [`observe`](Self::observe).
    /// - What the call used is settled when the slot ends, as by [`used`](Self::used).
    ///
    /// `reply` is an [`http::Response`] with its body, a [`Reply`], or an [`http::response::Parts`]: without
    /// a body, some refusals are read as an ordinary rate limit. `usage` names dimensions and amounts, as in
    /// `("openai#tpm", 812)` or an array of such pairs; `()` if the reply states none. No request is made if
    /// the headers agree with the buckets.
    ///
    /// # Errors
    /// As for [`used`](Self::used): mistakes of the program. If a bucket cannot be read or written, that is
    /// logged (`reply.not_applied`) and no error: it must not fail a call that was made.
    pub async fn reply<'a, H: Headers + 'a>(
        &self,
        reply: impl Into<Reply<'a, H>>,
        usage: impl Into<Usage>,
    ) -> Result<Replied, LimitError> {
        let slots = self.state.slots.iter().map(|(slots, _)| HeldPart::of_slots(slots.clone()));
        let let_through = self.state.let_through.iter().filter(|part| part.is_of_table()).map(HeldPart::of);
        let held = self.state.marks.iter().map(HeldPart::of_tokens).chain(slots).chain(let_through).collect();
        let reply = reply.into();
        // Before the requests, which may be cut off. An error of one does not keep the others from being
        // recorded.
        let recorded = usage.into().0.into_iter().map(|(dimension, used)| self.used(&dimension, used));
        let recorded = recorded.fold(Ok(()), Result::and);
        if let Some(call) = &mut *self.state.call.lock() {
            call.is_answered = (200..300).contains(&reply.status);
        }
        let replied = reply::reply(&self.state.inner, held, self.state.asked.first(), &reply).await;
        if let Some(call) = &mut *self.state.call.lock() {
            call.decision = Some(replied.decision);
        }
        recorded.map(|()| replied)
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
    /// bound holds for these times, except for those of calls that shadow mode let through. `None` for a
    /// limit that the slot was not asked for, for a concurrency limit, and for a grant made while DynamoDB
    /// was out.
    #[must_use]
    pub fn start_in(&self, dimension: &str) -> Option<Timestamp> {
        let is_of_rate = |part: &&Part| !part.entry.limit().is_some_and(|limit| limit.is_concurrent());
        let let_through = self.state.let_through.iter().filter(is_of_rate);
        let starts = self.state.marks.iter().map(|mark| (&mark.dimension, mark.start));
        let mut starts = starts.chain(let_through.map(|part| (&part.entry.dimension, part.start_at)));
        starts.find(|(of, _)| of.as_str() == dimension).map(|(_, start)| start)
    }

    /// The line of the limit `dimension` that the call's tokens or slots were taken from, as
    /// [`Grant::paid_from`].
    #[must_use]
    pub fn paid_from(&self, dimension: &str) -> Option<&str> {
        let slots =
            || self.slots_of(dimension).map(|(_, share)| share.as_ref().map_or(COMMON, ShareName::as_str));
        let of = self.state.marks.iter().find(|mark| mark.dimension.as_str() == dimension);
        of.map(Mark::paid_from).or_else(slots)
    }

    fn slots_of(&self, dimension: &str) -> Option<&(Dimension, Option<ShareName>)> {
        self.state.slots.iter().find(|(slots, _)| slots.as_str() == dimension)
    }

    /// The concurrency limits that the call counts in: it holds slots of them, or shadow mode made it without
    /// one. Inside of it, a slot of one of them is an error ([`RequestError::Nested`]).
    #[must_use]
    pub fn concurrency_limits(&self) -> &[Dimension] {
        &self.state.counts_in
    }

    /// What is left of the time for the call; `None` if it may take as long as it takes.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.state.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What the slot rests on: the table, or a decision of this process, while DynamoDB is out or in shadow
    /// mode.
    #[must_use]
    pub fn basis(&self) -> Basis {
        self.state.basis
    }

    /// Whether the lease ended while the closure ran, so that the slot may be in use twice. The closure is
    /// not stopped: a failure of the limiter must not kill healthy work.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.state.leases.iter().any(|leases| leases.is_lost())
    }
}

impl Client {
    /// Prepares a slot in the dimensions of `request`: [`SlotBuilder::run`] waits for its start and runs a
    /// closure in it.
    pub fn slot<'a>(&self, request: impl Into<Request<'a>>) -> SlotBuilder {
        SlotBuilder {
            client: self.clone(),
            request: request.into().into_owned(),
            max_wait: None,
            max_call: None,
            timeout: None,
            until: None,
            ends_at: None,
        }
    }
}

impl SlotBuilder {
    /// What the call takes from `dimension`, if it is not the bucket's `cost_per_call`.
    pub fn cost(mut self, dimension: impl Into<String>, cost: impl Into<Quantity>) -> Self {
        self.request = self.request.cost(dimension.into(), cost);
        self
    }

    /// How far away the start may be. By default as far as [`timeout`](Self::timeout) and
    /// [`until`](Self::until) allow; without them, `SLUICE_DEFAULT_SLOT_TIMEOUT` (30 s).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// How long the call may run, from its start; as long as it takes by default. Its leases are renewed
    /// meanwhile.
    pub fn max_call(mut self, longest: Duration) -> Self {
        self.max_call = Some(longest);
        self
    }

    /// How long waiting and running may take together.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The deadline of what surrounds the call, such as a Lambda function's (`context.deadline()`). Waiting
    /// and running end 4 s earlier, or at half of the time that is left, so that the release still runs.
    pub fn until(mut self, deadline: SystemTime) -> Self {
        self.until = Some(deadline);
        self
    }

    /// Makes the call again, at most `times`, if its closure reported a reply ([`Slot::reply`]) that asks for
    /// another try within `SLUICE_INLINE_RETRY_THRESHOLD`.
    pub const fn retry(self, times: u32) -> RetrySlot {
        RetrySlot::new(self, times)
    }
}

/// The concurrency limits that the call counts in: it holds slots of them, or shadow mode made it without
/// one.
fn concurrency_of(grant: &Grant) -> Vec<Dimension> {
    let is_concurrent = |part: &&Part| match part.hold {
        Hold::Slots(_) | Hold::Inline(_) => true,
        Hold::LetThrough { .. } => part.entry.limit().is_some_and(|limit| limit.is_concurrent()),
        _ => false,
    };
    let slots = grant.parts().iter().filter(is_concurrent);
    slots.map(|part| part.entry.asked().clone()).collect()
}
