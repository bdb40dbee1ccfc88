//! A write under construction: what it removes, adds and takes, and what room there is for that.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Changes, InlineAnswer, InlineRelease, InlineTake, MOST_CHANGES, ReleaseAnswer};
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::after::Moved;
use crate::inline::{InlineLease, InlineLeases, MOST_INLINE_LEASES};
use crate::lease::LeaseId;
use crate::plan::slots::{NO_SLOT_WAIT, most_counted};
use crate::plan::{Reason, Refusal};
use crate::schema::Exact;
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// A lease that a write removes.
#[derive(Clone, Copy)]
pub(super) struct Removed<'a> {
    pub(super) id: &'a LeaseId,
    pub(super) lease: &'a InlineLease,
    /// What comes back of the lease, if there is room.
    pub(super) back: Amount,
}

/// A write under construction.
pub(super) struct Draft<'a, 't> {
    pub(super) bucket: &'a Bucket,
    pub(super) leases: Option<&'a InlineLeases>,
    pub(super) released: Vec<Removed<'a>>,
    pub(super) dead: Vec<Removed<'a>>,
    pub(super) taken: Vec<&'t InlineTake>,
    /// Whether takes may take over leases that have ended.
    pub(super) takes_over: bool,
}

impl<'a, 't> Draft<'a, 't> {
    pub(super) fn new(bucket: &'a Bucket) -> Self {
        Self {
            bucket,
            leases: bucket.inline(),
            released: Vec::new(),
            dead: Vec::new(),
            taken: Vec::new(),
            takes_over: true,
        }
    }

    pub(super) fn release(&mut self, release: &InlineRelease) -> ReleaseAnswer {
        let Some((id, lease)) = self.leases.and_then(|leases| leases.entry(&release.id)) else {
            return ReleaseAnswer::Gone;
        };
        if self.removes(id) {
            return ReleaseAnswer::Gone;
        }
        if self.changes_left() == 0 {
            return ReleaseAnswer::Later;
        }
        // What the holder took, whatever the row says.
        self.released.push(Removed { id, lease, back: release.cost.amount() });
        ReleaseAnswer::GivenBack
    }

    pub(super) fn take(
        &mut self,
        take: &'t InlineTake,
        wanted: &[InlineTake],
        blocked: Option<Refusal>,
        now: Timestamp,
    ) -> InlineAnswer {
        // One expression cannot set and remove the same path, nor set it twice.
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
        if take.borrows.is_some() && self.bucket.is_waited_for(now) {
            return InlineAnswer::Refused(Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot });
        }
        if !self.has_room(take, &[]) {
            let cutoff = now.before(CLOCK_ERROR);
            let most = self.changes_left() - 1;
            let ended = self.takeable(wanted, most, cutoff).filter(|_| self.takes_over);
            let dead: Vec<_> = ended.collect();
            if !self.has_room(take, &dead) {
                return InlineAnswer::Refused(Refusal { wait: self.wait(now), reason: Reason::NoFreeSlot });
            }
            self.dead.extend(dead);
        }
        self.taken.push(take);
        InlineAnswer::Granted
    }

    /// Whether there are the slots, and a place in the row, if the leases `dead` are removed too.
    fn has_room(&self, take: &InlineTake, dead: &[Removed<'_>]) -> bool {
        let back = dead.iter().fold(self.back(), |back, dead| back.plus(dead.back));
        let free = self.bucket.tokens().plus(back).min(self.most_free(dead));
        let there = self.leases.map_or(0, InlineLeases::len) + self.taken.len();
        let gone = self.released.len() + self.dead.len() + dead.len();
        free.minus(self.cost_taken()) >= take.cost.amount().plus(take.leaves())
            && there < MOST_INLINE_LEASES + gone
    }

    /// At most `most` leases that have ended and that nothing else in this write concerns.
    fn takeable(
        &self,
        wanted: &[InlineTake],
        most: usize,
        cutoff: Timestamp,
    ) -> impl Iterator<Item = Removed<'a>> {
        let free = |id: &LeaseId| !self.removes(id) && !wanted.iter().any(|take| take.id == *id);
        let ended = self.leases.into_iter().flat_map(move |all| all.ended(cutoff));
        let counted = most_counted(self.bucket.limit().capacity());
        let removed = move |(id, lease): (&'a LeaseId, &'a InlineLease)| {
            // A lease counts for no more than `most_counted`, whatever its cost says.
            Removed { id, lease, back: lease.cost.amount().min(counted) }
        };
        ended.filter(move |(id, _)| free(id)).take(most).map(removed)
    }

    pub(super) fn take_over(&mut self, wanted: &[InlineTake], most: usize, cutoff: Timestamp) {
        let dead: Vec<_> = self.takeable(wanted, most, cutoff).collect();
        self.dead.extend(dead);
    }

    /// How long to wait. Nobody knows when a holder will release, but the end of the next lease is known.
    fn wait(&self, now: Timestamp) -> Duration {
        let over = |(_, lease): (&LeaseId, &InlineLease)| lease.ends.get().after(CLOCK_ERROR);
        let next =
            self.leases.into_iter().flat_map(InlineLeases::iter).map(over).filter(|over| *over >= now).min();
        next.map_or(NO_SLOT_WAIT, |over| NO_SLOT_WAIT.min(over.since(now) + Duration::from_micros(1)))
    }

    fn removes(&self, id: &LeaseId) -> bool {
        self.removed().any(|other| other.id == id)
    }

    fn changes_left(&self) -> usize {
        MOST_CHANGES - self.released.len() - self.dead.len() - self.taken.len()
    }

    fn removed(&self) -> impl Iterator<Item = &Removed<'a>> {
        self.released.iter().chain(&self.dead)
    }

    /// What comes back of the leases that are removed.
    fn back(&self) -> Amount {
        self.removed().fold(Amount::ZERO, |sum, removed| sum.plus(removed.back))
    }

    /// Most slots that may be free before anything is taken, if the leases `dead` are removed too. If a lease
    /// is removed that its holder does not give back, what other leases hold is subtracted.
    fn most_free(&self, dead: &[Removed<'_>]) -> Amount {
        let capacity = self.bucket.limit().capacity();
        if self.dead.is_empty() && dead.is_empty() {
            return capacity;
        }
        // Not computed by subtracting from a sum: one lease that states too much would hide what the others
        // hold.
        let stays = |id: &LeaseId| !self.removes(id) && !dead.iter().any(|other| other.id == id);
        let others = self.leases.into_iter().flat_map(InlineLeases::iter).filter(|(id, _)| stays(id));
        // If a lease states more than the capacity, what it took is unknown. Such a lease keeps back nothing
        // of what the others hold.
        let others = others.filter(|(_, lease)| !lease.overstates(capacity));
        others.fold(capacity, |room, (_, lease)| room.minus(lease.cost.amount()))
    }

    /// The free slots that the grants need beyond what they take: those that callers who borrow leave.
    pub(super) fn leaves(&self) -> Amount {
        let (mut taken, mut need) = (Amount::ZERO, Amount::ZERO);
        for take in &self.taken {
            taken = taken.plus(take.cost.amount());
            need = need.max(taken.plus(take.leaves()));
        }
        need.minus(taken).max(Amount::ZERO)
    }

    fn cost_taken(&self) -> Amount {
        self.taken.iter().fold(Amount::ZERO, |sum, take| sum.plus(take.cost.amount()))
    }

    /// What becomes of the slots. If more slots come back than there is room for, slots were minted earlier
    /// by another client's double restore, and the end of the leases makes up for them; or a lease states
    /// more than it took.
    pub(super) fn moved(&self) -> Moved {
        let granted = self.cost_taken();
        let slots = self.back().minus(granted);
        let least = if self.dead.is_empty() { Amount::ZERO } else { Amount::ZERO.minus(granted) };
        let room = self.most_free(&[]).plus(least).minus(self.bucket.tokens()).max(least);
        let back = slots.min(room);
        let served = self.taken.iter().fold(0_u32, |sum, take| sum.saturating_add(take.serves.numbers));
        Moved { slots: back, granted, capped: slots.minus(back), served }
    }

    /// The highest T at which there is room for all of it.
    pub(super) fn highest(&self) -> Amount {
        match self.dead.is_empty() {
            true => self.bucket.limit().capacity().minus(self.back().minus(self.cost_taken())),
            false => self.most_free(&[]).minus(self.back()),
        }
    }

    /// Marks the releases that come after the room is used up: they are given back without all of their
    /// slots.
    pub(super) fn cap(&self, answers: &mut [ReleaseAnswer]) {
        let moved = self.moved();
        if moved.capped == Amount::ZERO {
            return;
        }
        let mut room = moved.slots.plus(moved.granted);
        let served = answers.iter_mut().filter(|answer| **answer == ReleaseAnswer::GivenBack);
        for (answer, released) in served.zip(&self.released) {
            room = room.minus(released.back);
            if room < Amount::ZERO {
                *answer = ReleaseAnswer::Capped;
            }
        }
    }

    pub(super) fn changes(&self) -> Changes {
        let lease = |take: &&InlineTake| {
            let borrowed_by = take.borrows.as_ref().map(|borrowing| String::from(borrowing.by_name()));
            let ends = Exact::new(take.ends.ceil_to_second());
            (take.id.clone(), InlineLease { cost: take.cost, ends, borrowed_by })
        };
        Changes {
            moved: self.moved(),
            removed: self.removed().map(|removed| removed.id.clone()).collect(),
            added: self.taken.iter().map(lease).collect(),
        }
    }
}
