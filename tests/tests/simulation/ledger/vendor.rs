//! What vendors say: cool-downs that hold for everyone, and replies that lower a bucket.

use std::collections::{BTreeMap, VecDeque};

use super::rates::taken;
use super::{Ledger, Touched};
use crate::row::{BucketRow, Micros};
use crate::wire::Purpose;

/// Writes of a bucket, and replies, that are remembered: more than happen while a call lasts.
const REMEMBERED: usize = 600;

/// What a reply said is left, after a call of `cost` that began at `start` by the clock of its client.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) process: String,
    pub(crate) bucket: String,
    pub(crate) left: Micros,
    pub(crate) start: Micros,
    pub(crate) cost: Micros,
}

/// Replies, and the rows as writes left them.
#[derive(Debug, Default)]
pub(super) struct VendorEvents {
    said: VecDeque<Said>,
    rows: BTreeMap<String, VecDeque<(BucketRow, Micros)>>,
}

impl Ledger {
    /// A process takes in what its vendor says.
    pub(crate) fn said(&mut self, said: Said) {
        self.vendor_events.said.push_back(said);
        if self.vendor_events.said.len() > REMEMBERED {
            self.vendor_events.said.pop_front();
        }
    }

    /// A take, of a bucket that was blocked at the moment for which it was planned: bucket, end of the
    /// cool-down, moment, and whether it is of slots.
    pub(super) fn is_blocked_for(&self, change: &Touched) -> Option<(String, Micros, Micros, bool)> {
        let Purpose::Take { now, .. } = change.purpose else { return None };
        let (before, after) = (self.buckets.get(&change.key)?, BucketRow::read(change.row.as_ref()?)?);
        // A transaction that arrives a second time changes nothing.
        let until = before.blocked_until.filter(|until| *until > now && after.version != before.version)?;
        Some((change.key.clone(), until, now, before.concurrent))
    }

    pub(super) fn cooled_down(&mut self, bucket: &str, at: Micros) {
        self.judgements.push("a cool-down begins");
        self.cool_downs.push((bucket.to_owned(), at));
    }
}

impl VendorEvents {
    /// A bucket is gone, and its versions with it.
    pub(super) fn forget(&mut self, bucket: &str) {
        self.rows.remove(bucket);
    }

    pub(super) fn written(&mut self, bucket: &str, purpose: Purpose, before: &BucketRow, after: &BucketRow) {
        let rows = self.rows.entry(bucket.to_owned()).or_default();
        let taken = taken(purpose, before, after);
        rows.push_back((after.clone(), taken.max(0)));
        if rows.len() > REMEMBERED {
            rows.pop_front();
        }
    }

    /// A reply lowers a bucket to what the vendor said, less what was taken since, and no further, whatever
    /// other replies did; where the line of its call is not known any more, the level as it was read, to what
    /// the vendor can have at most. Never after a reply to a later call.
    pub(super) fn lowered(
        &self,
        process: &str,
        bucket: &str,
        (before, after): (&BucketRow, &BucketRow),
        purpose: Purpose,
    ) -> Result<(), String> {
        let Purpose::Observe { by, version, from_line } = purpose else { return Ok(()) };
        let at = after.anchor;
        if after.tokens
            >= before.line(at).min(if at == before.anchor { Micros::MAX } else { before.capacity })
        {
            return Err(format!("{bucket}: a reply of the vendor raised or moved {before:?} to {after:?}"));
        }
        if before.observed_version > version {
            return Err(format!("{bucket}: {process} believed an old reply, of {version}: {before:?}"));
        }
        let rows = || self.rows.get(bucket).into_iter().flatten();
        let mine = |said: &&Said| said.process == process && said.bucket == bucket;
        if !from_line {
            // From a row that it may have read: on the line as it is, and lowered by no other reply since.
            let is_read = |row: &&BucketRow| row.anchor == before.anchor && row.observed == before.observed;
            let read = || rows().map(|(row, _)| row).chain([before]).filter(is_read);
            let above = |said: &Said| read().map(|row| row.line(said.start) - said.left + 2).max();
            let most = self.said.iter().filter(mine).filter_map(above).max();
            if most.is_none_or(|most| by > most) {
                return Err(format!(
                    "{bucket}: {process} lowered what it read by {by}, and its replies said {most:?}: {before:?}"
                ));
            }
            return Ok(());
        }
        let Some((row, taken)) = rows().find(|(row, _)| row.version == version) else { return Ok(()) };
        if row.anchor != before.anchor {
            return Err(format!(
                "{bucket}: {process} believed a reply of another line, {row:?}, by {by}: {before:?}"
            ));
        }
        let lowered = before.observed + by - row.observed;
        // What the write also took for others is behind the call.
        let too_high = |said: &Said| row.line(said.start) + (taken - said.cost).max(0) - said.left + 2;
        let most = self.said.iter().filter(mine).map(too_high).max();
        if most.is_none_or(|most| lowered > most) {
            return Err(format!(
                "{bucket}: {process} lowered it by {lowered} since {version}, and its replies said {most:?}: {before:?}"
            ));
        }
        Ok(())
    }
}

/// Seed 2002429. A limit that was lowered left the line above the new brim, at an anchor ahead of the clocks
/// of others. What a lot took of it is behind the call beside it, whole.
#[test]
fn a_lot_taken_above_the_brim_is_behind_the_call_that_it_came_with() {
    let row = |tokens, version| BucketRow {
        capacity: 10_000_000,
        tokens,
        rate: 1_000_000_000_000,
        anchor: 102_000_000,
        version,
        ..BucketRow::default()
    };
    let (before, after) = (row(11_000_000, 1), row(7_000_000, 2));
    let take = Purpose::Take { now: 100_000_000, from_line: true };
    let mut vendor_events = VendorEvents::default();
    vendor_events.written("a#rpm", take, &before, &after);
    // One for the call, three ahead: seven and three are behind the call, and its vendor says four.
    let (process, bucket) = ("a".to_owned(), "a#rpm".to_owned());
    vendor_events.said.push_back(Said {
        process,
        bucket,
        left: 4_000_000,
        start: 102_000_000,
        cost: 1_000_000,
    });
    let lowers = |by| {
        let observed = Purpose::Observe { by, version: 2, from_line: true };
        let lowered = BucketRow { tokens: after.tokens - by, version: 3, observed: by, ..after.clone() };
        vendor_events.lowered("a", "a#rpm", (&after, &lowered), observed)
    };
    assert_eq!(lowers(6_000_000), Ok(()));
    assert!(lowers(6_000_003).is_err());
}
