//! What a process took of a rate bucket, and what became of it.

use crate::row::Micros;

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
    /// When what was taken may be used, by the clock of the client: what it will be told.
    pub(crate) starts: Vec<Micros>,
}

impl Account {
    /// A caller was told that it may start at `at`: one of the writes of its process took tokens that are there then. A clock that
    /// went back since it asked may tell it later, by twice its error.
    pub(crate) fn told_start(&mut self, bucket: &str, at: Micros, error: Micros) -> Result<(), String> {
        let late = |start: &Micros| at - start;
        let fits = |start: &Micros| (-2..=2 + 2 * error).contains(&late(start));
        let starts = self.starts.iter().enumerate().filter(|(_, start)| fits(start));
        match starts.min_by_key(|(_, start)| late(start).abs()).map(|(found, _)| found) {
            Some(found) => {
                self.starts.swap_remove(found);
                Ok(())
            }
            None => Err(format!("{bucket}: a caller may start at {at}, and its process booked {:?}", self.starts)),
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
