//! A bucket as it is at this moment.

use sluice_sdk::core::{Bucket, Timestamp};
use sluice_sdk::ops::Ops;

use crate::words::tokens;

/// A bucket with what depends on the time.
#[derive(Clone, Debug)]
pub struct BucketNow {
    /// The bucket.
    pub bucket: Bucket,
    /// Its level, in tokens or slots.
    pub level: f64,
    /// When the cool-down ends that is in force.
    pub cooling_down_until: Option<Timestamp>,
}

impl BucketNow {
    /// The bucket at DynamoDB's time, as far as `ops` knows it.
    #[must_use]
    pub fn new(bucket: Bucket, ops: &Ops) -> Self {
        let level = tokens(bucket.level(ops.now()));
        let cooling_down_until = bucket.blocked_until().filter(|until| *until > ops.now());
        Self { bucket, level, cooling_down_until }
    }
}
