//! Part 3: recounts the concurrency buckets, read before and after the scan, also to measure their loads.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::schema::{DIRECTORY_KEY, KEY, LOAD_PREFIX};
use sluice_core::{
    Bucket, Census, Correction, Dimension, Directory, Drift, Load, ReadAt, Returned, Timestamp,
};

use super::measure::Loads;
use super::report::{SweepOptions, SweepReport};
use sluice_table::{Attributes, Item, Resend, Store, StoreError, Written, value_text};

/// A recount under way.
#[derive(Debug)]
pub(super) struct Recount {
    read_at: ReadAt,
    directory: Directory,
    /// Each bucket as it was read before the scan.
    first: BTreeMap<Dimension, Bucket>,
    census: BTreeMap<Dimension, Census>,
    /// What this sweep did to the leases that it had scanned.
    returned: BTreeMap<Dimension, Returned>,
    /// Concurrency buckets that the scan found.
    found: BTreeSet<Dimension>,
    loads: Loads,
    /// Whether the buckets that the directory names were read before the scan.
    is_begun: bool,
}

impl Recount {
    /// Reads the buckets that the directory names, before the scan; none while the table is throttled.
    pub(super) async fn begin(store: &Store) -> Result<Self, StoreError> {
        // Nothing is judged by a clock that may be wrong: a live lease would seem to have ended.
        let begun = store.time().await?;
        let (is_begun, (directory, first, loads)) = match read_directory(store).await {
            Err(StoreError::Contended { .. }) => (false, Default::default()),
            other => (true, other?),
        };
        let (census, returned, found) = Default::default();
        let read_at = ReadAt { begun, done: store.time().await? };
        Ok(Self { read_at, directory, first, census, returned, found, loads, is_begun })
    }

    pub(super) const fn read_at(&self) -> ReadAt {
        self.read_at
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = &Dimension> {
        self.first.keys()
    }

    pub(super) fn readings(&self) -> impl Iterator<Item = (&Dimension, &Bucket)> {
        self.first.iter()
    }

    /// The buckets whose shares are being changed.
    pub(super) fn changing(&self) -> Vec<Dimension> {
        let is_changing = |(_, bucket): &(&Dimension, &Bucket)| bucket.changes_to().is_some();
        self.first.iter().filter(is_changing).map(|(dimension, _)| dimension.clone()).collect()
    }

    /// Adds what a page of the scan contained.
    pub(super) fn count(&mut self, census: BTreeMap<Dimension, Census>, buckets: Vec<Dimension>) {
        for (dimension, seen) in census {
            self.census.entry(dimension).or_default().add(seen);
        }
        self.found.extend(buckets);
    }

    pub(super) fn gave_back(&mut self, dimension: &Dimension, returned: Returned) {
        self.returned.entry(dimension.clone()).or_default().add(returned);
    }

    /// Reads the buckets again, judges and measures. Called after a scan that saw every lease, and after
    /// everything was given back.
    pub(super) async fn end(
        self,
        store: &Store,
        options: &SweepOptions,
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
        match self.judge_and_measure(store, options, report).await {
            Ok(()) => report.is_measured = self.is_begun,
            Err(StoreError::Contended { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn judge_and_measure(
        &self,
        store: &Store,
        options: &SweepOptions,
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
        let (last, _) = read_buckets(store, self.first.keys().map(ToString::to_string).collect()).await?;
        let now = store.time().await?;
        self.judge(store, &last, now, report).await?;
        let census = |dimension: &Dimension| self.census.get(dimension).copied().unwrap_or_default();
        self.loads
            .measure(
                store,
                options,
                last.values().map(|bucket| (bucket, census(bucket.dimension()))),
                now,
                report,
            )
            .await
    }

    async fn judge(
        &self,
        store: &Store,
        last: &BTreeMap<Dimension, Bucket>,
        now: Timestamp,
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
        for (dimension, first) in &self.first {
            let Some(last) = last.get(dimension) else { continue };
            let census = self.census.get(dimension).copied().unwrap_or_default();
            let returned = self.returned.get(dimension).copied().unwrap_or_default();
            let drift = Drift::between(first, last, &census, returned);
            report.recounted += usize::from(drift != Drift::Unknown);
            if let Some(slots) = drift.signed() {
                report.drift.insert(dimension.clone(), slots);
                tracing::warn!(event = "reconciler.drift", %dimension, %slots);
            }
            match write(store, dimension, Correction::plan(first, last, drift, now), report).await {
                // A hot bucket must not keep the other buckets from being corrected.
                Err(StoreError::Contended { message, .. }) => {
                    tracing::warn!(event = "reconciler.drift_left", %dimension, message);
                }
                written => written?,
            }
        }
        if let Some(left_out) = self.directory.left_out(&self.found) {
            tracing::warn!(event = "reconciler.unlisted", buckets = left_out);
        }
        if let Some(update) = self.directory.update(&self.found) {
            store.update(&update, Resend::Always).await?;
        }
        Ok(())
    }
}

/// Writes the correction. Each write removes what its condition requires, so that a second application fails.
async fn write(
    store: &Store,
    dimension: &Dimension,
    correction: Correction,
    report: &mut SweepReport,
) -> Result<(), StoreError> {
    match correction {
        Correction::Correct { update, slots } => {
            if let Written::Applied(_) = store.update(&update, Resend::Always).await? {
                report.corrected.insert(dimension.clone(), slots);
                tracing::warn!(event = "reconciler.corrected", %dimension, %slots);
            }
        }
        Correction::Note(update) => {
            store.update(&update, Resend::Always).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn read_directory(
    store: &Store,
) -> Result<(Directory, BTreeMap<Dimension, Bucket>, Loads), StoreError> {
    let Some(row) = store.read(DIRECTORY_KEY).await? else { return Ok(Default::default()) };
    let directory = Directory::read(&Attributes(&row));
    let names = directory.names().flat_map(|name| [name.to_string(), Load::key(name)]);
    let (first, others) = read_buckets(store, names.collect()).await?;
    let loads = Loads::read(first.keys(), &others);
    Ok((directory, first, loads))
}

/// Reads rows, and returns the readable concurrency buckets and the load rows.
pub(super) async fn read_buckets(
    store: &Store,
    keys: Vec<String>,
) -> Result<(BTreeMap<Dimension, Bucket>, Vec<Item>), StoreError> {
    let (mut buckets, mut others) = (BTreeMap::new(), Vec::new());
    for row in store.read_all(&keys).await? {
        let key = value_text(&row, KEY);
        if key.starts_with(LOAD_PREFIX) {
            others.push(row);
        } else if let Ok(dimension) = Dimension::new(&key)
            && let Ok(bucket) = Bucket::read(&dimension, &Attributes(&row))
            && bucket.limit().is_concurrent()
        {
            buckets.insert(dimension, bucket);
        }
    }
    Ok((buckets, others))
}
