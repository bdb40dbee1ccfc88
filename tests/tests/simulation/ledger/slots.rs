//! Slots: one is free, or a lease holds it.

use super::{Ledger, Writer};
use crate::row::Micros;

/// No sweep takes longer.
const LONGEST_SWEEP: Micros = 120_000_000;

impl Ledger {
    /// What the leases of a bucket hold.
    pub(crate) fn held(&self, bucket: &str) -> Micros {
        let rows: Micros =
            self.leases.values().filter(|lease| lease.dimension == bucket).map(|lease| lease.cost).sum();
        let inline = self.buckets.get(bucket).into_iter().flat_map(|row| row.inline.values());
        rows + inline.map(|lease| lease.cost).sum::<Micros>()
    }

    /// Slots of a bucket that are neither free nor held.
    pub(super) fn gap(&self, bucket: &str) -> Option<Micros> {
        let row = self.buckets.get(bucket).filter(|row| row.concurrent)?;
        Some(row.capacity - row.tokens - self.held(bucket))
    }

    /// A slot is free or a lease holds it, and no write of the SDK makes that less true.
    pub(super) fn slots_add_up(
        &mut self,
        writer: Writer<'_>,
        dimension: &str,
        taking: bool,
        now: Micros,
    ) -> Result<(), String> {
        let Some(gap) = self.gap(dimension) else { return Ok(()) };
        let known = self.gaps.entry(dimension.to_owned()).or_default();
        let before = *known;
        *known = gap;
        let better = gap.abs() <= before.abs() && (gap == 0 || gap.signum() == before.signum());
        if writer == Writer::Vandal && gap != before {
            self.edits.push_back((dimension.to_owned(), now, gap - before));
        }
        let follows = self.follows_from_wrong_rows(writer, dimension, (before, gap), now)
            || self.may_correct_an_edit_too(writer, dimension, gap, now);
        if !better && !follows && writer != Writer::Vandal {
            let what = if gap > before { "lost" } else { "minted" };
            let by = writer.name();
            return Err(format!("{dimension}: {by} {what} {} millionths of a slot", (gap - before).abs()));
        }
        let row = self.buckets.get(dimension).ok_or("no such bucket")?;
        if taking && row.tokens < 0 {
            return Err(format!("{dimension}: a slot was taken that was not free, {} are left", row.tokens));
        }
        let live = self.held(dimension);
        // One write may give back what a wrong lease says, and take it.
        if taking && live > row.capacity && before >= 0 && !follows {
            return Err(format!("{dimension}: leases hold {live} of {}", row.capacity));
        }
        Ok(())
    }

    /// A correction rests on two readings of its sweep: what someone edited since the second is corrected
    /// too.
    fn may_correct_an_edit_too(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        gap: Micros,
        now: Micros,
    ) -> bool {
        self.edits.retain(|(_, at, _)| *at >= now - LONGEST_SWEEP);
        let Writer::Sweeper(sweeper) = writer else { return false };
        let began = self.last_sweep(sweeper).unwrap_or(now);
        let since = self.edits.iter().rev().filter(|(name, at, _)| name == bucket && *at >= began);
        let sums = since.scan(0, |sum, (.., by)| {
            *sum += by;
            Some(*sum)
        });
        let follows =
            sums.into_iter().any(|sum: Micros| gap.signum() == sum.signum() && gap.abs() <= sum.abs());
        self.judgements.extend(follows.then_some("a correction of what was edited meanwhile"));
        follows
    }

    /// DynamoDB's TTL deleted rows: `lives` says which are left.
    pub(crate) fn ttl_deleted(&mut self, now: Micros, lives: impl Fn(&str) -> bool) -> Result<usize, String> {
        let gone: Vec<String> = self.leases.keys().filter(|key| !lives(key)).cloned().collect();
        for key in &gone {
            let Some(lease) = self.leases.remove(key) else { continue };
            if lease.purge_at.is_none_or(|at| at > now) {
                return Err(format!(
                    "DynamoDB's TTL deleted {key}, the only trace of a slot, before its time"
                ));
            }
            if self.buckets.get(&lease.dimension).is_some_and(|row| row.concurrent) {
                *self.gaps.entry(lease.dimension.clone()).or_default() += lease.cost;
            }
            self.live_on(&lease.dimension, now);
        }
        Ok(gone.len())
    }
}
