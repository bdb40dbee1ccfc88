//! What a lane's worker does: plans a write for its batch from the row as it was last seen, and makes sense
//! of the reply.

use super::action::Fate;
use super::model::Lanes;
use super::slip::Slip;
use super::state::{Caller, Lease, Row, State, Work, Write, bit, members, of};

impl Lanes {
    /// Sends a write for the batch, which is taken from the queue where there is none; `None` where there is
    /// nothing to send.
    pub(crate) fn send(&self, state: &State, process: usize, fate: Fate) -> Option<State> {
        let mut next = *state;
        if next.lanes[process].work != Work::Planning || next.lanes[process].is_asleep {
            return None;
        }
        if next.standing(process, Caller::Batched) == 0 {
            self.batch(&mut next, process);
        }
        let Some(write) = self.plan(&next, process) else { return (next != *state).then_some(next) };
        let row_before = state.row();
        if fate == Fate::Answered {
            let is_applied = self.apply(&mut next, write);
            let row = if is_applied { next.row() } else { row_before };
            next.lanes[process].work =
                if is_applied { Work::Applied(write, row) } else { Work::Failed(write, row) };
            return Some(next);
        }
        next.losses = state.losses.checked_sub(1)?;
        if fate == Fate::Lost {
            self.apply(&mut next, write);
        } else if next.late.replace(write).is_some() {
            return None;
        }
        next.lanes[process].work = Work::Lost(write);
        Some(next)
    }

    /// Takes the queue for a batch. Grants that nobody uses go to its first.
    fn batch(&self, next: &mut State, process: usize) {
        for waiting in members(next.standing(process, Caller::Waiting)) {
            if !self.hand_on(next, process, waiting) {
                next.callers[waiting] = Caller::Batched;
            }
        }
    }

    /// Gives a caller a grant that nobody uses any more, where there is one.
    fn hand_on(&self, next: &mut State, process: usize, to: usize) -> bool {
        // One that a write without a reply put in may not be there; one that such a write removes may go at
        // any time.
        let lane = &next.lanes[process];
        let known = if self.is(Slip::UnsureHandedOn) { u8::MAX } else { lane.seen.there & !lane.unsure };
        let live = if self.is(Slip::EndedHandedOn) { u8::MAX } else { !next.over };
        let Some(lease) = members(next.lanes[process].idle & known & live).next() else { return false };
        next.wrongs.groundless |= next.over & bit(lease) > 0;
        if !self.is(Slip::HandedOnAndReturned) {
            next.lanes[process].idle &= !bit(lease);
        }
        self.answer(next, to, lease);
        true
    }

    /// Tells a caller that it has the grant of a lease.
    fn answer(&self, next: &mut State, to: usize, lease: usize) {
        let process = process_of(to);
        next.wrongs.groundless |= next.leases[lease] != Lease::Live && next.over & bit(lease) == 0;
        next.wrongs.shared |= next.held(process) & bit(lease) > 0;
        let earlier = of(process).take_while(|at| *at < to);
        // One whose lease ended before a reply reported it has lost its turn.
        let is_over = |at: usize| next.over & bit(at) > 0;
        let waits = |at: usize| matches!(next.callers[at], Caller::Waiting | Caller::Batched) && !is_over(at);
        next.wrongs.unordered |= earlier.into_iter().any(waits);
        next.callers[to] = Caller::Answered(lease.try_into().unwrap_or(0));
    }

    /// One write: everything that nobody uses goes back, and as many of the batch are served as the row had
    /// room for, at least one. Where it had none, what has ended is taken over.
    fn plan(&self, next: &State, process: usize) -> Option<Write> {
        let batch = next.standing(process, Caller::Batched);
        let seen = next.lanes[process].seen;
        let releases = next.lanes[process].idle;
        let back: i8 = count(releases & seen.there);
        let dead = if seen.free + back < count(batch) { seen.ended & !releases & !batch } else { 0 };
        let room = usize::try_from((seen.free + back + count(dead)).max(1)).unwrap_or(0);
        let takes = if self.is(Slip::LastComeFirst) {
            members(batch).rev().take(room).fold(0, |set, at| set | bit(at))
        } else {
            members(batch).take(room).fold(0, |set, at| set | bit(at))
        };
        let takes = if self.is(Slip::SentWithoutRoom) { batch } else { takes };
        (takes | releases > 0).then_some(Write { takes, releases, dead: if takes > 0 { dead } else { 0 } })
    }

    /// The write, on its conditions.
    pub(crate) fn apply(&self, next: &mut State, write: Write) -> bool {
        let Write { takes, releases, dead } = write;
        let there = next.row().there;
        let removed = count(releases) + count(dead);
        let holds = takes & there == 0
            && (releases & !there == 0 || self.is(Slip::ReturnedUnasked))
            && (dead & !next.row().ended == 0 || self.is(Slip::TakenOverUnasked))
            && (takes == 0 || next.free + removed >= count(takes) || self.is(Slip::SentWithoutRoom));
        if !holds {
            return false;
        }
        members(releases | dead).for_each(|lease| next.leases[lease] = Lease::Absent);
        members(takes).for_each(|lease| next.leases[lease] = Lease::Live);
        next.free += removed - count(takes);
        next.wrongs.overbooked |= count(next.row().there) > self.traffic.capacity;
        true
    }

    /// The reply, or the end of waiting for it.
    pub(crate) fn reply(&self, state: &State, process: usize) -> Option<State> {
        let mut next = *state;
        match std::mem::take(&mut next.lanes[process].work) {
            Work::Planning => return None,
            Work::Applied(write, row) => {
                next.lanes[process].idle &= !write.releases;
                next.lanes[process].unsure &= !(write.takes | write.releases);
                let batch = if self.is(Slip::WholeBatchGranted) {
                    next.standing(process, Caller::Batched)
                } else {
                    0
                };
                self.told(&mut next, process, write.takes, row, batch);
            }
            Work::Failed(write, row) => {
                let gone = write.releases & !row.there;
                let forgotten = if self.is(Slip::FailedReleasesForgotten) { write.releases } else { gone };
                next.lanes[process].idle &= !forgotten;
                next.lanes[process].unsure &= !(write.takes | forgotten);
                let sent = if self.is(Slip::OwnLeaseOverlooked) { 0 } else { write.takes };
                self.told(&mut next, process, sent, row, 0);
            }
            // What became of it, the next write will show: on the same leases.
            Work::Lost(write) => {
                if self.is(Slip::LostIsRefused) {
                    members(next.standing(process, Caller::Batched) & write.takes)
                        .for_each(|at| next.callers[at] = Caller::Gone);
                    return Some(next);
                }
                next.lanes[process].unsure |= write.takes | write.releases;
                // Those that left meanwhile have nobody to ask for them: what they may have got goes back.
                next.lanes[process].idle |= write.takes & !next.standing(process, Caller::Batched);
            }
        }
        Some(next)
    }

    /// Answers the batch by a row: first those whose leases are in it, in order; those that find no room in
    /// it are refused.
    fn told(&self, next: &mut State, process: usize, sent: u8, row: Row, untrue: u8) {
        next.lanes[process].seen = row;
        // An earlier try put them there, and its reply was lost.
        let batch =
            if self.is(Slip::OwnLeaseOverlooked) { 0 } else { next.standing(process, Caller::Batched) };
        let own = (batch | sent) & row.there;
        for lease in members(own | untrue) {
            let is_over = row.ended & bit(lease) > 0;
            if next.callers[lease] == Caller::Batched && (!is_over || self.is(Slip::OwnEndedTold)) {
                self.answer(next, lease, lease);
                next.wrongs.groundless |= is_over;
                continue;
            }
            // One that has ended since is no grant: its caller is refused, and it goes, as does that of a
            // caller that left.
            next.callers[lease] = Caller::Gone;
            if !self.is(Slip::GrantForgotten) {
                next.lanes[process].idle |= bit(lease);
            }
        }
        // The grant of one that left goes to the first of those that are left.
        for at in members(next.standing(process, Caller::Batched)) {
            let has_room = row.free > 0 || row.ended > 0;
            if !self.hand_on(next, process, at) && !has_room && next.lanes[process].idle == 0 {
                next.callers[at] = Caller::Gone;
            }
        }
        next.lanes[process].is_asleep =
            self.is(Slip::NobodyWakes) && next.standing(process, Caller::Batched) == 0;
    }

    /// A grant that nobody uses comes to the lane.
    pub(crate) fn leave_idle(&self, next: &mut State, process: usize, lease: usize) {
        if self.is(Slip::HandedToTwo) {
            let waiting = next.standing(process, Caller::Waiting);
            members(waiting).take(2).for_each(|at| self.answer(next, at, lease));
            if waiting > 0 {
                return;
            }
        }
        next.lanes[process].idle |= bit(lease);
        next.lanes[process].is_asleep = false;
        if self.is(Slip::HandedPastTheBatch)
            && let Some(first) = members(next.standing(process, Caller::Waiting)).next()
        {
            self.hand_on(next, process, first);
        }
    }
}

fn process_of(caller: usize) -> usize {
    usize::from(caller >= super::state::EACH)
}

fn count(set: u8) -> i8 {
    i8::try_from(set.count_ones()).unwrap_or(i8::MAX)
}
