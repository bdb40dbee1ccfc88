//! The sweep of one bucket, by a process that it refused: gives back what ended leases of it hold, and does no more.

use std::time::Duration;

use sluice_core::{Bucket, CLOCK_ERROR, Dimension, InlineLeases};

use super::pipeline::Pipeline;
use super::reclaim::{self, Ended, Known};
use super::recount::Recount;
use super::report::{SweepOptions, SweepReport};
use super::{Deadlines, is_over};
use crate::client::Inner;
use crate::store::{Attributes, StoreError};

/// Nothing new is begun after that long.
const BUDGET: Duration = Duration::from_secs(10);

/// Parts of the table, all scanned at once. Fewer than the reconciler's: each costs a request, and most tables are one page.
const SEGMENTS: u16 = 4;

/// What a sweep of one bucket did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Healed {
    /// Leases given back.
    pub(crate) restored: usize,
    /// What the scan cost; nothing where there was none.
    pub(crate) read_units: f64,
    /// Whether all that had ended was seen and given back.
    pub(crate) is_whole: bool,
}

/// Gives back what the ended leases of `dimension` hold. What conflicts or the end of the time leave is the next one's.
pub(crate) async fn heal(inner: &Inner, dimension: &Dimension) -> Result<Healed, StoreError> {
    let segments_unscanned = usize::from(SEGMENTS);
    let options = SweepOptions {
        segments: SEGMENTS,
        concurrency: SEGMENTS,
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
    let mut read_units = 0.0;
    if has_rows {
        report.segments_unscanned = segments_unscanned;
        let mut pipeline = Pipeline::new(&inner.store, &options, deadlines, Recount::of_none(now));
        let result = pipeline.run(&mut report).await;
        read_units = pipeline.read_units();
        result?;
    }
    let is_whole = report.left == 0 && report.segments_unscanned == 0 && !is_over(deadlines.work);
    Ok(Healed { restored: report.restored, read_units, is_whole })
}

/// Whether more slots are taken than the inline leases hold: the others have lease rows, which only a scan finds.
fn may_have_rows(bucket: &Bucket) -> bool {
    let taken = bucket.limit().capacity().minus(bucket.tokens());
    taken > bucket.inline().map_or_else(Default::default, InlineLeases::held)
}
