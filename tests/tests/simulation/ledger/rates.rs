//! Rate buckets: what each write took, or gave back.

use super::{Ledger, Touched, Writer};
use crate::account::Booking;
use crate::row::{BucketRow, Micros};
use crate::wire::Purpose;

/// What is given back is given back within this time.
const RETURNED_SOON: Micros = 2_000_000;

/// Two clocks differ by no more.
const FURTHEST_APART: Micros = 4_000_000;

/// No caller of the simulation books further ahead.
const LONGEST_WAIT: Micros = 6_000_000;

impl Ledger {
    /// What overflows is gone: nobody is paid with it, and nobody gives it back.
    pub(super) fn is_within_the_brim(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        before: &BucketRow,
        after: &BucketRow,
    ) -> Result<(), String> {
        let (key, by) = (&change.key, writer.name());
        if matches!(writer, Writer::Process(_))
            && let Purpose::Take { now: at, from_line: true } = change.purpose
        {
            self.judgements.push("judged: the brim");
            let over = before.line(at) - before.capacity;
            if over > 2 {
                return Err(format!("{key}: {by} was paid {over} millionths that had overflowed"));
            }
        }
        // What does not go by the line, asks for a full bucket.
        if matches!(writer, Writer::Process(_))
            && let Purpose::Take { now: at, from_line: false } = change.purpose
            && before.line(at) < before.capacity - 2
        {
            return Err(format!(
                "{key}: {by} took of it as of a full bucket, or as of slots: {before:?}, {after:?}"
            ));
        }
        // A client in another language may move the anchor back.
        let moved_back = self.filled.get(key).is_some_and(|filled| after.anchor < *filled);
        if after.anchor != before.anchor && (moved_back || before.line(after.anchor) > before.capacity) {
            self.filled.insert(key.clone(), after.anchor);
        }
        let returned_to = change.purpose.returned_to();
        self.judgements.extend(returned_to.map(|_| "judged: a return"));
        match (returned_to, self.filled.get(key)) {
            (Some(line), Some(filled)) if line < *filled => {
                Err(format!("{key}: {by} gave back to the line of {line} what had flowed back by {filled}"))
            }
            _ => Ok(()),
        }
    }

    /// Books what a write took of a rate bucket, or gave back, by the process that wrote it.
    pub(super) fn rate_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        before: &BucketRow,
        after: &BucketRow,
        latest: Micros,
    ) -> Result<(), String> {
        let key = &change.key;
        // One that lies further ahead than the errors of two clocks explain is moved back by whoever has the
        // time.
        let back = before.anchor - after.anchor;
        if (1..=FURTHEST_APART).contains(&back) && writer != Writer::Stranger {
            return Err(format!("{key}: {} moved the anchor back", writer.name()));
        }
        let Writer::Process(process) = writer else { return Ok(()) };
        let taken = taken(change.purpose, before, after);
        let name = self.name_in_history(key);
        let account = self.accounts.entry((process.to_owned(), key.clone())).or_default();
        match change.purpose {
            Purpose::Settle { returned, .. } => {
                self.given_back.push((name, returned));
                self.judgements.push("judged: a settle");
                account.returned += returned;
                account.settled(process, key, returned)?;
            }
            Purpose::Return { left, .. } => {
                self.judgements.extend(left.map(|_| "judged: a start that is given up"));
                // Whoever booked behind it keeps a start, and the next caller would be given that very start.
                if let Some(left) = left.filter(|left| *left != before.tokens) {
                    return Err(format!(
                        "{key}: {process} gave up a start that left {left}, from under others: {before:?}"
                    ));
                }
                self.given_back.push((name, -taken));
                account.returned -= taken;
                // What flowed back by itself meanwhile is not returned.
                account.excused += before.flows_back_in(RETURNED_SOON);
            }
            Purpose::Observe { .. } => {
                self.judgements.push("judged: a vendor's reply");
                return self.vendor_events.lowered(process, key, (before, after), change.purpose);
            }
            Purpose::Take { now, .. } => {
                account.taken += taken;
                account.takes += 1;
                account.booked(Booking::new(now, latest, after.clone(), taken));
                // A full bucket under contention is left a little below the brim. An anchor in the future stays
                // where it is, although the bucket is full; what is lost above the brim then counts as taken.
                if after.anchor != before.anchor {
                    account.excused += after.capacity / 4;
                } else if before.tokens > before.capacity {
                    account.excused += after.capacity / 4 + before.tokens - before.capacity;
                }
                let furthest = latest + LONGEST_WAIT;
                if after.line(furthest) < -2 {
                    return Err(format!("{key}: {process} booked further ahead than it may wait: {after:?}"));
                }
            }
            // A penalty, or what a call used beyond its cost.
            Purpose::Other if taken < 0 => {
                return Err(format!(
                    "{key}: {process} raised the level by {} for no reason: {after:?}",
                    -taken
                ));
            }
            Purpose::Other
            | Purpose::Mark { .. }
            | Purpose::Note { .. }
            | Purpose::Unmark { .. }
            | Purpose::Progress { .. }
            | Purpose::Measure => return Ok(()),
        }
        account.balance(process, key)
    }
}

/// What a write took of a rate bucket; below zero, what it gave back.
pub(super) fn taken(purpose: Purpose, before: &BucketRow, after: &BucketRow) -> Micros {
    // A line that moves its anchor ahead of a clock that lags is no fuller for it. One whose anchor stays was
    // not cut off at the brim: a change of the limit may leave it above, at an anchor that lies ahead.
    let is_line = after.anchor == before.anchor || matches!(purpose, Purpose::Take { from_line: true, .. });
    let brim = if is_line { Micros::MAX } else { before.capacity };
    // Tokens above the capacity, written by hand, are no more than the capacity before a repair of the
    // anchor, and after it.
    let is = if after.tokens <= before.tokens { after.tokens.min(brim) } else { after.tokens };
    before.line(after.anchor).min(brim) - is
}
