//! The mark of the table: which process scans it, one at a time.

use std::ops::RangeInclusive;

use sluice_core::schema::{HEAL_KEY, HEAL_POSITION};

use super::{CLOCK_ERROR, Ledger, Touched, Writer};
use crate::row::{MarkRow, Micros};
use crate::wire::Purpose;

/// A turn may begin that long after another did.
const HEAL_EVERY: Micros = 8_000_000;

/// It puts off the next by that at least, and a quarter of an hour at most.
const PUT_OFF_BY: RangeInclusive<Micros> = HEAL_EVERY..=900_000_000;

/// No table takes more turns, unless faults keep it from being read.
const MOST_TURNS: Micros = 6;

/// A mark that arrives so late was given up by its sender: what others did meanwhile it cannot know.
const LATE: Micros = 1_500_000;

/// The mark as it must be.
#[derive(Debug, Default)]
pub(super) struct Marks {
    row: MarkRow,
    /// Who marked the table last.
    last: Option<Marked>,
    /// Whether the next turn begins in the middle of the table, since the last one ended there.
    is_in_the_middle: bool,
    /// Turns in a row, up to the last one, that began there: what lies before waits for the next.
    began_in_the_middle: Micros,
    /// The same of the time before, until a turn that began at the start of the table has come to its end.
    before_that: Micros,
}

#[derive(Debug)]
struct Marked {
    by: String,
    at: Micros,
    has_restored: bool,
}

impl Ledger {
    pub(super) fn mark_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<(), String> {
        let Writer::Process(by) = writer else { return Err(format!("{} marked the table", writer.name())) };
        if change.was_spoiled {
            self.spoiled(HEAL_KEY, now);
        }
        let after = MarkRow::read(change.row.as_ref().ok_or_else(|| format!("{by} removed {HEAL_KEY}"))?);
        let before = std::mem::replace(&mut self.marks.row, after.clone());
        let is_in_the_middle = change.row.as_ref().is_some_and(|row| row.get(HEAL_POSITION).is_some());
        let was_in_the_middle = std::mem::replace(&mut self.marks.is_in_the_middle, is_in_the_middle);
        let expected = match change.purpose {
            Purpose::Mark { now: at, until } => {
                if was_in_the_middle {
                    self.marks.began_in_the_middle += 1;
                } else {
                    self.marks.before_that = std::mem::take(&mut self.marks.began_in_the_middle);
                }
                self.marked(by, &before, at, (now, error))?;
                if !PUT_OFF_BY.contains(&(until - at)) {
                    return Err(format!("{by} marked the table at {at} until {until}"));
                }
                MarkRow { healed_at: at, heal_after: until }
            }
            Purpose::Unmark { at, until } => {
                self.marked_it(by)?;
                if before.healed_at == at {
                    MarkRow { healed_at: 0, heal_after: until }
                } else {
                    before.clone()
                }
            }
            Purpose::Progress { until, by: mark } => {
                self.marked_it(by)?;
                if mark != before.healed_at || !PUT_OFF_BY.contains(&(until - mark)) {
                    return Err(format!("{by} told its progress until {until}, after {before:?}"));
                }
                MarkRow { heal_after: until, ..before.clone() }
            }
            _ => before.clone(),
        };
        if after != expected && !self.was_spoiled(HEAL_KEY, now) {
            return Err(format!("{HEAL_KEY}: {by} wrote {after:?} over {before:?}"));
        }
        Ok(())
    }

    /// One mark in each time between two turns, by the fleet's clocks.
    fn marked(
        &mut self,
        by: &str,
        before: &MarkRow,
        at: Micros,
        (now, error): (Micros, Micros),
    ) -> Result<(), String> {
        if at > now + error {
            return Err(format!("{by} marked the table for {at}, which no clock shows at {now}"));
        }
        let since = at - before.healed_at;
        // By the machine's clock and its error alone: one that stood, and does not show it, sends again what
        // it planned before.
        if at < now - error.min(CLOCK_ERROR) - LATE {
            self.judgements.push("a mark arrived late");
        } else if (since < HEAL_EVERY || before.heal_after > at) && !self.was_spoiled(HEAL_KEY, now) {
            return Err(format!("{by} marked the table {since} us after the last mark, {before:?}"));
        }
        self.judgements.push("judged: a mark");
        match self.marks.last.replace(Marked { by: by.to_owned(), at: now, has_restored: false }) {
            Some(last) if !last.has_restored => self.judgements.push("a heal found nothing"),
            _ => {}
        }
        Ok(())
    }

    /// Only who marked the table last says more of its mark.
    fn marked_it(&self, by: &str) -> Result<(), String> {
        match &self.marks.last {
            Some(last) if last.by == by => Ok(()),
            last => Err(format!("{by} wrote of a mark that is not its own: {last:?}")),
        }
    }

    /// By how much later a lease may be found, since a turn does not read the table from its beginning.
    pub(super) fn found_later(&self) -> Micros {
        let Marks { is_in_the_middle, began_in_the_middle, before_that, .. } = self.marks;
        HEAL_EVERY * (began_in_the_middle.max(before_that) + Micros::from(is_in_the_middle)).min(MOST_TURNS)
    }

    /// A process gave back a lease row that had ended.
    pub(super) fn healed(&mut self, bucket: &str, by: &str) -> Result<(), String> {
        self.judgements.push("a caller heals");
        let Some(last) = &mut self.marks.last else {
            return Err(format!("{bucket}: {by} swept it, and nobody had marked the table"));
        };
        // Another may have marked it since: a turn may last longer than the time between two.
        last.has_restored |= last.by == by;
        Ok(())
    }

    /// Whether a process marked the table so lately that its scan may be under way.
    pub(super) fn is_scanned_by(&self, process: &str, now: Micros) -> bool {
        self.marks.last.as_ref().is_some_and(|last| last.by == process && now - last.at < HEAL_EVERY * 2)
    }
}
