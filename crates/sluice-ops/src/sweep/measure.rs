//! Part 4: measures the load of each concurrency bucket, from the scan and the two readings around it.

use std::collections::BTreeMap;

use sluice_core::schema::KEY;
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, Census, Dimension, Load, Measured, PreviousLoad, Rate, Sample, Timestamp,
};
use tokio::task::JoinSet;

use super::report::{SweepOptions, SweepReport};
use sluice_table::{Attributes, Item, Resend, Store, StoreError, Written, value_text};

/// The load rows as they were before the scan.
#[derive(Debug, Default)]
pub(super) struct Loads(BTreeMap<Dimension, PreviousLoad>);

impl Loads {
    /// The load rows of `buckets` among `rows`.
    pub(super) fn read<'a>(buckets: impl Iterator<Item = &'a Dimension>, rows: &[Item]) -> Self {
        let rows: BTreeMap<String, &Item> = rows.iter().map(|row| (value_text(row, KEY), row)).collect();
        let before = |name: &Dimension| {
            let row = rows.get(&Load::key(name)).map(|row| Attributes(row));
            (name.clone(), PreviousLoad::read(name, row.as_ref()))
        };
        Self(buckets.map(before).collect())
    }

    /// Measures the buckets and writes the measurements, a few rows at once.
    pub(super) async fn measure<'a>(
        &self,
        store: &Store,
        options: &SweepOptions,
        buckets: impl Iterator<Item = (&'a Bucket, Census)>,
        now: Timestamp,
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
        let mut tasks = JoinSet::new();
        for (bucket, census) in buckets {
            let Some(before) = self.0.get(bucket.dimension()) else { continue };
            match before.measure(&sample(bucket, census, options, now)) {
                Some(measured) => {
                    tasks.spawn(write(store.clone(), measured));
                }
                None => {
                    report.loads.extend(before.load().map(|load| (load.dimension().clone(), load.clone())));
                }
            }
            if tasks.len() >= usize::from(options.concurrency.max(1)) {
                take(&mut tasks, report).await?;
            }
        }
        while !tasks.is_empty() {
            take(&mut tasks, report).await?;
        }
        Ok(())
    }
}

fn sample(bucket: &Bucket, census: Census, options: &SweepOptions, now: Timestamp) -> Sample {
    let (cutoff, capacity) = (now.before(CLOCK_ERROR), bucket.limit().capacity());
    let inline = bucket.inline().into_iter().flat_map(|leases| leases.iter());
    let living = inline.filter(|(_, lease)| lease.ends.get() >= cutoff);
    // A lease that claims more than the capacity counts as the capacity.
    let living = living.map(|(_, lease)| lease.cost.amount().min(capacity));
    Sample {
        pending: living.fold(census.live(), |sum, cost| sum.plus(cost)),
        taken: capacity.minus(bucket.tokens()),
        admitted: bucket.admitted().unwrap_or_default(),
        uncounted: bucket.uncounted(),
        at: now,
        floor: Rate::per(capacity, options.slowest_call).unwrap_or_default(),
    }
}

/// Writes a measurement, and returns the one that the row contains: this measurement, even if the reply was
/// lost, or that of a sweep that was faster. The faster sweep itself reports the expired holders.
async fn write(store: Store, measured: Measured) -> Result<Option<Measured>, StoreError> {
    match store.update(&measured.update, Resend::Always).await {
        Ok(Written::Applied(_)) => Ok(Some(measured)),
        Ok(Written::ConditionFailed(row)) => {
            let read = |row: &Item| Load::read(measured.load.dimension(), &Attributes(row)).ok();
            let load = row.as_ref().and_then(read);
            Ok(load.map(|load| match load.measured_at() == measured.load.measured_at() {
                true => measured,
                false => Measured { load, expired_holders: 0, refused: 0, update: measured.update },
            }))
        }
        Err(StoreError::Contended { message, .. }) => {
            tracing::warn!(event = "reconciler.load_left", dimension = %measured.load.dimension(), message);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn take(
    tasks: &mut JoinSet<Result<Option<Measured>, StoreError>>,
    report: &mut SweepReport,
) -> Result<(), StoreError> {
    let written = match tasks.join_next().await {
        Some(Ok(written)) => written?,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => None,
    };
    let Some(measured) = written else { return Ok(()) };
    let dimension = measured.load.dimension();
    let leaked = measured.load.leaked();
    if leaked > Amount::ZERO {
        tracing::warn!(event = "reconciler.leak", %dimension, slots = %leaked);
    }
    if measured.expired_holders > 0 {
        report.expired_holders.insert(dimension.clone(), measured.expired_holders.unsigned_abs());
    }
    if measured.refused > 0 {
        report.caller_refusals.insert(dimension.clone(), measured.refused.unsigned_abs());
    }
    report.loads.insert(dimension.clone(), measured.load);
    Ok(())
}
