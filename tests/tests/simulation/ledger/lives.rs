//! When each lease lived, and how each concurrency bucket stood: what a sweep may have seen between its two
//! readings.

use std::collections::{BTreeMap, VecDeque};

use super::Ledger;
use crate::row::{BucketRow, Micros};

/// What was over so long ago is forgotten. No sweep of the simulation lasts as long.
const KEPT: Micros = 150_000_000;

/// A bucket that was read within a second is not read again, and a reply takes up to another.
const UNREAD: Micros = 2_100_000;

/// The lives of leases, by bucket.
#[derive(Debug, Default)]
pub(super) struct Lives {
    leases: BTreeMap<String, Vec<Life>>,
    stands: BTreeMap<String, VecDeque<Stand>>,
}

/// One lease, of a row of its own or inline.
#[derive(Debug)]
struct Life {
    id: String,
    cost: Micros,
    born: Micros,
    gone: Micros,
    /// Its ends, each with the moment at which it was written.
    ends: Vec<(Micros, Micros)>,
}

/// How a bucket stood from a moment on, until the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    from: Micros,
    pub(super) taken: Micros,
    pub(super) admitted: Micros,
    pub(super) capacity: Micros,
}

/// From one moment to another, in true time, with the clocks' error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from: Micros,
    pub(super) to: Micros,
    pub(super) error: Micros,
}

impl Lives {
    /// Takes in the leases of a bucket as they are at `now`, by their ids.
    fn are(&mut self, bucket: &str, now: Micros, leases: &BTreeMap<String, (Micros, Micros)>) {
        let lives = self.leases.entry(bucket.to_owned()).or_default();
        for life in lives.iter_mut().filter(|life| life.gone == Micros::MAX) {
            match leases.get(&life.id) {
                None => life.gone = now,
                Some((_, ends)) if life.ends.last().is_some_and(|(_, last)| last != ends) => {
                    life.ends.push((now, *ends))
                }
                Some(_) => {}
            }
        }
        for (id, (cost, ends)) in leases {
            if !lives.iter().any(|life| life.gone == Micros::MAX && life.id == *id) {
                let (id, cost, ends) = (id.clone(), *cost, vec![(now, *ends)]);
                lives.push(Life { id, cost, born: now, gone: Micros::MAX, ends });
            }
        }
        lives.retain(|life| life.gone > now - KEPT);
    }

    fn stands(&mut self, bucket: &str, now: Micros, row: &BucketRow) {
        let stands = self.stands.entry(bucket.to_owned()).or_default();
        let (taken, admitted, capacity) = (row.capacity - row.tokens, row.admitted, row.capacity);
        stands.push_back(Stand { from: now, taken, admitted, capacity });
        while stands.get(1).is_some_and(|next| next.from < now - KEPT) {
            stands.pop_front();
        }
    }

    /// How a bucket stood at some moment of a window.
    pub(super) fn stood(&self, bucket: &str, window: Window) -> Vec<Stand> {
        let stands: Vec<Stand> = self.stands.get(bucket).into_iter().flatten().copied().collect();
        let until = |at: usize| stands.get(at + 1).map_or(Micros::MAX, |next| next.from);
        let in_window = |at: &usize| stands[*at].from <= window.to && until(*at) >= window.from;
        (0..stands.len()).filter(in_window).map(|at| stands[at]).collect()
    }

    /// The least and the most that leases held which a reading within the window may have found living. One
    /// from before the limit was lowered counts as the whole `capacity` at least.
    pub(super) fn held(&self, bucket: &str, window: Window, capacity: Micros) -> (Micros, Micros) {
        let Window { from, to, error } = window;
        let lives = || self.leases.get(bucket).into_iter().flatten();
        // Through all of it, and with an end that no clock had passed by then.
        let surely = lives().filter(|life| {
            let ends = life.ends.iter().rev().find(|(written, _)| *written <= from);
            life.gone > to && ends.is_some_and(|(_, ends)| *ends >= to + error)
        });
        let perhaps = lives().filter(|life| {
            let latest = life.ends.iter().map(|(_, ends)| *ends).max().unwrap_or_default();
            life.born <= to && life.gone >= from && latest >= from - error - super::CLOCK_ERROR
        });
        (surely.map(|life| life.cost.min(capacity)).sum(), perhaps.map(|life| life.cost).sum())
    }

    /// When a lease of a bucket went last, from `from` on and until `to`.
    pub(super) fn departed(&self, bucket: &str, from: Micros, to: Micros) -> Option<Micros> {
        let gone = self.leases.get(bucket).into_iter().flatten().map(|life| life.gone);
        gone.filter(|gone| (from..=to).contains(gone)).max()
    }

    /// What lease rows of a bucket held since.
    pub(super) fn held_by_rows(&self, bucket: &str, since: Micros) -> Micros {
        let lives = self.leases.get(bucket).into_iter().flatten();
        lives.filter(|life| life.id.starts_with("lease#") && life.gone >= since).map(|life| life.cost).sum()
    }

    /// The leases of a bucket that lived at some moment from `from` on until `to`, and longer than `long` by
    /// then: when each was born, by its id.
    pub(super) fn long_lives(
        &self,
        bucket: &str,
        from: Micros,
        to: Micros,
        long: Micros,
    ) -> Vec<(String, Micros)> {
        let lives = self.leases.get(bucket).into_iter().flatten();
        let is_long =
            |life: &&Life| life.gone >= from && life.born <= to && life.gone.min(to) - life.born > long;
        lives.filter(is_long).map(|life| (life.id.clone(), life.born)).collect()
    }

    /// Whether some lease held slots of a bucket at every moment from `from` to `to`.
    pub(super) fn was_held(&self, bucket: &str, from: Micros, to: Micros) -> bool {
        let mut held_until = from;
        let mut lives: Vec<_> = self.leases.get(bucket).into_iter().flatten().collect();
        lives.sort_by_key(|life| life.born);
        for life in lives {
            if life.born <= held_until {
                held_until = held_until.max(life.gone);
            }
        }
        held_until >= to
    }
}

impl Ledger {
    /// The vendor was taken for down at `now`: by any clock, something was held for the staleness time and
    /// nothing departed. What a process has not read yet it cannot know.
    pub(crate) fn is_down(
        &self,
        bucket: &str,
        now: Micros,
        staleness: Micros,
        error: Micros,
    ) -> Result<(), String> {
        let (from, to) = (now - staleness + 2 * error + 1, now - UNREAD - 2 * error);
        if from >= to {
            return Ok(());
        }
        if let Some(at) = self.lives.departed(bucket, from, to) {
            return Err(format!(
                "{bucket}: its vendor was taken for down, and a lease went {} us before",
                now - at
            ));
        }
        if !self.lives.was_held(bucket, from, to) {
            return Err(format!(
                "{bucket}: its vendor was taken for down, and for a part of {staleness} us nothing was held"
            ));
        }
        Ok(())
    }

    /// The leases of a bucket that lived at some moment from `from` on until `to`, and longer than `long` by
    /// then: when each was born, by its id.
    pub(crate) fn long_lives(
        &self,
        bucket: &str,
        from: Micros,
        to: Micros,
        long: Micros,
    ) -> Vec<(String, Micros)> {
        self.lives.long_lives(bucket, from, to, long)
    }

    /// Notes how a concurrency bucket and its leases are after a write.
    pub(super) fn live_on(&mut self, bucket: &str, now: Micros) {
        let Some(row) = self.buckets.get(bucket).filter(|row| row.concurrent) else { return };
        let rows = self.leases.iter().filter(|(_, lease)| lease.dimension == bucket);
        let rows = rows.map(|(key, lease)| (key.clone(), (lease.cost, lease.ends)));
        let inline = row.inline.iter().map(|(id, lease)| (id.clone(), (lease.cost, lease.ends)));
        self.lives.are(bucket, now, &rows.chain(inline).collect());
        self.lives.stands(bucket, now, row);
    }
}
