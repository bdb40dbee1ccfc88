//! What a process took of a rate bucket, and what became of it.

use crate::row::{BucketRow, Micros};

/// What one process took of one rate bucket, and what of it was used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) taken: Micros,
    pub(crate) returned: Micros,
    pub(crate) kept: Micros,
    /// What may rightly have come to nothing: a reply that was lost, a return that was refused, tokens that flowed back by
    /// themselves.
    pub(crate) excused: Micros,
    /// For rounding: each take of a line may lose a millionth.
    pub(crate) takes: u64,
    /// What its calls said that they had not used, and what of it went back.
    pub(crate) surplus: Micros,
    settled: Micros,
    /// What was taken and not told yet.
    pub(crate) bookings: Vec<Booking>,
}

/// Tokens that one write took, for one caller or several.
#[derive(Clone, Debug)]
pub(crate) struct Booking {
    /// The moment for which it was planned, by the clock of the client.
    pub(crate) planned: Micros,
    pub(crate) after: BucketRow,
    pub(crate) taken: Micros,
    /// Starts that callers were told, with their costs.
    told: Vec<(Micros, Micros)>,
}

/// Told starts that lie further back are not checked any more: what was taken is long used, or lost.
const BOOKINGS_KEPT: usize = 64;

impl Booking {
    pub(crate) const fn new(planned: Micros, after: BucketRow, taken: Micros) -> Self {
        Self { planned, after, taken, told: Vec::new() }
    }

    /// When the last of it is there.
    fn last(&self) -> Micros {
        self.planned.max(self.after.reaches_zero())
    }

    /// Whether what was told, and this besides, is there when it is told: the callers of one write share what it took, and each
    /// starts when its part is there.
    fn has_room_for(&self, at: Micros, cost: Micros) -> bool {
        let mut told = self.told.clone();
        told.push((at, cost));
        told.sort_unstable();
        let mut sum = 0;
        told.iter().all(|(at, cost)| {
            sum += cost;
            sum <= self.taken + 2 && self.after.line(*at) + self.taken - sum >= -2 - told.len() as Micros
        })
    }
}

impl Account {
    /// A caller was told, at `now`, that it may start at `at`: one of the writes of its process took tokens that are there then,
    /// and that nobody else was told of. A clock that went back since it asked may tell it later, by twice its error; what another
    /// caller left, or a process had in stock, may be had at once.
    pub(crate) fn told_start(
        &mut self,
        bucket: &str,
        (at, cost): (Micros, Micros),
        now: Micros,
        error: Micros,
    ) -> Result<usize, String> {
        let latest = |booking: &Booking| booking.last().max(now + error) + 2 + 2 * error;
        let fits =
            |booking: &Booking| at >= booking.planned - 2 && at <= latest(booking) && booking.has_room_for(at, cost);
        let off = |booking: &Booking| (at - at.clamp(booking.planned, booking.last())).abs();
        let fitting = self.bookings.iter().enumerate().filter(|(_, booking)| fits(booking));
        // What was taken for it alone, and is there just then; else what it just fits into.
        let is_other = |booking: &Booking| booking.taken > cost + 2 || (at - booking.last()).abs() > 2;
        let nearest =
            fitting.min_by_key(|(_, booking)| (is_other(booking), off(booking), (at - booking.planned).abs()));
        let Some((found, _)) = nearest else {
            return Err(format!("{bucket}: a caller may start at {at}, and its process booked {:?}", self.bookings));
        };
        self.bookings[found].told.push((at, cost));
        Ok(self.bookings[found].told.len())
    }

    /// A call says that it did not use so much of what it took: that may go back, once.
    pub(crate) fn settles(&mut self, surplus: Micros) {
        self.surplus += surplus;
        self.kept -= surplus;
        // Less goes back where the rest has flowed back by itself.
        self.excused += surplus;
    }

    /// A write gave back what calls had not used.
    pub(crate) fn settled(&mut self, process: &str, bucket: &str, returned: Micros) -> Result<(), String> {
        self.settled += returned;
        if self.settled > self.surplus {
            return Err(format!("{bucket}: {process} settled more than its calls had left, or twice: {self:?}"));
        }
        Ok(())
    }

    pub(crate) fn booked(&mut self, booking: Booking) {
        self.bookings.push(booking);
        if self.bookings.len() > BOOKINGS_KEPT {
            self.bookings.remove(0);
        }
    }

    /// Whatever was kept had been taken, and nothing that was kept was given back: at any moment, under any fault.
    pub(crate) fn balance(&self, process: &str, bucket: &str) -> Result<(), String> {
        if self.unused() + self.rounding() < 0 {
            return Err(format!("{bucket}: {process} gave back what it had used, or twice: {self:?}"));
        }
        Ok(())
    }

    /// What was taken was kept, or given back, or there is an excuse: once all is quiet, where nothing else went wrong.
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
