//! A grant on its way to its caller. If the caller is gone, the next one in the queue gets it, or it is given
//! back.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Timestamp;

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Parts};
use crate::lane::release::{Use, spawn_give_back};
use crate::lane::setback::Taken;
use crate::lane::{inline, rows, tokens};

/// Parts of a grant on their way to the caller. If dropped, they go to the next in the queue, or are given
/// back unused.
#[derive(Debug)]
pub(crate) struct UnclaimedGrant {
    inner: Arc<Inner>,
    parts: Parts,
    /// When the parts were granted.
    pub(crate) at: Timestamp,
    /// How long DynamoDB took.
    pub(crate) took: Duration,
    /// What the grant rests on.
    pub(crate) basis: Basis,
    lane: Option<OriginLane>,
}

/// The answer to a caller that takes.
pub(crate) type LaneAnswer = Result<Taken<UnclaimedGrant>, AcquireError>;

/// The lane that the grant came through.
#[derive(Clone, Debug)]
pub(crate) enum OriginLane {
    Tokens(Arc<tokens::TokenLane>),
    Inline(Arc<inline::InlineLane>),
    Rows(Arc<rows::RowLane>),
}

impl UnclaimedGrant {
    pub(crate) const fn new(
        inner: Arc<Inner>,
        parts: Parts,
        at: Timestamp,
        took: Duration,
        lane: Option<OriginLane>,
    ) -> Self {
        Self { inner, parts, at, took, basis: Basis::Table, lane }
    }

    /// Creates a grant of the process's own, while DynamoDB is out.
    pub(crate) const fn local(inner: Arc<Inner>, parts: Parts, at: Timestamp, basis: Basis) -> Self {
        Self { inner, parts, at, took: Duration::ZERO, basis, lane: None }
    }

    pub(crate) const fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(crate) fn into_parts(mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// Joins another grant of the same caller. If the caller leaves, the joined parts are given back, and not
    /// passed on in a queue.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.parts.append(&mut other.parts);
        self.at = self.at.max(other.at);
        self.took = self.took.max(other.took);
        if self.basis == Basis::Table {
            self.basis = other.basis;
        }
        self.lane = None;
    }

    /// The same grant for another caller than the one that it was granted to.
    pub(crate) fn renewed(mut self, now: Timestamp) -> Self {
        self.at = now;
        self
    }

    /// How long after the grant the call may be made: zero, unless a start was booked.
    pub(crate) fn booked_wait(&self) -> Duration {
        self.parts.iter().map(|part| part.start_at.since(self.at)).max().unwrap_or_default()
    }

    /// The dimensions of the grant, separated by commas.
    pub(crate) fn names(&self) -> String {
        self.parts.iter().map(|part| part.entry.dimension.as_str()).collect::<Vec<_>>().join(",")
    }

    /// The time by the client's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Whether another caller may still use the tokens of the grant.
    pub(crate) fn is_there(&self) -> bool {
        let now = self.now();
        self.parts.iter().all(|part| match &part.hold {
            Hold::Tokens { receipt, .. } => receipt.may_be_used_late(now),
            _ => true,
        })
    }

    /// Passes the grant to the head of the queue, if that caller asks for exactly this, or returns it.
    fn pass_on(mut self) -> Option<Self> {
        let Some(lane) = self.lane.clone() else { return Some(self) };
        // While the time is not known, nobody can say whether the grant may still be used.
        let Some(now) = self.inner.store.clock().known().filter(|_| self.is_there()) else {
            return Some(self);
        };
        self = self.renewed(now);
        match lane {
            OriginLane::Tokens(lane) => match lane.head_if(|ask| ask.would_take(&self)) {
                Some(waiter) => waiter.answer(Ok(Taken::Granted(self))),
                None => return Some(self),
            },
            OriginLane::Inline(lane) => match lane.head_if(|ask| ask.would_take(&self)) {
                Some(waiter) => waiter.answer(inline::InlineOutcome::Taken(Ok(Taken::Granted(self)))),
                None => return Some(self),
            },
            OriginLane::Rows(lane) => match lane.head_if(|ask| ask.would_take(&self)) {
                Some(waiter) => waiter.answer(Ok(Taken::Granted(self))),
                None => return Some(self),
            },
        }
        None
    }
}

impl Drop for UnclaimedGrant {
    fn drop(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let whole = Self {
            inner: Arc::clone(&self.inner),
            parts: std::mem::take(&mut self.parts),
            at: self.at,
            took: self.took,
            basis: self.basis,
            lane: self.lane.take(),
        };
        if let Some(rest) = whole.pass_on() {
            let inner = Arc::clone(&rest.inner);
            spawn_give_back(&inner, rest.into_parts(), Use::Unused, |_| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::Dimension;
    use tokio::time::Instant;

    use super::*;
    use crate::lane::poll::{Others, Poll};
    use crate::lane::queue::leader::Leader;
    use crate::lane::queue::{Lane, QueueAsk, Service};
    use crate::lane::setback::Setback;

    /// A caller that waits for longer than any test runs.
    struct Waits;

    impl QueueAsk for Waits {
        fn stays_until(&self) -> Option<Instant> {
            Some(Instant::now() + Duration::from_secs(3_600))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_left_reaches_a_lone_caller_in_its_pause_at_once() {
        let lane = Arc::new(Lane::<Waits, u32>::default());
        let serve = |mut leader: Leader<Waits, u32>| -> Service {
            Box::pin(async move {
                let mut poll = Poll::default();
                while let Some(batch) = leader.next(10).await {
                    let why = Setback::overtaken(&Dimension::new("elevenlabs#concurrent").unwrap());
                    leader
                        .after(batch.len(), (Some((batch, why)), ()), &mut poll, || Others {
                            crowd: Some(1_000),
                            next_look: None,
                        })
                        .await;
                }
            })
        };
        let lone = tokio::spawn(lane.join(Waits, serve).answer());
        while lane.why().is_none() {
            tokio::task::yield_now().await;
        }
        let left_at = Instant::now();
        lane.head_if(|_| true).unwrap().answer(7);
        assert_eq!(lone.await.unwrap().unwrap(), 7);
        assert_eq!(left_at.elapsed(), Duration::ZERO, "not at the end of its pause");
    }
}
