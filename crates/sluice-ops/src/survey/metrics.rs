//! What a survey reports about the whole table, as metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use ::metrics::SharedString;
use sluice_core::{Amount, Bucket, COMMON, Dimension, SlotLine, SlotRows, Timestamp};

use sluice_table::metric as names;

use super::{LoadRow, Survey};
use crate::telemetry::number;

/// A lease that ended this long ago was missed by two sweeps of the five-minute rule.
const OVERDUE: Duration = Duration::from_secs(11 * 60);

/// The most buckets that are reported, by name. If there are more, names were made from input, and no
/// collector should keep them all.
const MOST_PUBLISHED: usize = 1_000;

/// For each bucket: its leases, and how many of them are overdue.
type Leases<'a> = BTreeMap<&'a Dimension, (usize, usize)>;

impl Survey {
    /// Reports the metrics whose source is the table ([`MetricSource`](sluice_table::metric::MetricSource))
    /// to the recorder of this thread, or of the program. In a recorder that is used again, what is gone
    /// keeps its last value. If only a part was read ([`is_whole`](Survey::is_whole) is false),
    /// `sluice.scrape.whole` is 0 and a warning is logged: counts are too low, and buckets may be missing.
    pub fn publish(&self) {
        let leases = self.leases_by_bucket();
        let buckets = self.buckets.iter().filter_map(|row| row.bucket.as_ref().ok());
        buckets.take(MOST_PUBLISHED).for_each(|bucket| {
            publish_bucket(bucket, &leases, self.at);
            self.slot_lines(bucket).iter().for_each(|line| publish_slot_line(bucket, line));
        });
        self.loads.iter().take(MOST_PUBLISHED).for_each(|row| publish_load(row, self.at));
        if self.buckets.len() > MOST_PUBLISHED {
            tracing::warn!(
                event = "metrics.untold",
                buckets = self.buckets.len() - MOST_PUBLISHED,
                "too many buckets: the metrics leave this number of buckets out"
            );
        }
        let faults = self.buckets.iter().filter(|row| row.bucket.is_err()).count()
            + self.leases.iter().filter(|row| row.lease.is_err()).count()
            + self.loads.iter().filter(|row| row.load.is_err()).count();
        if let Some(sweep) = self.sweeps.until(self.at).next() {
            names::SWEEP_AGE.gauge([]).set(self.at.since(sweep.at));
        }
        names::TABLE_UNREADABLE.gauge([]).set(number(faults));
        names::SCRAPE_DURATION.gauge([]).set(self.took);
        names::SCRAPE_WHOLE.gauge([]).set(number(u8::from(self.is_whole)));
        if !self.is_whole {
            tracing::warn!(
                event = "metrics.partial",
                rows = self.rows,
                pages = self.pages,
                "the table is too large for one scan: the metrics describe a part of it"
            );
        }
        names::SCRAPE_ROWS.gauge([]).set(number(self.rows));
        if let Some(units) = self.read_units {
            names::SCRAPE_UNITS.gauge([]).set(units);
        }
    }

    /// The lines of a concurrency bucket with shares; none of any other bucket.
    #[must_use]
    pub fn slot_lines(&self, bucket: &Bucket) -> Vec<SlotLine> {
        if !bucket.has_slot_shares() {
            return Vec::new();
        }
        let row = |of: &Dimension| self.readable(of);
        SlotLine::all(bucket, row, self.leases.iter().filter_map(|row| row.lease.as_ref().ok()))
    }

    /// The rows of a concurrency bucket with shares that could be read.
    #[must_use]
    pub fn slot_rows(&self, bucket: &Bucket) -> SlotRows {
        let shares = bucket.slot_shares().iter().map(|share| self.readable(&share.row).cloned());
        SlotRows { shares: shares.collect(), common: bucket.clone() }
    }

    fn readable(&self, dimension: &Dimension) -> Option<&Bucket> {
        let mut readable = self.buckets.iter().filter_map(|row| row.bucket.as_ref().ok());
        readable.find(|row| row.dimension() == dimension)
    }

    fn leases_by_bucket(&self) -> Leases<'_> {
        let mut leases = Leases::new();
        for lease in self.leases.iter().filter_map(|row| row.lease.as_ref().ok()) {
            let (all, overdue) = leases.entry(lease.dimension()).or_default();
            *all += 1;
            *overdue += usize::from(self.at.since(lease.ends()) > OVERDUE);
        }
        leases
    }
}

fn label(dimension: &Dimension) -> SharedString {
    SharedString::from_owned(dimension.to_string())
}

fn publish_bucket(bucket: &Bucket, leases: &Leases<'_>, at: Timestamp) {
    let dimension = bucket.dimension();
    names::BUCKET_LEVEL.gauge([label(dimension)]).set(number(bucket.whole_level(at)));
    names::BUCKET_CAPACITY.gauge([label(dimension)]).set(number(bucket.whole_limit().capacity()));
    if bucket.has_shares() {
        bucket.every_line().iter().for_each(|line| publish_line(line, at));
    }
    let cool_down = bucket.blocked_until().map_or(Duration::ZERO, |until| until.since(at));
    names::BUCKET_COOL_DOWN.gauge([label(dimension)]).set(cool_down);
    let (all, overdue) = leases.get(dimension).copied().unwrap_or_default();
    names::BUCKET_LEASES.gauge([label(dimension)]).set(number(all));
    names::BUCKET_OVERDUE.gauge([label(dimension)]).set(number(overdue));
    if bucket.limit().is_concurrent() {
        let drift = bucket.noted_drift().unwrap_or(Amount::ZERO);
        names::BUCKET_DRIFT.gauge([label(dimension)]).set(number(drift));
    }
}

/// Reports one line of a bucket with shares.
fn publish_line(line: &Bucket, at: Timestamp) {
    let share = line.share().map_or_else(|| COMMON.to_owned(), ToString::to_string);
    let labels = || [label(line.dimension()), SharedString::from_owned(share.clone())];
    names::SHARE_LEVEL.gauge(labels()).set(number(line.level(at)));
    names::SHARE_CAPACITY.gauge(labels()).set(number(line.limit().capacity()));
    let whole = |amount: Amount| u64::try_from(amount.micros() / 1_000_000).unwrap_or(0);
    names::SHARE_LENT.counter(labels()).absolute(whole(line.lent()));
    names::SHARE_TOKENS_BORROWED.counter(labels()).absolute(whole(line.borrowed()));
}

/// Reports one line of a concurrency bucket with shares, under the name of the bucket.
fn publish_slot_line(bucket: &Bucket, line: &SlotLine) {
    let labels = || [label(bucket.dimension()), SharedString::from_owned(line.name().to_owned())];
    if let Some(free) = line.free {
        names::SHARE_LEVEL.gauge(labels()).set(number(free));
    }
    names::SHARE_CAPACITY.gauge(labels()).set(number(line.guaranteed));
    names::SHARE_SLOTS_LENT.gauge(labels()).set(number(line.lent));
    names::SHARE_SLOTS_BORROWED.gauge(labels()).set(number(line.borrowed));
}

fn publish_load(row: &LoadRow, at: Timestamp) {
    let Ok(load) = &row.load else { return };
    let dimension = &row.dimension;
    names::LOAD_PENDING.gauge([label(dimension)]).set(number(load.pending()));
    if let Some(rate) = load.drain_rate() {
        names::LOAD_DRAIN_RATE.gauge([label(dimension)]).set(number(rate));
    }
    names::LOAD_LEAKED.gauge([label(dimension)]).set(number(load.leaked()));
    names::LOAD_REFUSED.counter([label(dimension)]).absolute(u64::try_from(load.refused()).unwrap_or(0));
    names::LOAD_OUTLIVED
        .counter([label(dimension)])
        .absolute(u64::try_from(load.expired_holders()).unwrap_or(0));
    if let Some(measured_at) = load.measured_at() {
        names::LOAD_AGE.gauge([label(dimension)]).set(at.since(measured_at));
    }
}
