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
    of: Of<P>,
    /// The name of the lease that they have, or had when the call ended.
    lease: Option<String>,
}

#[derive(Debug)]
enum Of<P> {
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
pub(crate) enum End<P> {
    /// The table knows nothing of them.
    Unleased,
    /// They have a lease.
    Leased(P),
    EndedBefore,
}

impl<P: Clone> LocalSlots<P> {
    pub(crate) const fn unleased() -> Self {
        Self::new(Of::Unleased, None)
    }

    /// With what another call had of the table, under the lease of that name.
    pub(crate) const fn of_another(part: P, lease: Option<String>) -> Self {
        Self::new(Of::HandedOn(part), lease)
    }

    const fn new(of: Of<P>, lease: Option<String>) -> Self {
        Self { state: Mutex::new(State { of, lease }), was_refused: AtomicBool::new(false) }
    }

    /// The call is over, or its client is closed.
    pub(crate) fn end(&self) -> End<P> {
        match std::mem::replace(&mut self.state().of, Of::Ended) {
            Of::Unleased => End::Unleased,
            Of::HandedOn(part) | Of::Leased(part) => End::Leased(part),
            Of::Ended => End::EndedBefore,
        }
    }

    /// Gives the call what was taken from the table for it, or returns that: the call is over.
    pub(crate) fn lease(&self, part: P, lease: Option<String>) -> Result<(), P> {
        let mut state = self.state();
        match state.of {
            Of::Unleased => {
                *state = State { of: Of::Leased(part), lease };
                Ok(())
            }
            _ => Err(part),
        }
    }

    /// What another call had before, if nobody knows whether its lease is there.
    pub(crate) fn handed_on(&self) -> Option<P> {
        match &self.state().of {
            Of::HandedOn(part) => Some(part.clone()),
            _ => None,
        }
    }

    /// The lease that another call had was renewed.
    pub(crate) fn found_lease(&self) {
        let mut state = self.state();
        if let Of::HandedOn(part) = &state.of {
            state.of = Of::Leased(part.clone());
        }
    }

    /// The lease is gone. Returns false if the call is over.
    pub(crate) fn lost_lease(&self) -> bool {
        let mut state = self.state();
        let had = matches!(state.of, Of::HandedOn(_) | Of::Leased(_));
        if had {
            *state = State { of: Of::Unleased, lease: None };
        }
        had
    }

    /// Notes that the table refuses them a lease. Returns whether it is the first time.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.was_refused.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_unleased(&self) -> bool {
        matches!(self.state().of, Of::Unleased)
    }

    /// Whether the call goes on and is not known to have a lease.
    pub(crate) fn is_unsecured(&self) -> bool {
        matches!(self.state().of, Of::Unleased | Of::HandedOn(_))
    }

    /// What the call has of the table.
    pub(crate) fn leased(&self) -> Option<P> {
        match &self.state().of {
            Of::Leased(part) => Some(part.clone()),
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
