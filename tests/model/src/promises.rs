//! What must hold in every state.

use crate::protocol::Protocol;
use crate::state::{Caller, State};

/// A promise, and whether a state keeps it.
pub(crate) type Promise = (&'static str, fn(&Protocol, &State) -> bool);

/// The promises of the design's section 12, as far as they are about slots.
pub(crate) const ALL: [Promise; 6] = [
    ("no lease is granted beyond the capacity", |_, state| !state.overbooked),
    ("each slot is free or leased, and once", |_, state| {
        let half: i8 = state.claims.iter().map(|claim| i8::from(claim.caller == Caller::HalfReleased)).sum();
        state.free + state.leases() + half == state.capacity + state.minted
    }),
    ("no more slots are free than there are", |_, state| state.free <= state.capacity),
    ("a lease stands until its end", |_, state| {
        let stands = |until| move |ends: u8| ends >= until;
        state.claims.iter().all(|claim| match claim.caller {
            Caller::Holding { until, .. } if claim.is_entitled() => stands(until)(claim.ends),
            _ => true,
        })
    }),
    ("an acquisition takes one slot", |_, state| {
        state.claims.iter().all(|claim| claim.caller != Caller::Renamed || claim.ends == 0)
    }),
    ("two sweeps after all are gone, every slot is back", Protocol::gets_all_back),
];

impl Protocol {
    /// Once everyone is gone and nothing is on its way, all leases end, and two sweeps run: the bucket is as
    /// it is at rest.
    fn gets_all_back(&self, state: &State) -> bool {
        if !state.is_quiet() {
            return true;
        }
        let mut rest = *state;
        for claim in &mut rest.claims {
            claim.past = claim.past.max(claim.ends);
        }
        let rest = self.sweep(&self.sweep(&rest));
        rest.leases() == 0 && rest.free == rest.capacity
    }
}
