//! Inline leases: the slot and its lease change together, because both are in one row.
//!
//! | action | update | condition |
//! |---|---|---|
//! | take | `leases.#id` = {c, t}, of a borrower {c, t, b}, T -= k, admitted += k, .. | no `leases.#id` yet, T >= k, not blocked |
//! | release | remove `leases.#id`, T += k | `leases.#id` exists |
//! | take over | remove `leases.#dead`, T += its cost | `leases.#dead.t` as read, and not T > C - H - costs |
//! | any that leaves more free | T += d | capacity as read, and not T > C - d |
//! | same, without room | T = C (or C - H), capped += rest | capacity and T as read; dead leases: version |
//! | first in a row | `leases` = {..} | no `leases` yet |
//! | renew | `leases.#id.t` | `leases.#id.t` <= :ends (so it exists) |
//!
//! Each condition also requires `limit_type` = concurrent. H is what the remaining leases hold. A holder
//! knows what it took, and gives back no more than that, whatever the row says of its lease. Of an ended
//! lease, only the row knows the cost, and the row may be wrong: only as much comes back from the lease as is
//! neither free nor held by others. T + H does not change while others take and release, so their writes do
//! not change the room. A release in between still makes the condition false, and the write is planned again.
//! A release is planned without H, so that releases of several processes never fail each other.
//!
//! One write carries the releases and takes of many callers, first in, first out: the takes can use the slots
//! of the releases. The write's condition joins the conditions of all of them, so that the write does all or
//! nothing. If it fails, the plan is made again from the row that DynamoDB returns with the failure. The
//! write itself is composed in [`write`].

use alloc::vec::Vec;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::bucket::after::Moved;
use crate::inline::{InlineLease, InlineLeases};
use crate::lease::LeaseId;
use crate::plan::{Reason, Refusal};
use crate::share::Borrowing;
use crate::statement::Update;
use crate::timestamp::Timestamp;

mod draft;
mod write;

use draft::{Draft, Removed};

pub use write::renew_inline;

/// Most leases that one write adds or removes. DynamoDB allows 4 KB and 300 operators in an expression. Each
/// lease takes 43 bytes and four operators, because its dots count as operators too.
pub const MOST_CHANGES: usize = 64;

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineTake {
    /// The lease's id, drawn by the caller; the same in every try of the take.
    pub id: LeaseId,
    /// Slots.
    pub cost: Cost,
    /// When the lease ends; rounded up to a whole second.
    pub ends: Timestamp,
    /// What the grant does to the order of those that wait.
    pub serves: Serves,
    /// For a caller that borrows of another share. It takes none while callers of that share wait.
    pub borrows: Option<Borrowing>,
}

impl InlineTake {
    /// What stays free after the take.
    pub(crate) fn leaves(&self) -> Amount {
        self.borrows.as_ref().map_or(Amount::ZERO, |borrowing| borrowing.leaves)
    }
}

/// How a grant moves the count of the numbers that were served: see [`draw`](crate::draw).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Serves {
    /// By how many.
    pub numbers: u32,
    /// Whether numbers of others are among them, which nobody seems to use. The write then has the condition
    /// that the count is as it was read.
    pub passes_over: bool,
}

/// What a holder gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineRelease {
    /// The lease's id.
    pub id: LeaseId,
    /// The slots that the holder took. They come back, whatever the row says.
    pub cost: Cost,
}

/// The answer to a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InlineAnswer {
    /// Granted, if the write is applied.
    Granted,
    /// The lease is in the row already: an earlier try was applied, and its reply was lost.
    Held,
    /// Not granted now.
    Refused(Refusal),
    /// The cost is above the capacity: waiting never helps.
    NeverSatisfiable {
        /// The bucket's capacity.
        capacity: Amount,
    },
    /// Beyond what one write may carry: plan it again with the next write.
    Later,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseAnswer {
    /// Given back, if the write is applied.
    GivenBack,
    /// As [`GivenBack`](Self::GivenBack), but without all of the slots: there is no room for all of them.
    Capped,
    /// The row has no such lease: it ended and was reclaimed, or an earlier try of this release was applied.
    Gone,
    /// Beyond what one write may carry: plan it again with the next write.
    Later,
}

/// A write on the inline leases of a bucket, and what the write means for each caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InlinePlan {
    /// The write, or `None` if there is nothing to write. The answers `Granted`, `GivenBack` and `Capped`
    /// hold once the write is applied. If its condition fails, plan again.
    pub update: Option<Update>,
    /// The answers to the takes, in order.
    pub takes: Vec<InlineAnswer>,
    /// The answers to the releases, in order.
    pub releases: Vec<ReleaseAnswer>,
    /// Leases that had ended, and whose slots go to the takes.
    pub taken_over: Vec<LeaseId>,
    changes: Changes,
}

/// A write that gives back what ended inline leases hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InlineReclaim {
    /// The write.
    pub update: Update,
    /// The leases that the write removes.
    pub leases: Vec<LeaseId>,
    /// How many of `leases` are removed without all of their slots, because the bucket has no room for them.
    pub already_capped: usize,
    /// Slots that become free.
    pub slots: Amount,
    /// Whether more leases have ended than one write may carry.
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
    takes_over: bool,
}

impl<'a> InlinePlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        Self { bucket, takes_over: true }
    }

    /// The same without taking over leases that have ended: their calls may run, and their holders may be
    /// about to renew them.
    #[must_use]
    pub const fn without_taking_over(self) -> Self {
        Self { takes_over: false, ..self }
    }

    /// One write for as many of `releases` and `takes` as it can serve, in their order: releases first, then
    /// takes. A small take may be granted behind a large take that is refused. While the bucket cools down,
    /// only releases are served.
    ///
    /// If too few slots are free for a take, the slots of all leases that have ended are taken over, if they
    /// make up for what is missing.
    #[must_use]
    pub fn plan(self, takes: &[InlineTake], releases: &[InlineRelease], now: Timestamp) -> InlinePlan {
        let mut draft = Draft { takes_over: self.takes_over, ..Draft::new(self.bucket) };
        let mut released: Vec<ReleaseAnswer> =
            releases.iter().map(|release| draft.release(release)).collect();
        let blocked = self.bucket.cooling_down(now).map(|wait| Refusal { wait, reason: Reason::CoolingDown });
        let wanted = takes;
        let takes = takes.iter().map(|take| draft.take(take, wanted, blocked, now)).collect();
        draft.cap(&mut released);
        let (update, changes) = (draft.update(now), draft.changes());
        let dead = draft.dead.iter().map(|dead| dead.id.clone()).collect();
        InlinePlan { update, takes, releases: released, taken_over: dead, changes }
    }

    /// The write that gives back the slots of leases that ended before `cutoff`, as many leases as one write
    /// may carry. `None` if none ended.
    #[must_use]
    pub fn reclaim(self, cutoff: Timestamp) -> Option<InlineReclaim> {
        let mut draft = Draft::new(self.bucket);
        draft.take_over(&[], MOST_CHANGES, cutoff);
        // Nothing is taken, so the write does not depend on the time.
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
        Some(InlineReclaim {
            update,
            already_capped: leases.len() - restored,
            leases,
            slots: moved.slots,
            more,
        })
    }

    fn leases(self) -> Option<&'a InlineLeases> {
        self.bucket.inline()
    }
}

impl InlinePlan {
    /// The row as it will be if the write is applied. `bucket` is the reading that the plan was made from.
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
