//! What a process took of a rate bucket, and what became of it.

use crate::row::{BucketRow, Micros};

/// What one process took of one rate bucket, and what of it was used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) taken: Micros,
    pub(crate) returned: Micros,
    pub(crate) kept: Micros,
    /// What may rightly have come to nothing: a reply that was lost, a return that was refused, tokens that
    /// flowed back by themselves.
    pub(crate) excused: Micros,
    /// For rounding: each take of a line may lose a millionth.
    pub(crate) takes: u64,
    /// What its calls said that they had not used, and what of it went back.
    surplus: Micros,
    settled: Micros,
    /// What was taken and not told yet.
    pub(crate) bookings: Vec<Booking>,
}

/// Tokens that one write took, for one caller or several.
#[derive(Clone, Debug)]
pub(crate) struct Booking {
    /// The moment for which it was planned, by the clock of the client.
    pub(crate) planned: Micros,
    /// When it was written, by the clock that is ahead of all.
    latest: Micros,
    pub(crate) after: BucketRow,
    pub(crate) taken: Micros,
    /// Starts that callers were told.
    told: Vec<Told>,
    /// The ticket that it came with, if another process or this one booked it before.
    ticket: Option<String>,
}

/// A start that a caller was told at `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) at: Micros,
    pub(crate) cost: Micros,
    pub(crate) now: Micros,
    pub(crate) by: Teller,
}

/// The write that a start turned out to be of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Callers that it is for, as far as they were told.
    pub(crate) callers: usize,
    /// When it was made.
    pub(crate) written_at: Micros,
}

/// What told a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// A grant: not before the moment for which its write was planned.
    Grant,
    /// A ticket: the moment at which the row has its tokens, which may be past. A clock that went back
    /// between a write to a full bucket and the look at its start makes a ticket of a grant (seed 2072): it
    /// may be redeemed as early as the line allows.
    Ticket,
}

/// Told starts that lie further back are not checked any more: what was taken is long used, or lost.
const BOOKINGS_KEPT: usize = 64;

/// Starts that may turn out to be of another write for the sake of one.
const MOVES: u32 = 2;

impl Booking {
    pub(crate) const fn new(planned: Micros, latest: Micros, after: BucketRow, taken: Micros) -> Self {
        Self { planned, latest, after, taken, told: Vec::new(), ticket: None }
    }

    /// The part of it that a ticket carries: `cost`, where the line stood at `tokens` behind it.
    fn carried_by(&self, ticket: &str, tokens: Micros, cost: Micros) -> Self {
        let after = BucketRow { tokens, ..self.after.clone() };
        let ticket = Some(ticket.to_owned());
        Self {
            planned: after.reaches_zero(),
            latest: self.latest,
            after,
            taken: cost,
            told: Vec::new(),
            ticket,
        }
    }

    /// When the last of it is there.
    fn last(&self, by: Teller) -> Micros {
        match by {
            Teller::Grant => self.planned.max(self.after.reaches_zero()),
            Teller::Ticket => self.after.reaches_zero(),
        }
    }

    /// Whether what was told, and this too, is there when it is told: the callers of one write share what
    /// it took, and each starts when its part is there.
    fn has_room_for(&self, start: Told) -> bool {
        let mut told = self.told.clone();
        told.push(start);
        told.sort_unstable_by_key(|told| (told.at, told.cost));
        let mut sum = 0;
        told.iter().all(|told| {
            sum += told.cost;
            sum <= self.taken + 2
                && self.after.line(told.at) + self.taken - sum >= -2 - self.told.len() as Micros - 1
        })
    }

    /// Whether it may receive its start from this write. A clock that went back since the asking may tell it
    /// later, by twice its error.
    fn is_in_time(&self, start: Told, error: Micros) -> bool {
        let last = self.last(start.by);
        match start.by {
            Teller::Grant => {
                start.at >= self.planned - 2 && start.at <= last.max(start.now + error) + 2 + 2 * error
            }
            // How early it may be, `has_room_for` says.
            Teller::Ticket => start.at <= last + 2,
        }
    }

    /// How likely a start is of this write, the less the likelier: what was taken for it alone, and is there
    /// just then; else what it just fits into.
    fn distance(&self, start: Told) -> (bool, Micros, Micros) {
        let last = self.last(start.by);
        let is_other = self.taken > start.cost + 2 || (start.at - last).abs() > 2;
        let off = (start.at - start.at.clamp(self.planned.min(last), last)).abs();
        (is_other, off, (start.at - self.planned).abs())
    }
}

impl Account {
    /// A caller was told a start: one of the writes of its process took tokens that are there then, and that
    /// nobody else was told. A clock that went back since it asked may tell it later, by twice its error;
    /// what another caller left, or a process had in stock, may be had at once.
    pub(crate) fn told_start(&mut self, bucket: &str, start: Told, error: Micros) -> Result<Found, String> {
        let Some(found) = self.place(start, error, MOVES) else {
            return Err(format!(
                "{bucket}: a caller was {start:?}, and its process booked {:?}",
                self.bookings
            ));
        };
        let Booking { latest, told, .. } = &self.bookings[found];
        Ok(Found { callers: told.len(), written_at: latest - error })
    }

    /// When the first write was made whose start a caller may have taken over that asked after it.
    pub(crate) fn may_be_taken_over(&self, asked_at: Micros, start: Micros, error: Micros) -> Option<Micros> {
        let was_left = |booking: &&Booking| {
            let its_start = booking.after.reaches_zero();
            booking.latest - error <= asked_at && its_start >= asked_at - error && its_start <= start + 2
        };
        self.bookings.iter().filter(was_left).map(|booking| booking.latest - error).min()
    }

    /// Finds a write for a start, where others may have to be of another write than they seemed to be.
    fn place(&mut self, start: Told, error: Micros, moves: u32) -> Option<usize> {
        let mut nearest: Vec<usize> =
            (0..self.bookings.len()).filter(|at| self.bookings[*at].is_in_time(start, error)).collect();
        nearest.sort_by_key(|at| self.bookings[*at].distance(start));
        if let Some(found) = nearest.iter().copied().find(|at| self.bookings[*at].has_room_for(start)) {
            self.bookings[found].told.push(start);
            return Some(found);
        }
        for at in nearest.into_iter().filter(|_| moves > 0) {
            for nth in 0..self.bookings[at].told.len() {
                let other = self.bookings[at].told.remove(nth);
                if self.bookings[at].has_room_for(start) {
                    self.bookings[at].told.push(start);
                    if self.place(other, error, moves - 1).is_some() {
                        return Some(at);
                    }
                    self.bookings[at].told.pop();
                }
                self.bookings[at].told.insert(nth, other);
            }
        }
        None
    }

    /// A call says that it did not use so much of what it took: that may go back, once.
    pub(crate) fn settles(&mut self, surplus: Micros) {
        self.surplus += surplus;
        self.kept -= surplus;
        // Less goes back where the rest has flowed back by itself.
        self.excused += surplus;
    }

    /// So much of it found no room, and does not go back unless the call is settled once more.
    pub(crate) const fn found_no_room(&mut self, rest: Micros) {
        self.surplus -= rest;
    }

    /// The call is settled once more: what found no room may find it now, if the clock of its process went
    /// back.
    pub(crate) const fn settles_again(&mut self, rest: Micros) {
        self.surplus += rest;
    }

    /// A write gave back what calls had not used.
    pub(crate) fn settled(&mut self, process: &str, bucket: &str, returned: Micros) -> Result<(), String> {
        self.settled += returned;
        if self.settled > self.surplus {
            return Err(format!(
                "{bucket}: {process} settled more than its calls had left, or twice: {self:?}"
            ));
        }
        Ok(())
    }

    /// What a ticket carries of a write of this process that left the line at `tokens`, or further down for
    /// callers behind it.
    pub(crate) fn carried_by(
        &self,
        ticket: &str,
        (anchor, tokens): (Micros, Micros),
        cost: Micros,
    ) -> Option<Booking> {
        let was_written = |booking: &&Booking| {
            let after = &booking.after;
            after.anchor == anchor && (after.tokens..=after.tokens + booking.taken).contains(&tokens)
        };
        let written = self.bookings.iter().rev().find(was_written)?;
        Some(written.carried_by(ticket, tokens, cost))
    }

    /// The start that came with this ticket is its caller's, or nobody's any more.
    pub(crate) fn ticket_is_gone(&mut self, ticket: &str) {
        self.bookings.retain(|booking| booking.ticket.as_deref() != Some(ticket));
    }

    pub(crate) fn booked(&mut self, booking: Booking) {
        self.bookings.push(booking);
        if self.bookings.len() > BOOKINGS_KEPT {
            self.bookings.remove(0);
        }
    }

    /// Whatever was kept had been taken, and nothing that was kept was given back: at any moment, under any
    /// fault.
    pub(crate) fn balance(&self, process: &str, bucket: &str) -> Result<(), String> {
        if self.unused() + self.rounding() < 0 {
            return Err(format!("{bucket}: {process} gave back what it had used, or twice: {self:?}"));
        }
        Ok(())
    }

    /// What was taken was kept, or given back, or there is an excuse: once all is quiet, where nothing else
    /// went wrong.
    pub(crate) fn is_used_up(&self, process: &str, bucket: &str) -> Result<(), String> {
        if self.unused() > self.excused + self.rounding() {
            return Err(format!("{bucket}: {process} took what it neither used nor gave back: {self:?}"));
        }
        Ok(())
    }

    const fn unused(&self) -> Micros {
        self.taken - self.returned - self.kept
    }

    fn rounding(&self) -> Micros {
        Micros::from(self.takes) * 2
    }
}

#[test]
fn what_found_no_room_may_go_back_when_its_call_is_settled_again() {
    let mut account = Account::default();
    account.settles(600_000);
    account.settled("a", "openai#rpm", 5_872).unwrap();
    account.found_no_room(594_128);
    assert!(account.clone().settled("a", "openai#rpm", 1).is_err(), "for nothing it never does");
    account.settles_again(594_128);
    account.settled("a", "openai#rpm", 594_128).unwrap();
    assert!(account.settled("a", "openai#rpm", 1).is_err(), "and no more than the call had left");
}
