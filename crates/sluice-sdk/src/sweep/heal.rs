//! The sweep of one bucket, by a process that it refused: gives back what ended leases of it hold, and does no more.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluice_core::{Bucket, CLOCK_ERROR, Dimension, InlineLeases};

use super::pipeline::Pipeline;
use super::reclaim::{self, Ended, Known};
use super::recount::Recount;
use super::report::{SweepOptions, SweepReport};
use super::{Deadlines, is_over};
use crate::client::Inner;
use crate::store::{Attributes, StoreError};

/// Nothing new is begun after that long, and no page is asked for after six tenths of it: as for a reconciler's run. Of a table that takes
/// longer each sweep reads another part.
const BUDGET: Duration = Duration::from_secs(60);

/// Parts of the table scanned at once; a small table has no more. Fewer than the reconciler's: each costs a request, and most tables are
/// one page.
const AT_ONCE: u16 = 4;

/// A large table has a part for each megabyte. They are scanned in random order, so that sweeps that are cut off, by the end of their
/// time or of their process, do not always miss the same rows.
const UNITS_PER_SEGMENT: u64 = 256;

/// So many parts take a megabyte each of a gigabyte.
const MOST_SEGMENTS: u16 = 1_024;

/// What a scan has cost so far, in read units, rounded up for each page. Clones are one count.
pub(crate) type ReadUnits = Arc<AtomicU64>;

/// What a sweep of one bucket did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Healed {
    /// Leases given back.
    pub(crate) restored: usize,
    /// Whether all that had ended was seen and given back.
    pub(crate) is_whole: bool,
    /// Parts of the table that were scanned to their end.
    pub(crate) parts_read: usize,
}

/// Gives back what the ended leases of `dimension` hold. What conflicts or the end of the time leave is the next one's. The scan of a
/// table that is thought to cost `expected` read units counts in `read_units` what it does cost.
pub(crate) async fn heal(
    inner: &Inner,
    dimension: &Dimension,
    expected: u64,
    read_units: &ReadUnits,
) -> Result<Healed, StoreError> {
    let options = SweepOptions {
        segments: segments(expected),
        concurrency: AT_ONCE,
        budget: Some(BUDGET),
        only: Some(dimension.clone()),
        ..SweepOptions::default()
    };
    let deadlines = Deadlines::of(options.budget);
    let now = inner.now();
    let mut report = SweepReport::default();
    let row = inner.store.read(dimension.as_str()).await?;
    let bucket = row.and_then(|row| Bucket::read(dimension, &Attributes(&row)).ok());
    // One that is gone, or that nobody can read, refuses nobody.
    let Some(bucket) = bucket.filter(|bucket| bucket.limit().is_concurrent()) else { return Ok(Healed::default()) };
    let has_rows = may_have_rows(&bucket);
    let cutoff = now.before(CLOCK_ERROR);
    let ended = bucket.inline().map_or(0, |leases| leases.ended(cutoff).count());
    if ended > 0 {
        let sweep = reclaim::Sweep { store: inner.store.clone(), deadlines, cutoff };
        let known = Some(Known::Bucket(bucket.into()));
        let done = reclaim::reclaim(sweep, dimension.clone(), known, Ended::Inline(ended)).await;
        report.count(dimension, &done.tally);
        done.result?;
    }
    if has_rows {
        report.segments_unscanned = usize::from(options.segments);
        let recount = Recount::of_none(now);
        Pipeline::new(&inner.store, &options, deadlines, recount).counting(read_units).run(&mut report).await?;
    }
    let is_whole = report.left == 0 && report.segments_unscanned == 0 && !is_over(deadlines.work);
    let parts_read = usize::from(options.segments).saturating_sub(report.segments_unscanned);
    Ok(Healed { restored: report.restored, is_whole, parts_read })
}

fn segments(read_units: u64) -> u16 {
    u16::try_from(read_units / UNITS_PER_SEGMENT).unwrap_or(MOST_SEGMENTS).clamp(AT_ONCE, MOST_SEGMENTS)
}

/// Whether more slots are taken than the inline leases hold: the others have lease rows, which only a scan finds.
fn may_have_rows(bucket: &Bucket) -> bool {
    let taken = bucket.limit().capacity().minus(bucket.tokens());
    taken > bucket.inline().map_or_else(Default::default, InlineLeases::held)
}
