//! The read and write units of this process, as DynamoDB's replies state them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use sluice_table::metric::CAPACITY_UNITS;

use crate::failure::Failure;

/// Counts the units that the client reports as a metric. Everything else that it reports is dropped.
#[derive(Clone, Default)]
pub(crate) struct UnitCount {
    read: Arc<AtomicU64>,
    write: Arc<AtomicU64>,
}

impl UnitCount {
    /// Counts from now on.
    pub(crate) fn install() -> Result<Self, Failure> {
        let count = Self::default();
        metrics::set_global_recorder(count.clone()).map_err(|error| Failure::new(error.to_string()))?;
        Ok(count)
    }

    pub(crate) fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    pub(crate) fn write(&self) -> u64 {
        self.write.load(Relaxed)
    }
}

impl Recorder for UnitCount {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() != CAPACITY_UNITS.name() {
            return Counter::noop();
        }
        let is_read = key.labels().any(|label| (label.key(), label.value()) == ("kind", "read"));
        Counter::from_arc(Arc::clone(if is_read { &self.read } else { &self.write }))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
