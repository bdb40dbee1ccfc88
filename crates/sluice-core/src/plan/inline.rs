//! Inline leases: the slot and its lease change together, since both stand in one row.
//!
//! | action    | update                                          | condition, beside `limit_type` = concurrent             |
//! |-----------|-------------------------------------------------|---------------------------------------------------------|
//! | take      | `leases.#id` = {c, t}, T -= k, admitted += k, ..| `attribute_not_exists(leases.#id)`, T >= k, not blocked |
//! | release   | remove `leases.#id`, T += k                     | `attribute_exists(leases.#id)`                          |
//! | take over | remove `leases.#dead`, T += its cost            | `leases.#dead.t` = :seen                                |
//! | any that leaves more free | T += d                          | capacity = :c and no T > C - d                          |
//! | the same without room | T = C, capped += the rest           | capacity = :c and T as seen                             |
//! | first in a row | `leases` = {..}                            | `attribute_not_exists(leases)`                          |
//! | renew     | `leases.#id.t`                                  | `leases.#id.t` <= :new (so it exists)                   |
//!
//! One write carries the releases and takes of many callers, first in, first out: the slots of those that release are there
//! for those that take. Its condition is the sum of theirs, so that it does all or nothing; what failed is planned again from
//! the row that DynamoDB returns with the failure. The write itself is composed in [`write`].

use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::{Bucket, Moved};
use crate::inline::{InlineLease, InlineLeases, MOST_INLINE_LEASES};
use crate::lease::LeaseId;
use crate::plan::slots::NO_SLOT_WAIT;
use crate::plan::{Reason, Refusal};
use crate::schema::Exact;
use crate::statement::Update;
use crate::timestamp::{CLOCK_ERROR, Timestamp};

mod write;

pub use write::renew_inline;

/// Most leases that one write puts or removes. DynamoDB takes 4 KB and 300 operators in an expression; each lease takes 35
/// bytes and, its dots counted as operators too, four of these.
pub const MOST_CHANGES: usize = 64;

/// What a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineTake {
    /// The lease's id, drawn by the caller; the same in every try of the take.
    pub id: LeaseId,
    /// Slots.
    pub cost: Cost,
    /// When the lease is to end; rounded up to a whole second.
    pub ends: Timestamp,
}

/// What becomes of a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InlineAnswer {
    /// Granted, if the write is applied.
    Granted,
    /// Its lease is in the row already: an earlier try, whose reply was lost, was applied.
    Held,
    /// Not now.
    Refused(Refusal),
    /// The cost is above the capacity: no time will ever do.
    NeverSatisfiable {
        /// The bucket's capacity.
        capacity: Amount,
    },
    /// Beyond what one write may carry: plan it again with the next.
    Later,
}

/// What becomes of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseAnswer {
    /// Given back, if the write is applied.
    GivenBack,
    /// As [`GivenBack`](Self::GivenBack), but without all of its slots, for which there is no room.
    Capped,
    /// The row has no such lease: it ended and was reclaimed, or an earlier try of this release was applied.
    Gone,
    /// Beyond what one write may carry: plan it again with the next.
    Later,
}

/// A write on the inline leases of a bucket, and what it means for each caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InlinePlan {
    /// The write, or `None` where there is nothing to write. The answers that it carries (`Granted`, `GivenBack`, `Capped`)
    /// hold once it is applied; where its condition fails, plan again.
    pub update: Option<Update>,
    /// The answers to the takes, in order.
    pub takes: Vec<InlineAnswer>,
    /// The answers to the releases, in order.
    pub releases: Vec<ReleaseAnswer>,
    /// Leases that had ended, and whose slots the takes are given.
    pub taken_over: Vec<LeaseId>,
    changes: Changes,
}

/// A write that gives back what ended inline leases hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InlineReclaim {
    /// The write.
    pub update: Update,
    /// The leases that it removes.
    pub leases: Vec<LeaseId>,
    /// Of those, leases removed without all of their slots, since the bucket has no room for them.
    pub already_capped: usize,
    /// Slots that become free.
    pub slots: Amount,
    /// Whether other leases have ended too, beyond what one write may carry.
    pub more: bool,
}

/// What a write does to the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Changes {
    moved: Moved,
    removed: Vec<LeaseId>,
    added: Vec<(LeaseId, InlineLease)>,
}

/// Plans for one reading of a concurrency bucket.
#[derive(Clone, Copy, Debug)]
pub struct InlinePlanner<'a> {
    bucket: &'a Bucket,
}

impl<'a> InlinePlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        Self { bucket }
    }

    /// One write for as many of `releases` and `takes` as it can serve, in their order: releases first, then takes, of which a
    /// small one may be granted behind a large one that is refused. While the bucket cools down only releases are served.
    ///
    /// Where too few slots are free for a take, those of all leases that have ended are taken over, if they make up for it.
    #[must_use]
    pub fn plan(self, takes: &[InlineTake], releases: &[LeaseId], now: Timestamp) -> InlinePlan {
        let mut draft = Draft::new(self.bucket);
        let mut released: Vec<ReleaseAnswer> = releases.iter().map(|id| draft.release(id)).collect();
        let blocked = self.bucket.cooling_down(now).map(|wait| Refusal { wait, reason: Reason::CoolingDown });
        let wanted = takes;
        let takes = takes.iter().map(|take| draft.take(take, wanted, blocked, now)).collect();
        draft.cap(&mut released);
        let (update, changes) = (draft.update(now), draft.changes());
        let dead = draft.dead.iter().map(|(id, _)| (*id).clone()).collect();
        InlinePlan { update, takes, releases: released, taken_over: dead, changes }
    }

    /// The write that gives back what the leases hold that ended before `cutoff`, as many as one write may carry; `None` where
    /// none did.
    #[must_use]
    pub fn reclaim(self, cutoff: Timestamp) -> Option<InlineReclaim> {
        let mut draft = Draft::new(self.bucket);
        draft.take_over(&[], MOST_CHANGES, cutoff);
        // Nothing is taken, so no clock is asked for.
        let update = draft.update(cutoff)?;
        let moved = draft.moved();
        let leases: Vec<LeaseId> = draft.dead.iter().map(|(id, _)| (*id).clone()).collect();
        let mut room = moved.slots;
        let has_room = |(_, lease): &&(&LeaseId, &InlineLease)| {
            room = room.minus(lease.cost.amount());
            room >= Amount::ZERO
        };
        let restored = draft.dead.iter().filter(has_room).count();
        let more = self.leases().is_some_and(|all| all.ended(cutoff).count() > leases.len());
        Some(InlineReclaim { update, already_capped: leases.len() - restored, leases, slots: moved.slots, more })
    }

    fn leases(self) -> Option<&'a InlineLeases> {
        self.bucket.inline()
    }
}

impl InlinePlan {
    /// `bucket`, the reading that was planned from, as the row will be if the write is applied.
    #[must_use]
    pub fn after(&self, bucket: &Bucket) -> Bucket {
        if self.update.is_none() {
            return bucket.clone();
        }
        let Changes { moved, removed, added } = &self.changes;
        let leases = bucket.inline().cloned().unwrap_or_default();
        bucket.after_inline(*moved, leases.with(removed, added))
    }
}

/// A write as it comes about.
struct Draft<'a, 't> {
    bucket: &'a Bucket,
    leases: Option<&'a InlineLeases>,
    released: Vec<(&'a LeaseId, &'a InlineLease)>,
    dead: Vec<(&'a LeaseId, &'a InlineLease)>,
    taken: Vec<&'t InlineTake>,
}

impl<'a, 't> Draft<'a, 't> {
    fn new(bucket: &'a Bucket) -> Self {
        Self { bucket, leases: bucket.inline(), released: Vec::new(), dead: Vec::new(), taken: Vec::new() }
    }

    fn release(&mut self, id: &LeaseId) -> ReleaseAnswer {
        let Some(held) = self.leases.and_then(|leases| leases.entry(id)) else { return ReleaseAnswer::Gone };
        if self.removes(id) {
            return ReleaseAnswer::Gone;
        }
        if self.changes_left() == 0 {
            return ReleaseAnswer::Later;
        }
        self.released.push(held);
        ReleaseAnswer::GivenBack
    }

    fn take(
        &mut self,
        take: &'t InlineTake,
        wanted: &[InlineTake],
        blocked: Option<Refusal>,
        now: Timestamp,
    ) -> InlineAnswer {
        // A path cannot be set and removed in one expression, nor set twice.
        if self.removes(&take.id) || self.taken.iter().any(|other| other.id == take.id) {
            return InlineAnswer::Later;
        }
        if self.leases.is_some_and(|leases| leases.contains(&take.id)) {
            return InlineAnswer::Held;
        }
        let capacity = self.bucket.limit().capacity();
        if take.cost.amount() > capacity {
            return InlineAnswer::NeverSatisfiable { capacity };
        }
        if let Some(refusal) = blocked {
            return InlineAnswer::Refused(refusal);
        }
        if self.changes_left() == 0 {
            return InlineAnswer::Later;
        }
        if !self.has_room(take.cost, Amount::ZERO, 0) {
            let cutoff = now.before(CLOCK_ERROR);
            let most = self.changes_left() - 1;
            let (slots, count) = self
                .takeable(wanted, most, cutoff)
                .fold((Amount::ZERO, 0), |(slots, count), (_, dead)| (slots.plus(dead.cost.amount()), count + 1));
            if !self.has_room(take.cost, slots, count) {
                return InlineAnswer::Refused(Refusal { wait: self.wait(now), reason: Reason::NoFreeSlot });
            }
            self.take_over(wanted, most, cutoff);
        }
        self.taken.push(take);
        InlineAnswer::Granted
    }

    /// Whether there is a slot and a place in the row, with `dead` leases gone that hold `slots`.
    fn has_room(&self, cost: Cost, slots: Amount, dead: usize) -> bool {
        let free = self.bucket.tokens().plus(self.back()).plus(slots).min(self.bucket.limit().capacity());
        let there = self.leases.map_or(0, InlineLeases::len) + self.taken.len();
        let gone = self.released.len() + self.dead.len() + dead;
        free.minus(self.cost_taken()) >= cost.amount() && there < MOST_INLINE_LEASES + gone
    }

    /// At most `most` leases that have ended and that nobody in this write is concerned with.
    fn takeable(
        &self,
        wanted: &[InlineTake],
        most: usize,
        cutoff: Timestamp,
    ) -> impl Iterator<Item = (&'a LeaseId, &'a InlineLease)> {
        let free = |id: &LeaseId| !self.removes(id) && !wanted.iter().any(|take| take.id == *id);
        self.leases.into_iter().flat_map(move |all| all.ended(cutoff)).filter(move |(id, _)| free(id)).take(most)
    }

    fn take_over(&mut self, wanted: &[InlineTake], most: usize, cutoff: Timestamp) {
        let dead: Vec<_> = self.takeable(wanted, most, cutoff).collect();
        self.dead.extend(dead);
    }

    /// Nobody knows when a holder will release; but when the next lease ends is known.
    fn wait(&self, now: Timestamp) -> Duration {
        let over = |(_, lease): (&LeaseId, &InlineLease)| lease.ends.get().after(CLOCK_ERROR);
        let next = self.leases.into_iter().flat_map(InlineLeases::iter).map(over).filter(|over| *over >= now).min();
        next.map_or(NO_SLOT_WAIT, |over| NO_SLOT_WAIT.min(over.since(now) + Duration::from_micros(1)))
    }

    fn removes(&self, id: &LeaseId) -> bool {
        self.released.iter().chain(&self.dead).any(|(other, _)| *other == id)
    }

    fn changes_left(&self) -> usize {
        MOST_CHANGES - self.released.len() - self.dead.len() - self.taken.len()
    }

    /// What the leases hold that are removed.
    fn back(&self) -> Amount {
        let removed = self.released.iter().chain(&self.dead);
        removed.fold(Amount::ZERO, |sum, (_, lease)| sum.plus(lease.cost.amount()))
    }

    fn cost_taken(&self) -> Amount {
        self.taken.iter().fold(Amount::ZERO, |sum, take| sum.plus(take.cost.amount()))
    }

    /// What becomes of the slots. Where more come back than there is room for, slots were minted before, by another client's
    /// double restore; the leases' end makes them good.
    fn moved(&self) -> Moved {
        let granted = self.cost_taken();
        let slots = self.back().minus(granted);
        let room = self.bucket.limit().capacity().minus(self.bucket.tokens());
        if slots <= room.max(Amount::ZERO) {
            return Moved { slots, granted, capped: Amount::ZERO };
        }
        let back = slots.min(room).max(Amount::ZERO);
        Moved { slots: back, granted, capped: slots.minus(back) }
    }

    /// The releases that come after the room is used up were given back without all of their slots.
    fn cap(&self, answers: &mut [ReleaseAnswer]) {
        let moved = self.moved();
        if moved.capped == Amount::ZERO {
            return;
        }
        let mut room = moved.slots.plus(moved.granted);
        let served = answers.iter_mut().filter(|answer| **answer == ReleaseAnswer::GivenBack);
        for (answer, (_, lease)) in served.zip(&self.released) {
            room = room.minus(lease.cost.amount());
            if room < Amount::ZERO {
                *answer = ReleaseAnswer::Capped;
            }
        }
    }

    fn changes(&self) -> Changes {
        let lease = |take: &&InlineTake| {
            (take.id.clone(), InlineLease { cost: take.cost, ends: Exact::new(take.ends.ceil_to_second()) })
        };
        Changes {
            moved: self.moved(),
            removed: self.released.iter().chain(&self.dead).map(|(id, _)| (*id).clone()).collect(),
            added: self.taken.iter().map(lease).collect(),
        }
    }
}
