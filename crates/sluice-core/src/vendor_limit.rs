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
