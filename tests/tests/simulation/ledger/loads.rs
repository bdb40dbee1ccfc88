//! Load rows: which processes note themselves, and what sweeps measure.

use std::collections::{BTreeMap, VecDeque};

use sluice_core::schema::HEAL_KEY;

use super::lives::{Stand, Window};
use super::{CLOCK_ERROR, Ledger, Touched, Writer};
use crate::row::{LoadRow, Micros};
use crate::wire::Purpose;

/// Processes are counted in periods that long.
const NOTE_EVERY: Micros = 8_000_000;

/// The slowest call that is reckoned with, in seconds: a drain rate is never below each slot once in that
/// time.
const SLOWEST_CALL: Micros = 900;

/// The least time between two measurements.
const SHORTEST_SAMPLE: Micros = 1_000_000;

/// So long after a row was spoiled, a sweep may still write what follows from its not being readable.
const SPOILED_FOR: Micros = 30_000_000;

/// What a drain rate may be off by, for rounding: picotokens a second.
const ROUNDING: Micros = 1_000;

/// The load rows as they must be.
#[derive(Debug, Default)]
pub(super) struct Loads {
    rows: BTreeMap<String, LoadRow>,
    /// When each sweeper began its last sweeps.
    begun: BTreeMap<String, VecDeque<Micros>>,
    /// When someone last spoiled or mended a row.
    spoiled: BTreeMap<String, Micros>,
}

impl Ledger {
    /// A sweeper begins a sweep.
    pub(crate) fn sweep_begins(&mut self, sweeper: &str, now: Micros) {
        let begun = self.loads.begun.entry(sweeper.to_owned()).or_default();
        begun.push_back(now);
        if begun.len() > 50 {
            begun.pop_front();
        }
    }

    /// When a sweeper began its last sweep.
    pub(super) fn last_sweep(&self, sweeper: &str) -> Option<Micros> {
        self.loads.begun.get(sweeper)?.back().copied()
    }

    /// Someone spoiled a row, or mended it.
    pub(crate) fn spoiled(&mut self, key: &str, now: Micros) {
        self.is_vandalized = true;
        self.loads.spoiled.insert(key.to_owned(), now);
    }

    pub(super) fn load_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<(), String> {
        let (key, by) = (&change.key, writer.name());
        if key == HEAL_KEY {
            return self.mark_changed(writer, change, now, error);
        }
        let Some(bucket) = key.strip_prefix("load#").filter(|name| self.was_there(name)) else {
            return match writer {
                Writer::Sweeper(_) => Ok(()),
                _ => Err(format!("{by} wrote {key}, which is the sweeps' own")),
            };
        };
        if change.was_spoiled {
            self.loads.spoiled.insert(key.clone(), now);
        }
        if change.row.is_none() && writer == Writer::Operator {
            // It goes with its bucket.
            self.loads.rows.remove(key);
            return Ok(());
        }
        let after = LoadRow::read(change.row.as_ref().ok_or_else(|| format!("{by} removed {key}"))?);
        let before = self.loads.rows.insert(key.clone(), after.clone()).unwrap_or_default();
        let expected = match change.purpose {
            Purpose::Note { period, before: last, refusals } => {
                let noted = self.noted(writer, bucket, before.crowd, (period, last), (now, error))?;
                LoadRow { crowd: noted, refused: before.refused + refusals, ..before.clone() }
            }
            Purpose::Measure => {
                self.measured(writer, bucket, (&before, &after), (now, error))?;
                let LoadRow { refused, crowd, .. } = before;
                LoadRow { refused, crowd, ..after.clone() }
            }
            _ => before.clone(),
        };
        if after != expected && !self.was_spoiled(key, now) {
            return Err(format!("{key}: {by} wrote {after:?} over {before:?}"));
        }
        Ok(())
    }

    pub(super) fn was_spoiled(&self, key: &str, now: Micros) -> bool {
        self.loads.spoiled.get(key).is_some_and(|at| now - at <= SPOILED_FOR)
    }

    /// Each note counts one process, in a period that some clock shows.
    fn noted(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        [period, count, last]: [Micros; 3],
        (now_in, before): (Micros, Option<Micros>),
        (now, error): (Micros, Micros),
    ) -> Result<[Micros; 3], String> {
        let Writer::Process(by) = writer else {
            return Err(format!("{bucket}: {} noted itself", writer.name()));
        };
        let was_spoiled = self.was_spoiled(&format!("load#{bucket}"), now);
        if now_in > (now + error).div_euclid(NOTE_EVERY) && !was_spoiled {
            return Err(format!("{bucket}: {by} noted itself in {now_in}, which no clock shows at {now}"));
        }
        if before.is_some_and(|before| before > if period + 1 == now_in { count } else { 0 }) && !was_spoiled
        {
            return Err(format!("{bucket}: {by} counted {before:?} in {period}, and there were {count}"));
        }
        self.judgements.push("judged: a note");
        Ok(match before {
            None => [period, count + 1, last],
            Some(before) => [now_in, 1, before],
        })
    }

    /// A measurement says what was, between the two readings of its sweep.
    fn measured(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        (before, after): (&LoadRow, &LoadRow),
        (now, error): (Micros, Micros),
    ) -> Result<(), String> {
        let Writer::Sweeper(by) = writer else {
            return Err(format!("{bucket}: {} measured it", writer.name()));
        };
        let wrong = |what: &str| Err(format!("{bucket}: {by} measured {what}: {before:?}, then {after:?}"));
        // The last sweep that began before, by every clock; the reading is no later than the write.
        let begun =
            self.loads.begun.get(by).into_iter().flatten().rev().find(|begun| **begun <= after.at - error);
        let window =
            Window { from: begun.copied().unwrap_or_default(), to: now.min(after.at + error), error };
        if self.was_damaged(bucket, window.from.min(before.at)) {
            self.judgements.push("load measured of wrong numbers");
            return Ok(());
        }
        if self.is_another_since(bucket, window.from) {
            // It is of no one bucket: the first reading may be of the last one. The next sweep's is judged.
            self.judgements.push("load measured across two buckets");
            return Ok(());
        }
        let stood = self.lives.stood(bucket, window);
        let found = |stand: &&Stand| (stand.taken, stand.admitted) == (after.taken, after.admitted);
        // A change of the limit leaves what is taken as it was.
        let capacities = || stood.iter().filter(found).map(|stand| stand.capacity);
        let (Some(smallest), Some(largest)) = (capacities().min(), capacities().max()) else {
            return wrong(&format!("what it never was, only {stood:?}"));
        };
        let (least, most) = self.lives.held(bucket, window, smallest);
        // What is spoiled is no lease to a sweep.
        if after.pending > most || (after.pending < least && !self.is_vandalized) {
            return wrong(&format!("what is pending wrong, between {least} and {most} were"));
        }
        self.judgements.push("load measured");
        if before.sequence == 0 || self.was_spoiled(&format!("load#{bucket}"), now) {
            let is_next = after.sequence == 1 || after.sequence == before.sequence + 1;
            return if is_next { Ok(()) } else { wrong("out of turn") };
        }
        if after.sequence != before.sequence + 1 {
            return wrong("out of turn");
        }
        if after.at - before.at < SHORTEST_SAMPLE {
            return wrong("too soon after the last");
        }
        let since = if before.pending_since > 0 { before.pending_since } else { after.at };
        if after.pending_since != if after.pending > 0 { since } else { 0 } {
            return wrong("since when work is pending wrong");
        }
        let (low, high) = (rates(before, after, smallest).0, rates(before, after, largest).1);
        if after.rate < low - ROUNDING || after.rate > high + ROUNDING {
            return wrong(&format!("a rate that is not between {low} and {high}"));
        }
        let is_idle = before.pending == 0 && after.pending == 0 && before.rate > 0;
        self.judgements.extend(is_idle.then_some("judged: an idle bucket keeps its rate"));
        self.judgements.extend((after.rate > 0).then_some("judged: a drain rate"));
        Ok(())
    }
}

/// Between what a drain rate must be, in picotokens a second, after a measurement that followed another.
fn rates(before: &LoadRow, after: &LoadRow, capacity: Micros) -> (Micros, Micros) {
    let floor = capacity * 1_000_000 / SLOWEST_CALL;
    let floored = |rate: Micros| if rate > 0 { rate.max(floor) } else { 0 };
    let granted = after.admitted - before.admitted;
    let departed = (granted - (after.pending - before.pending)).max(0);
    let sample = departed * 1_000_000_000_000 / (after.at - before.at);
    let is_known = granted >= 0 && after.uncounted == before.uncounted;
    let (was_busy, is_busy) = (before.pending > 0, after.pending > 0);
    match (was_busy && is_busy, was_busy || is_busy) {
        (true, _) if is_known && before.rate == 0 => (sample.max(floor), sample.max(floor)),
        (true, _) if is_known => (floored(before.rate.min(sample).max(1)), floored(before.rate.max(sample))),
        // Busy for a part of the time: that may show that it drains faster, and never slower.
        (false, true) if is_known && before.rate > 0 => {
            (floored(before.rate), floored(before.rate.max(sample)))
        }
        _ => (floored(before.rate), floored(before.rate)),
    }
}

/// Leases that ended before this, by a clock, have ended for every clock.
pub(super) fn is_over_for_all(ends: Micros, now: Micros, error: Micros) -> bool {
    ends + CLOCK_ERROR <= now + error
}
