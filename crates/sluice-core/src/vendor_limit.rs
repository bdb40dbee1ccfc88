//! The limits that a vendor reports, and what a bucket does about one that is lower than its own.

use core::time::Duration;

use crate::amount::Amount;
use crate::timestamp::Timestamp;

/// A limit that a vendor reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorLimit {
    /// Requests or tokens in each window; calls at once, for concurrency.
    pub limit: Amount,
    /// The window, in whole seconds; zero for concurrency.
    pub window: Duration,
    /// When the vendor reported it.
    pub at: Timestamp,
}

/// Whether a bucket adopts a lower limit that the vendor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLowerLimit {
    /// The lower limit is reported.
    Report,
    /// The lower limit is reported, and becomes the bucket's limit, down to a floor.
    Adopt {
        /// The least limit that is adopted: requests or tokens a minute; calls at once, for concurrency.
        at_least: Amount,
    },
}
