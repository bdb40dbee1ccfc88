//! Slots that the process let a call have by itself while DynamoDB was out. After the outage, each running
//! call is made sure to have a lease in the table ([`grant::secure`](crate::grant)).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// The slots of one call. `P` is what a call holds of the table.
#[derive(Debug)]
pub(crate) struct LocalSlots<P> {
    state: Mutex<State<P>>,
    /// The table has refused them a lease.
    was_refused: AtomicBool,
}

#[derive(Debug)]
struct State<P> {
    source: Source<P>,
    /// The name of the lease that they have, or had when the call ended.
    lease: Option<String>,
}

#[derive(Debug)]
enum Source<P> {
    /// The table knows nothing of the call.
    Unleased,
    /// Another call had this of the table before. Its lease may have ended meanwhile, or be gone.
    HandedOn(P),
    /// The call has this of the table.
    Leased(P),
    /// The call is over.
    Ended,
}

/// How the slots of a call end.
pub(crate) enum SlotsEnd<P> {
    /// The table knows nothing of them.
    Unleased,
    /// They have a lease.
    Leased(P),
    EndedBefore,
}

impl<P: Clone> LocalSlots<P> {
    pub(crate) const fn unleased() -> Self {
        Self::new(Source::Unleased, None)
    }

    /// With what another call had of the table, under the lease of that name.
    pub(crate) const fn of_another(part: P, lease: Option<String>) -> Self {
        Self::new(Source::HandedOn(part), lease)
    }

    const fn new(source: Source<P>, lease: Option<String>) -> Self {
        Self { state: Mutex::new(State { source, lease }), was_refused: AtomicBool::new(false) }
    }

    /// The call is over, or its client is closed.
    pub(crate) fn end(&self) -> SlotsEnd<P> {
        match std::mem::replace(&mut self.state().source, Source::Ended) {
            Source::Unleased => SlotsEnd::Unleased,
            Source::HandedOn(part) | Source::Leased(part) => SlotsEnd::Leased(part),
            Source::Ended => SlotsEnd::EndedBefore,
        }
    }

    /// Gives the call what was taken from the table for it, or returns that: the call is over.
    pub(crate) fn lease(&self, part: P, lease: Option<String>) -> Result<(), P> {
        let mut state = self.state();
        match state.source {
            Source::Unleased => {
                *state = State { source: Source::Leased(part), lease };
                Ok(())
            }
            _ => Err(part),
        }
    }

    /// What another call had before, if nobody knows whether its lease is there.
    pub(crate) fn handed_on(&self) -> Option<P> {
        match &self.state().source {
            Source::HandedOn(part) => Some(part.clone()),
            _ => None,
        }
    }

    /// The lease that another call had was renewed.
    pub(crate) fn found_lease(&self) {
        let mut state = self.state();
        if let Source::HandedOn(part) = &state.source {
            state.source = Source::Leased(part.clone());
        }
    }

    /// The lease is gone. Returns false if the call is over.
    pub(crate) fn lost_lease(&self) -> bool {
        let mut state = self.state();
        let had = matches!(state.source, Source::HandedOn(_) | Source::Leased(_));
        if had {
            *state = State { source: Source::Unleased, lease: None };
        }
        had
    }

    /// Notes that the table refuses them a lease. Returns whether it is the first time.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.was_refused.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_unleased(&self) -> bool {
        matches!(self.state().source, Source::Unleased)
    }

    /// Whether the call goes on and is not known to have a lease.
    pub(crate) fn is_unsecured(&self) -> bool {
        matches!(self.state().source, Source::Unleased | Source::HandedOn(_))
    }

    /// What the call has of the table.
    pub(crate) fn leased(&self) -> Option<P> {
        match &self.state().source {
            Source::Leased(part) => Some(part.clone()),
            _ => None,
        }
    }

    pub(crate) fn lease_name(&self) -> Option<String> {
        self.state().lease.clone()
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }
}
