//! Who learns what operations do.

use std::fmt::Debug;

use sluice_core::{Bucket, Dimension, Load};

/// Learns what operations of this process do to buckets, so that the process corrects at once what it
/// remembers of them. Other processes learn it from the table.
pub trait Observer: Debug + Send + Sync {
    /// A sweep or a healing scan gave back this many leases of the bucket.
    fn restored(&self, dimension: &Dimension, leases: usize) {
        let _ = (dimension, leases);
    }

    /// A sweep measured the load of the bucket.
    fn measured(&self, dimension: &Dimension, load: &Load) {
        let _ = (dimension, load);
    }

    /// The bucket was found in the table, as expected.
    fn exists(&self, dimension: &Dimension) {
        let _ = dimension;
    }

    /// The row of the bucket was written: its limits, its anchor or its settings.
    fn changed(&self, dimension: &Dimension) {
        let _ = dimension;
    }

    /// A reply showed the bucket.
    fn read(&self, bucket: &Bucket) {
        let _ = bucket;
    }

    /// The bucket was removed.
    fn removed(&self, dimension: &Dimension) {
        let _ = dimension;
    }
}

/// An observer that does nothing.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
