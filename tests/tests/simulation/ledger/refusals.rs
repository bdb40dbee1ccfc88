//! Service, for whoever is refused: a refusal of tokens rests on what the bucket was within the last second.
//! Where it had enough at every moment that the process may have gone by, the refusal is wrong.
//!
//! Excused: nothing. What a process may go by reaches further back where its clock was set back, and by the
//! time of a reply, and it may be any row that stood while it asked, less what it took since by transactions,
//! whose replies show no row. Not judged are a process that stood still meanwhile, one that answers by itself
//! while DynamoDB is out, and rows that someone spoils. Counted apart is a process that took tokens while
//! this caller asked, by a time that the reply then corrected backwards: their start lies ahead, so that they
//! are given back, and the caller is refused (a process that is new does so).

use std::collections::{BTreeMap, VecDeque};

use super::rates::taken;
use super::{Ledger, Writer};
use crate::row::{BucketRow, Micros};
use crate::wire::Purpose;

/// A refusal is remembered for so long at most.
const REMEMBERED: Micros = 1_000_000;

/// A reply takes so long at most.
const REPLY: Micros = 1_000_000;

/// Rows are kept for so long.
const KEPT: Micros = 30_000_000;

/// A full write of a contended bucket leaves the refill of a tenth of a second below the brim, more where
/// DynamoDB is slow.
const HEADROOM: Micros = 500_000;

/// Someone who was refused tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) process: &'a str,
    pub(crate) cost: Micros,
    /// When it asked, and was answered, in true time.
    pub(crate) asked_at: Micros,
    pub(crate) now: Micros,
    /// How far the time of its process may be off, and how far it is, when it is answered.
    pub(crate) error: Micros,
    pub(crate) off: Micros,
}

/// How rate buckets stood.
#[derive(Debug, Default)]
pub(super) struct Stood(BTreeMap<String, VecDeque<Standing>>);

/// A row, from the moment of the write that made it on.
#[derive(Debug)]
struct Standing {
    since: Micros,
    row: BucketRow,
    /// Where the write took: the process, the time that it was planned for, and how much.
    taken: Option<(String, Micros, Micros)>,
    /// Whether the reply of the write showed the row.
    is_shown: bool,
}

impl Standing {
    fn was_taken_by(&self, process: &str) -> bool {
        self.taken.as_ref().is_some_and(|(by, ..)| by == process)
    }

    /// Whether the process took it by a time that it knows by now to lie ahead.
    fn was_taken_ahead(&self, refused: &Refused<'_>) -> bool {
        let Some((process, planned, _)) = &self.taken else { return false };
        let asked = refused.asked_at..=refused.now;
        process == refused.process && asked.contains(&self.since) && *planned > self.since + refused.off
    }
}

impl Stood {
    /// A bucket is gone.
    pub(super) fn forget(&mut self, bucket: &str) {
        self.0.remove(bucket);
    }

    pub(super) fn written(
        &mut self,
        bucket: &str,
        (by, purpose, is_shown): (Writer<'_>, Purpose, bool),
        row: &BucketRow,
        now: Micros,
    ) {
        let rows = self.0.entry(bucket.to_owned()).or_default();
        let taken = match purpose {
            Purpose::Take { now: planned, .. } => {
                let amount = rows.back().map_or(0, |before| taken(purpose, &before.row, row));
                Some((by.name().to_owned(), planned, amount))
            }
            _ => None,
        };
        rows.push_back(Standing { since: now, row: row.clone(), taken, is_shown });
        // The one before still stood at the beginning of what is kept.
        while rows.get(1).is_some_and(|next| next.since < now - KEPT) {
            rows.pop_front();
        }
    }
}

impl Ledger {
    /// Whether writes of others than `but` took since `from` at least nine tenths of what flowed back into a
    /// bucket: in `long`, and in each of the jumps of time as much as it holds.
    pub(crate) fn was_used_up(
        &self,
        (bucket, but): (&str, &str),
        from: Micros,
        (long, jumps): (Micros, &[Micros]),
    ) -> bool {
        let Some(rows) = self.stood.0.get(bucket) else { return false };
        let Some(last) = rows.back() else { return false };
        let since = rows.iter().filter(|standing| standing.since >= from && !standing.was_taken_by(but));
        let amounts: Micros =
            since.filter_map(|standing| standing.taken.as_ref()).map(|(.., amount)| amount).sum();
        let meanwhile = jumps.iter().map(|by| last.row.flows_back_in(*by).min(last.row.capacity));
        amounts * 10 >= (last.row.flows_back_in(long) + meanwhile.sum::<Micros>()) * 9
    }

    /// A caller was refused for want of tokens.
    pub(crate) fn refused(&mut self, bucket: &str, refused: Refused<'_>) -> Result<(), String> {
        let Some(rows) = self.stood.0.get(bucket).filter(|_| !self.is_vandalized) else { return Ok(()) };
        let Refused { cost, asked_at, now, error, .. } = refused;
        let since = asked_at - REMEMBERED - REPLY - 2 * error;
        let until = |at: usize| rows.get(at + 1).map_or(Micros::MAX, |next| next.since);
        let gone_by = (0..rows.len()).filter(|at| rows[*at].since <= now && until(*at) >= since);
        // What the process took since by a transaction, whose reply showed no later row.
        let unseen = |at: usize| -> Micros {
            let its = |standing: &&Standing| !standing.is_shown && standing.was_taken_by(refused.process);
            rows.range(at + 1..)
                .filter(its)
                .filter_map(|standing| standing.taken.as_ref())
                .map(|(.., amount)| amount)
                .sum()
        };
        let room = |at: usize| {
            let (row, when) = (&rows[at].row, asked_at - error);
            let level = row.line(when).min(row.capacity) - unseen(at);
            level - cost - row.flows_back_in(HEADROOM) - 2
        };
        let Some(least) = gone_by.map(room).min() else { return Ok(()) };
        if least > 0 && rows.iter().any(|standing| standing.was_taken_ahead(&refused)) {
            self.judgements.push("a refusal after a take that lay ahead");
            return Ok(());
        }
        self.judgements.push("judged: a refusal");
        if least <= 0 {
            return Ok(());
        }
        let stood: Vec<_> = rows.iter().filter(|standing| standing.since >= since).collect();
        Err(format!("{bucket}: {refused:?}, and since {since} there were {least} more than that: {stood:?}"))
    }
}
