//! Valid but wrong numbers in rows, written by someone by hand: what they may lead to, from the moment on at
//! which they were written.
//!
//! A rate bucket holds its bound from then on. Slots that were made or lost by hand are no less and no more
//! by any write of the SDK. A lease whose row says more than it took is worth what it took to its holder;
//! once it has ended, a sweep gives back what a lease row says, and so mints at most what it says beyond what
//! it took and at most what others hold; of what a lease in the row says, at most what lease rows hold beside
//! it (seed 7300002). A recount goes by what rows say: while such a lease lives, it may put right what is
//! right.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Ledger, Writer};
use crate::row::{BucketRow, LeaseRow, Micros};
use crate::wire::Purpose;

/// Rows of buckets of this prefix, and of their leases, get wrong numbers.
pub(crate) const FRAIL: &str = "frail#";

/// A write is on its way for so long at most: the time of a request and its tries.
const UNDERWAY: Micros = 6_000_000;

/// A sweep is over by then.
const SWEPT: Micros = 60_000_000;

/// What was damaged.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Leases that say another cost than they took, by their keys or ids.
    claims: BTreeMap<String, Claim>,
    /// Of the write that is looked at, those that it removed since they had ended.
    reclaimed: Vec<(Claim, Kind)>,
    /// What is neither free nor held, by what rows say.
    nominal: BTreeMap<String, Micros>,
    /// When a bucket or a lease of it was damaged last.
    at: BTreeMap<String, Micros>,
    /// When a process last tried in vain to repair the anchor of a bucket, since others wrote.
    failed_repairs: BTreeMap<(String, String), Micros>,
}

#[derive(Clone, Debug)]
struct Claim {
    bucket: String,
    took: Micros,
    says: Micros,
    /// The most that it ever said: a sweep gives back what it read, and someone may have written since.
    most_said: Micros,
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Row,
    Inline,
}

impl Damage {
    /// The same with what its leases took.
    pub(super) fn truly(&self, mut row: BucketRow) -> BucketRow {
        for (id, lease) in &mut row.inline {
            lease.cost = self.claims.get(id).map_or(lease.cost, |claim| claim.took);
        }
        row
    }

    /// The same with what it took.
    pub(super) fn took(&self, key: &str, lease: LeaseRow) -> LeaseRow {
        LeaseRow { cost: self.claims.get(key).map_or(lease.cost, |claim| claim.took), ..lease }
    }

    /// A lease is gone.
    pub(super) fn lease_gone(&mut self, key: &str, kind: Kind, is_reclaimed: bool) {
        if let Some(claim) = self.claims.remove(key)
            && is_reclaimed
        {
            self.reclaimed.push((claim, kind));
        }
    }

    fn claimed(&mut self, key: &str, bucket: &str, took: Micros, says: Micros) {
        let before = self.claims.get(key);
        let took = before.map_or(took, |claim| claim.took);
        let most_said = before.map_or(took, |claim| claim.most_said).max(says);
        self.claims.insert(key.to_owned(), Claim { bucket: bucket.to_owned(), took, says, most_said });
    }

    /// What the leases of a bucket say beyond what they took.
    fn overstated(&self, bucket: &str) -> Micros {
        self.claims.values().filter(|claim| claim.bucket == bucket).map(|claim| claim.says - claim.took).sum()
    }
}

impl Ledger {
    /// Someone wrote a wrong number into a bucket.
    pub(super) fn bucket_damaged(&mut self, key: &str, raw: BucketRow, now: Micros) {
        for (id, was) in self.buckets.get(key).into_iter().flat_map(|row| &row.inline) {
            if let Some(is) = raw.inline.get(id).filter(|is| is.cost != was.cost) {
                self.damage.claimed(id, key, was.cost, is.cost);
            }
        }
        self.damage.at.insert(key.to_owned(), now);
        let row = self.damage.truly(raw);
        let is_of_slots = row.concurrent;
        self.buckets.insert(key.to_owned(), row.clone());
        if is_of_slots {
            self.gaps.insert(key.to_owned(), self.gap(key).unwrap_or_default());
            self.look_at_what_rows_say(key);
            return;
        }
        self.filled.remove(key);
        self.vendor_events.forget(key);
        self.stood.forget(key);
        self.stood.written(key, (Writer::Vandal, Purpose::Other, true), &row, now);
        // Its bound begins anew.
        self.births.goes_on_as_another(key, now);
        self.changed.push((self.name_in_history(key), row));
    }

    /// Someone wrote a wrong number into a lease row.
    pub(super) fn lease_damaged(&mut self, key: &str, row: Option<&Value>, now: Micros) {
        let (Some(was), Some(is)) = (self.leases.get(key), row.and_then(LeaseRow::read)) else { return };
        let bucket = was.dimension.clone();
        self.damage.claimed(key, &bucket, was.cost, is.cost);
        self.damage.at.insert(bucket.clone(), now);
        self.look_at_what_rows_say(&bucket);
    }

    /// What is neither free nor held by what rows say: as it was, and as it is.
    fn look_at_what_rows_say(&mut self, bucket: &str) -> (Micros, Micros) {
        let is = self.gap(bucket).unwrap_or_default() - self.damage.overstated(bucket);
        let was = self.damage.nominal.insert(bucket.to_owned(), is).unwrap_or(is);
        (was, is)
    }

    /// Whether a write that changed what is neither free nor held, from `before` to `gap`, did what wrong
    /// rows may lead to.
    pub(super) fn follows_from_wrong_rows(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        (before, gap): (Micros, Micros),
        now: Micros,
    ) -> bool {
        if !bucket.starts_with(FRAIL) {
            return false;
        }
        let (was, is) = self.look_at_what_rows_say(bucket);
        let gone: Vec<_> = std::mem::take(&mut self.damage.reclaimed);
        if gone.is_empty() {
            // A correction rests on two readings, and someone may have written since the second.
            if matches!(writer, Writer::Sweeper(_))
                && self.damaged_at(bucket).is_some_and(|at| at >= now - SWEPT)
            {
                return true;
            }
            let has_claims = self.damage.claims.values().any(|claim| claim.bucket == bucket);
            return has_claims && is.abs() <= was.abs() && (is == 0 || is.signum() == was.signum());
        }
        self.judgements.push("judged: a lease that said more than it took");
        // The row of a bucket knows nothing of what lease rows hold beside its own leases, nor what those
        // took that say more than there is. What they held when the write was planned may have been given
        // back since.
        let rows = self.lives.held_by_rows(bucket, now - UNDERWAY);
        let unknown: Micros = self.overstating(bucket).map(|claim| claim.took).sum();
        let beyond = |(claim, kind): &(Claim, Kind)| match kind {
            Kind::Row => claim.most_said - claim.took,
            Kind::Inline => (claim.most_said - claim.took).min(rows + unknown),
        };
        let most: Micros = gone.iter().map(beyond).sum::<Micros>().min(self.held(bucket));
        gap >= before.min(0) - most
    }

    /// Leases in the row of a bucket that say more than it has.
    fn overstating(&self, bucket: &str) -> impl Iterator<Item = &Claim> {
        let capacity = self.buckets.get(bucket).map_or(0, |row| row.capacity);
        let inline =
            self.damage.claims.iter().filter(|(key, _)| !key.starts_with("lease#")).map(|(_, claim)| claim);
        inline.filter(move |claim| claim.bucket == bucket && claim.says > capacity)
    }

    /// Whether someone wrote wrong numbers into a bucket or its leases lately, or a lease still says one.
    pub(super) fn was_damaged(&self, bucket: &str, since: Micros) -> bool {
        let lately = self.damage.at.get(bucket).is_some_and(|at| *at >= since - SWEPT);
        lately || self.damage.claims.values().any(|claim| claim.bucket == bucket)
    }

    /// When someone last wrote a wrong number into a bucket.
    pub(crate) fn damaged_at(&self, bucket: &str) -> Option<Micros> {
        self.damage.at.get(bucket).copied()
    }

    /// A process could not repair the anchor of a bucket, since others wrote.
    pub(crate) fn repair_failed(&mut self, process: &str, bucket: &str, now: Micros) {
        self.damage.failed_repairs.insert((process.to_owned(), bucket.to_owned()), now);
    }

    /// When that was last.
    pub(crate) fn failed_to_repair_at(&self, process: &str, bucket: &str) -> Option<Micros> {
        self.damage.failed_repairs.get(&(process.to_owned(), bucket.to_owned())).copied()
    }

    /// Whether some lease says more or less than it took.
    pub(crate) fn has_wrong_leases(&self) -> bool {
        !self.damage.claims.is_empty()
    }
}

/// Whether a write is such damage.
pub(super) fn is_damage(writer: Writer<'_>, key: &str) -> bool {
    let bucket = key.strip_prefix("lease#").unwrap_or(key);
    writer == Writer::Vandal && bucket.starts_with(FRAIL)
}
