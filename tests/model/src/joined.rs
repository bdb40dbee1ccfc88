//! What a process does for several of its callers at once: one write that joins their releases, takes and
//! take-overs. Any callers may be of one process, and of what a lane plans and what it leaves to the next
//! write, every choice is tried.

use crate::action::{Action, Fate};
use crate::caller::{asking, holding, part};
use crate::protocol::{CLIENTS, Protocol};
use crate::state::{CLAIMS, Caller, Part, Share, State};
use crate::writes::{Shares, WriteResult};

/// Leases in one write.
const MOST: u32 = 3;

impl Protocol {
    /// The joined writes that callers may send.
    pub(crate) fn joins(&self, state: &State, here: usize, begun: usize, actions: &mut Vec<Action>) {
        if state.joined_late.is_some() {
            actions.push(Action::JoinedArrives);
        }
        if !state.has_map {
            return;
        }
        let bits = |is: &dyn Fn(usize) -> bool| {
            (0..CLAIMS).filter(|at| is(*at)).fold(0u8, |all, at| all | (1 << at))
        };
        let may_begin = CLIENTS.saturating_sub(here).min(self.scope.claims.saturating_sub(begun));
        let outside = (0..CLAIMS).filter(|at| state.claims[*at].caller == Caller::Outside).take(may_begin);
        let outside = outside.fold(0, |all, at| all | (1 << at));
        let takes = outside | bits(&|at| matches!(state.claims[at].caller, Caller::Asking { .. }));
        let releases = bits(&|at| part(state.claims[at].caller).is_some());
        let dead = bits(&|at| state.claims[at].coveted > 0);
        for (takes, releases) in
            subsets(takes).flat_map(|takes| subsets(releases).map(move |some| (takes, some)))
        {
            for dead in subsets(dead & !takes & !releases).filter(|dead| takes > 0 || *dead == 0) {
                // What has not begun is all alike: the first comes first.
                let begin = takes & outside;
                let are_first = outside & u8::MAX.checked_shr(begin.leading_zeros()).unwrap_or(0) == begin;
                let leases = (takes | releases | dead).count_ones();
                if are_first && (2..=MOST).contains(&leases) {
                    let fates = [Fate::Answered, Fate::Unanswered];
                    actions.extend(fates.map(|fate| Action::Join { takes, releases, dead, fate }));
                }
            }
        }
    }

    /// The state after a joined write, where there is anything new in it.
    pub(crate) fn join(&self, state: &State, takes: u8, releases: u8, dead: u8, fate: Fate) -> Option<State> {
        let has = |claims: u8, at: usize| claims & (1 << at) > 0;
        let mut shares = Shares::default();
        for (at, share) in shares.iter_mut().enumerate() {
            *share = match state.claims[at].coveted {
                _ if has(takes, at) => Share::Take,
                _ if has(releases, at) => Share::Release,
                seen if has(dead, at) => Share::TakeOver(seen),
                _ => Share::Nothing,
            };
        }
        let part = slots(state, &shares);
        if fate == Fate::Unanswered {
            return unanswered(state, &shares, part);
        }
        let mut next = *state;
        let is_applied = self.joined(&mut next, &shares, part) == WriteResult::Applied;
        let (capacity, told) = (next.capacity, holding(&next));
        for (share, claim) in shares.iter().zip(&mut next.claims) {
            match share {
                // A try of before was applied: its lease is in the row that a failure shows.
                Share::Take if is_applied || claim.ends > 0 => claim.caller = told,
                Share::Release if is_applied || claim.ends == 0 => claim.caller = Caller::Gone,
                Share::Release => claim.caller = Caller::Releasing(Part::Restore(capacity)),
                _ => {}
            }
        }
        Some(next)
    }

    /// A joined write arrives that nobody waits for any more.
    pub(crate) fn joined_arrives(&self, state: &State) -> Option<State> {
        let mut next = *state;
        let part = next.joined_late.take()?;
        let mut shares = Shares::default();
        for (claim, share) in next.claims.iter_mut().zip(&mut shares) {
            *share = std::mem::take(&mut claim.joined_late);
        }
        self.joined(&mut next, &shares, part);
        Some(next)
    }
}

/// What the write makes of the slots, planned from the row as it is, or from the capacity that a holder has
/// read.
fn slots(state: &State, shares: &Shares) -> Part {
    let count = |is: fn(&Share) -> bool| shares.iter().map(|share| i8::from(is(share))).sum::<i8>();
    let back = count(|share| matches!(share, Share::Release | Share::TakeOver(_)));
    let net = back - count(|share| *share == Share::Take);
    let holder = shares.iter().position(|share| *share == Share::Release);
    let capacity = match holder.and_then(|at| part(state.claims[at].caller)) {
        Some(Part::Restore(capacity) | Part::Fill(capacity, _)) => capacity,
        _ => state.capacity,
    };
    if net <= 0 {
        Part::Taken
    } else if state.free + net <= capacity {
        Part::Restore(capacity)
    } else {
        Part::Fill(capacity, state.free)
    }
}

/// The write goes on its way, and its callers know nothing.
fn unanswered(state: &State, shares: &Shares, slots: Part) -> Option<State> {
    let mut next = *state;
    next.faults = state.faults.checked_sub(1)?;
    if next.joined_late.replace(slots).is_some() {
        return None;
    }
    for (share, claim) in shares.iter().zip(&mut next.claims) {
        claim.joined_late = *share;
        match share {
            Share::Take => claim.caller = asking(claim.caller),
            Share::Release => claim.caller = Caller::Releasing(part(claim.caller)?),
            _ => {}
        }
    }
    Some(next)
}

/// Every set of some of `claims`, and none.
fn subsets(claims: u8) -> impl Iterator<Item = u8> {
    (0..=claims).filter(move |some| some & !claims == 0)
}
