//! Slots while DynamoDB is out: which of them a process may let its calls have by itself.
//!
//! The vendor sees what calls hold of the table, and what processes granted by themselves. A slot of the table
//! whose call has ended keeps its lease in the outage: the process hands it on to its next call. And the slots
//! that were free at the beginning are divided: each process has its part of them. So there are never more
//! calls at once than there are slots. After the outage, the table knows of all but the latter, and these are
//! taken from it ([`grant::secure`](crate::grant)).

use sluice_core::{Amount, Bucket, Cost, NO_SLOT_WAIT, Reason, Refusal};

/// What a process knows of the slots of one row, beside the table. `P` is what a call holds of the row.
#[derive(Debug)]
pub(super) struct OwnRow<P> {
    /// Slots of the table whose calls have ended. Their leases are there, and nobody uses them.
    spare: Vec<(Cost, P)>,
    /// What running calls have without a lease.
    granted: Amount,
    /// In an outage: the number of returns of DynamoDB before it, and the process's part of the row with its
    /// part of what was free at the beginning.
    part: Option<(u32, Bucket)>,
}

/// What a call gets.
#[derive(Debug)]
pub(super) enum Taken {
    /// Slots with a lease that are spare.
    Spare,
    /// Slots of the process's part, which is this.
    Own(Box<Bucket>),
}

/// Why a call gets nothing.
#[derive(Debug)]
pub(super) enum NotTaken<E> {
    Refused(Refusal),
    /// The process's part has never room for so much.
    TooMuch,
    /// There is no part.
    NoPart(E),
}

impl<P> Default for OwnRow<P> {
    fn default() -> Self {
        Self { spare: Vec::new(), granted: Amount::ZERO, part: None }
    }
}

impl<P> OwnRow<P> {
    /// What a call that costs `cost` gets now. `outage` is the number of returns of DynamoDB before the
    /// outage; `None` if only requests of this call have failed. `part` is the process's part of the row by
    /// its last reading.
    ///
    /// Interleaving that `None` stops: the release of a slot was applied, and nobody answered it. Another
    /// process has the slot by now, and this one hands it on.
    pub(super) fn plan<E>(
        &self,
        cost: Cost,
        outage: Option<u32>,
        part: impl FnOnce() -> Result<Bucket, E>,
    ) -> Result<Taken, NotTaken<E>> {
        if outage.is_some() && self.spare.iter().any(|(of, _)| *of == cost) {
            return Ok(Taken::Spare);
        }
        let begun = self.part.as_ref().filter(|(begun, _)| Some(*begun) == outage);
        let part = match begun {
            Some((_, part)) => part.clone(),
            None => part().map_err(NotTaken::NoPart)?,
        };
        if cost.amount() > part.limit().capacity() {
            return Err(NotTaken::TooMuch);
        }
        // Also what was granted in an outage before, and has no lease yet.
        if part.tokens().minus(self.granted) < cost.amount() {
            return Err(NotTaken::Refused(Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot }));
        }
        Ok(Taken::Own(Box::new(part)))
    }

    /// Takes out slots that are spare, for another call.
    pub(super) fn hand_on(&mut self, cost: Cost) -> Option<P> {
        let at = self.spare.iter().rposition(|(of, _)| *of == cost)?;
        Some(self.spare.swap_remove(at).1)
    }

    /// Notes what a call got of the process's part.
    pub(super) fn grant(&mut self, part: Bucket, cost: Cost, outage: Option<u32>) {
        self.part = outage.map(|outage| (outage, part));
        self.begin_unleased(cost);
    }

    /// A running call has slots without a lease from now on.
    pub(super) fn begin_unleased(&mut self, cost: Cost) {
        self.granted = self.granted.plus(cost.amount());
    }

    /// A call that has slots without a lease is over, or has a lease from now on.
    pub(super) fn end_unleased(&mut self, cost: Cost) {
        self.granted = self.granted.minus(cost.amount()).max(Amount::ZERO);
    }

    /// Keeps what a call of the table held.
    pub(super) fn keep(&mut self, cost: Cost, part: P) {
        self.spare.push((cost, part));
    }

    /// The outage is over: takes out what is spare.
    pub(super) fn end_outage(&mut self) -> impl Iterator<Item = P> + use<P> {
        self.part = None;
        std::mem::take(&mut self.spare).into_iter().map(|(_, part)| part)
    }

    pub(super) const fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Whether it says no more than that nothing is known, in this `outage` or without one.
    pub(super) fn is_empty(&self, outage: Option<u32>) -> bool {
        let is_begun = self.part.as_ref().is_some_and(|(begun, _)| Some(*begun) == outage);
        self.spare.is_empty() && self.granted == Amount::ZERO && !is_begun
    }
}
