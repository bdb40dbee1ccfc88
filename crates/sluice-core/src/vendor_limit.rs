//! What a vendor says that it allows.

use core::time::Duration;

use crate::amount::Amount;
use crate::timestamp::Timestamp;

/// A limit that a vendor reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorLimit {
    /// Requests or tokens in each window; calls at once, for concurrency.
    pub limit: Amount,
    /// The window, in whole seconds; nothing, for concurrency.
    pub window: Duration,
    /// When it was reported.
    pub at: Timestamp,
}
