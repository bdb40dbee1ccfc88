//! The row of the last sweeps, for people who look at it.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::schema::SWEEPS_KEY;
use sluice_core::{Amount, Dimension, SweepLog, SweepRecord};

use super::GRACE;
use super::report::SweepReport;
use sluice_table::{Attributes, Resend, Store, StoreError, Written};

/// How long adding the line may take if the sweep has the time: a read and a write, from however far away.
/// The caller of the sweep waits for it.
fn at_most(store: &Store) -> Duration {
    store.attempt().of_rows().saturating_mul(2)
}

/// Adds a line for a sweep with this much time `left`. Nothing depends on it: a failure is only logged.
pub(super) async fn add(store: &Store, report: &SweepReport, left: Option<Duration>) {
    let record = |at| SweepRecord {
        at,
        duration: report.duration,
        rows: count(report.rows_scanned),
        restored: count(report.restored),
        slots: count(report.restored_slots),
        drift: total(&report.drift),
        corrected: total(&report.corrected),
        requests: store.requests(),
    };
    // A sweep that took all of its time still gets a moment to record what it did.
    let longest = at_most(store);
    let at_most = left.map_or(longest, |left| left.clamp(GRACE.min(longest), longest));
    // Other processes compare the instant with their own clock: it is DynamoDB's, or the line is left out.
    let written = async { write(store, record(store.time().await?)).await };
    let failed = match tokio::time::timeout(at_most, written).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => String::from("no answer in time"),
    };
    tracing::warn!(event = "reconciler.sweep_log_left", error = failed);
}

/// Adds the line. The condition requires the text as read: no sweep removes another sweep's line.
async fn write(store: &Store, record: SweepRecord) -> Result<(), StoreError> {
    let mut tries = store.tries();
    while tries.another() {
        let row = store.read(SWEEPS_KEY).await?;
        let log = row.map(|row| SweepLog::read(&Attributes(&row))).unwrap_or_default();
        // The line is already there: a try whose reply was lost has written it.
        if log.records().any(|known| known.at == record.at && known.requests == record.requests) {
            return Ok(());
        }
        if let Written::Applied(_) = store.update(&log.add(record), Resend::Always).await? {
            return Ok(());
        }
    }
    Ok(())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The sum of lost and minted slots alike.
fn total(slots: &BTreeMap<Dimension, Amount>) -> Amount {
    slots.values().fold(Amount::ZERO, |sum, slots| sum.plus(slots.abs()))
}
