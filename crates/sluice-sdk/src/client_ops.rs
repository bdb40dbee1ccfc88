//! Operations in a process that also acquires: they correct at once what the process remembers of a bucket.

use std::sync::Arc;

use sluice_core::{Bucket, Dimension, Load};
use sluice_ops::{Observer, Ops};

use crate::client::Client;
use crate::config::Leases;
use crate::lane::inner::Inner;
use crate::telemetry;

impl Client {
    /// What operators do with this client's table: declare limits, list, survey, sweep. This client knows the
    /// effects at once, other processes when they next read the table.
    #[must_use]
    pub fn ops(&self) -> Ops {
        ops(&self.inner)
    }
}

/// Operations whose effects this process sees at once.
pub(crate) fn ops(inner: &Arc<Inner>) -> Ops {
    let observer = Arc::new(Remembered(Arc::clone(inner)));
    Ops::new(inner.store.clone())
        .observed_by(observer)
        .with_inline_leases(inner.config.leases == Leases::Inline)
}

/// What the process remembers of buckets.
#[derive(Debug)]
struct Remembered(Arc<Inner>);

impl Observer for Remembered {
    fn restored(&self, dimension: &Dimension, leases: usize) {
        self.0.entries_of(dimension).iter().for_each(|entry| entry.slots_reclaimed());
        telemetry::restored(self.0.entry(dimension).swept_label(), leases);
    }

    fn measured(&self, dimension: &Dimension, load: &Load) {
        self.0.entry(dimension).publish_load(load);
    }

    fn exists(&self, dimension: &Dimension) {
        self.0.entries_of(dimension).iter().for_each(|entry| entry.is_made());
    }

    fn changed(&self, dimension: &Dimension) {
        for entry in self.0.entries_of(dimension) {
            entry.forget();
            entry.is_made();
        }
    }

    fn read(&self, bucket: &Bucket) {
        for entry in self.0.entries_of(bucket.dimension()) {
            entry.apply_read(Arc::new(bucket.clone().seen_from(entry.share.as_ref())), self.0.now());
        }
    }

    fn removed(&self, dimension: &Dimension) {
        self.0.entries_of(dimension).iter().for_each(|entry| entry.forget_removed());
    }
}
