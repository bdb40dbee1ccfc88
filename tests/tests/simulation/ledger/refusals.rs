//! Service, for whoever is refused: a refusal of tokens rests on what the bucket was within the last second. Where it had enough at every
//! moment that the process may have gone by, the refusal is wrong.
//!
//! Excused: nothing. What a process may go by reaches further back where its clock was set back, and by the time of a reply; a process
//! that stood still meanwhile is not judged, nor one beside whose request the bucket was written: it may have been its own write, given
//! back since its clock was corrected by the reply and its start lay ahead, nor one that answers by itself while DynamoDB is out, nor rows that someone spoils.

use std::collections::{BTreeMap, VecDeque};

use super::Ledger;
use crate::row::{BucketRow, Micros};

/// A refusal is remembered for so long at most.
const REMEMBERED: Micros = 1_000_000;

/// A reply takes so long at most.
const REPLY: Micros = 1_000_000;

/// Rows are kept for so long.
const KEPT: Micros = 30_000_000;

/// A full write of a contended bucket leaves the refill of a tenth of a second below the brim, more where DynamoDB is slow.
const HEADROOM: Micros = 500_000;

/// How rate buckets stood, each row with the moment of the write that made it.
#[derive(Debug, Default)]
pub(super) struct Stood(BTreeMap<String, VecDeque<(Micros, BucketRow)>>);

impl Stood {
    pub(super) fn written(&mut self, bucket: &str, row: &BucketRow, now: Micros) {
        let rows = self.0.entry(bucket.to_owned()).or_default();
        rows.push_back((now, row.clone()));
        // The one before still stood at the beginning of what is kept.
        while rows.get(1).is_some_and(|(at, _)| *at < now - KEPT) {
            rows.pop_front();
        }
    }
}

impl Ledger {
    /// A caller that asked for `cost` at `asked_at` was refused for want of tokens at `now`.
    pub(crate) fn refused(
        &mut self,
        bucket: &str,
        cost: Micros,
        (asked_at, now): (Micros, Micros),
        error: Micros,
    ) -> Result<(), String> {
        let Some(rows) = self.stood.0.get(bucket).filter(|_| !self.is_vandalized) else { return Ok(()) };
        let since = asked_at - REMEMBERED - REPLY - 2 * error;
        let until = |at: usize| rows.get(at + 1).map_or(Micros::MAX, |(next, _)| *next);
        let gone_by = (0..rows.len()).filter(|at| rows[*at].0 <= now && until(*at) >= since).map(|at| &rows[at].1);
        if rows.iter().any(|(at, _)| (asked_at..=now).contains(at)) {
            return Ok(());
        }
        let room = |row: &BucketRow| {
            let at = asked_at - error;
            let level = row.line(at).min(row.capacity);
            level - cost - row.flows_back_in(HEADROOM) - 2
        };
        let Some(least) = gone_by.map(room).min() else { return Ok(()) };
        self.judgements.push("judged: a refusal");
        if least <= 0 {
            return Ok(());
        }
        let stood: Vec<_> = rows.iter().filter(|(at, _)| *at >= since).collect();
        Err(format!(
            "{bucket}: {cost} were refused at {now} that were asked for at {asked_at}, and since {since} there were \
             {least} more than that: {stood:?}"
        ))
    }
}
