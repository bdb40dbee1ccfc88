//! How soon slots are back that a crashed holder had: while someone asks for them, with no sweeper.

use std::collections::BTreeMap;

use super::Ledger;
use crate::row::Micros;

/// From the end of a lease, as its row has it, until a mark may be made after the last that came too early to
/// find it, by exact clocks: 2 s until it has ended for every clock, and 8 s between two marks.
const MARKED_BY: Micros = 10_000_000;

/// Asking and sweeping. With it, the error of a clock (2 s) and the rounding of a lease's end (1 s) that is
/// lease TTL + 15 s.
const ASKED_AND_SWEPT: Micros = 2_000_000;

/// A heal that met a fault is followed by another so much later: the time between two, and that of its tries.
const ONE_MORE: Micros = 13_000_000;

/// A process that was refused tends a bucket for 8 s, by a clock that may jump by twice its error. Who asks
/// does so again sooner.
const ASKS_FOR: Micros = 3_000_000;

/// Who asks for slots, and what delays their coming back.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Of each bucket, by process: until when it asks.
    asking: BTreeMap<String, BTreeMap<String, Micros>>,
    /// Of each bucket: since when someone has asked without a pause, and until when.
    asked: BTreeMap<String, (Micros, Micros)>,
    /// What happened that excuses a delay: when, and of how long.
    excuses: Vec<(Micros, Micros)>,
    /// From the end of a lease, or since when somebody asks, to its slots' return: the longest without an
    /// excuse.
    pub(super) slowest: Micros,
    /// By how much longer asking and sweeping take where requests do.
    slack: Micros,
}

impl Recovery {
    pub(super) fn with(slack: Micros) -> Self {
        Self { slack, ..Self::default() }
    }

    fn excused(&self, since: Micros) -> Micros {
        self.excuses.iter().filter(|(at, _)| *at >= since).map(|(_, delay)| delay).sum()
    }
}

impl Ledger {
    /// A process was refused for want of slots, or stands in line for them.
    pub(crate) fn asks(&mut self, process: &str, bucket: &str, now: Micros) {
        let until = now + ASKS_FOR;
        self.recovery.asking.entry(bucket.to_owned()).or_default().insert(process.to_owned(), until);
        let (since, last) = self.recovery.asked.entry(bucket.to_owned()).or_insert((now, until));
        if *last < now {
            *since = now;
        }
        *last = until;
    }

    /// A request of a process that may be of a heal met a fault.
    pub(crate) fn heal_disturbed(&mut self, now: Micros) {
        self.recovery.excuses.push((now, ONE_MORE));
    }

    /// Time went on, and nobody ran meanwhile.
    pub(crate) fn stood_still(&mut self, now: Micros, time: Micros) {
        self.recovery.excuses.push((now, time));
    }

    /// A process died, or stands still, with the mark that it may have won. Whether it had is told.
    pub(crate) fn stopped(&mut self, process: &str, now: Micros) -> bool {
        let had_mark = self.is_scanned_by(process, now);
        self.recovery.excuses.extend(had_mark.then_some((now, ONE_MORE)));
        for (bucket, asking) in &mut self.recovery.asking {
            asking.remove(process);
            if let Some((_, until)) = self.recovery.asked.get_mut(bucket) {
                *until = asking.values().copied().max().unwrap_or(now);
            }
        }
        had_mark
    }

    /// No lease that ended is left for longer than is promised, while someone asks for its slots.
    pub(crate) fn slots_come_back(&self, now: Micros, error: Micros) -> Result<(), String> {
        for (bucket, row) in self.buckets.iter().filter(|(_, row)| row.concurrent) {
            let rows = self.leases.iter().filter(|(_, lease)| lease.dimension == *bucket);
            let rows = rows.map(|(key, lease)| (key, lease.ends));
            let inline = row.inline.iter().map(|(id, lease)| (id, lease.ends));
            for (key, ends) in rows.chain(inline) {
                let Some(late) = self.late(bucket, ends, now, error) else { continue };
                if late > 0 {
                    let asked = self.recovery.asked.get(bucket);
                    return Err(format!(
                        "{bucket}: {key} ended {} us ago, others ask for it ({asked:?}), and it is late by {late}",
                        now - ends
                    ));
                }
            }
        }
        Ok(())
    }

    /// By how much a lease that ended is late at `now`; `None` where nobody has asked without a pause.
    fn late(&self, bucket: &str, ends: Micros, now: Micros, error: Micros) -> Option<Micros> {
        let (since, until) = self.recovery.asked.get(bucket)?;
        // Whatever happened within a spacing before its end may show after it.
        let excused = self.recovery.excused(ends - ONE_MORE);
        let found_later = excused + self.found_later();
        let by = (ends + MARKED_BY + error).max(*since) + ASKED_AND_SWEPT + self.recovery.slack + found_later;
        (*until >= now && !self.is_vandalized).then_some(now - by)
    }

    /// A lease was given back after its end.
    pub(super) fn came_back(&mut self, bucket: &str, ends: Micros, now: Micros, error: Micros) {
        if self.late(bucket, ends, now, error).is_none() {
            return;
        }
        if self.recovery.excused(ends - ONE_MORE) + self.found_later() > 0 {
            self.judgements.push("a slot came back where a delay was excused");
            return;
        }
        self.judgements.push("judged: a slot came back in time");
        let since = self.recovery.asked.get(bucket).map_or(now, |(since, _)| (*since).max(ends));
        self.recovery.slowest = self.recovery.slowest.max(now - since);
    }

    /// The longest that ended leases were left while somebody asked, where nothing excused it.
    pub(crate) const fn slowest_return(&self) -> Micros {
        self.recovery.slowest
    }
}
