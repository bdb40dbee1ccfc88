//! Inline leases: the slot and its lease change together, since both stand in one row.
//!
//! | action    | update                                          | condition, beside `limit_type` = concurrent             |
//! |-----------|-------------------------------------------------|---------------------------------------------------------|
//! | take      | `leases.#id` = {c, t}, T -= k, admitted += k, ..| `attribute_not_exists(leases.#id)`, T >= k, not blocked |
//! | release   | remove `leases.#id`, T += k                     | `attribute_exists(leases.#id)`                          |
//! | take over | remove `leases.#dead`, T += its cost            | `leases.#dead.t` = :seen, and no T > C - H - costs      |
//! | any that leaves more free | T += d                          | capacity = :c and no T > C - d                          |
//! | the same without room | T = C (or C - H), capped += the rest | capacity = :c and T as seen; version, of dead leases    |
//! | first in a row | `leases` = {..}                            | `attribute_not_exists(leases)`                          |
//! | renew     | `leases.#id.t`                                  | `leases.#id.t` <= :new (so it exists)                   |
//!
//! H is what the leases hold that stay. A holder knows what it took, and gives back no more, whatever the row says of its lease. Of
//! a lease that has ended the row alone knows, and its cost may be wrong: as much is taken from it as is neither free nor held by
//! others. T + H stays what it is while others take and release, so that their writes do not make the room another, though a release
//! in between makes the condition false, and the write is planned again. A release does without H, so that releases of several
//! processes never fail each other.
//!
//! One write carries the releases and takes of many callers, first in, first out: the slots of those that release are there
//! for those that take. Its condition is the sum of theirs, so that it does all or nothing; what failed is planned again from
//! the row that DynamoDB returns with the failure. The write itself is composed in [`write`].

use alloc::vec::Vec;

use crate::amount::{Amount, Cost};
use crate::bucket::{Bucket, Moved};
use crate::inline::{InlineLease, InlineLeases};
use crate::lease::LeaseId;
use crate::plan::{Reason, Refusal};
use crate::statement::Update;
use crate::timestamp::Timestamp;

mod draft;
mod write;

use draft::{Draft, Removed};

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

/// What a holder gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineRelease {
    /// The lease's id.
    pub id: LeaseId,
    /// The slots that it took. They come back, whatever the row says.
    pub cost: Cost,
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
    pub fn plan(self, takes: &[InlineTake], releases: &[InlineRelease], now: Timestamp) -> InlinePlan {
        let mut draft = Draft::new(self.bucket);
        let mut released: Vec<ReleaseAnswer> = releases.iter().map(|release| draft.release(release)).collect();
        let blocked = self.bucket.cooling_down(now).map(|wait| Refusal { wait, reason: Reason::CoolingDown });
        let wanted = takes;
        let takes = takes.iter().map(|take| draft.take(take, wanted, blocked, now)).collect();
        draft.cap(&mut released);
        let (update, changes) = (draft.update(now), draft.changes());
        let dead = draft.dead.iter().map(|dead| dead.id.clone()).collect();
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
        let leases: Vec<LeaseId> = draft.dead.iter().map(|dead| dead.id.clone()).collect();
        let mut room = moved.slots;
        let has_room = |dead: &&Removed<'_>| {
            room = room.minus(dead.back);
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
