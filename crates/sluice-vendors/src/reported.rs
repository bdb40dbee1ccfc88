//! What a reply said of one quota.

use std::time::Duration;

use sluice_core::Amount;

/// What a reply said of one quota. `None` is "not said", never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Most that the vendor allows: in a window, or at the same time.
    pub limit: Option<Amount>,
    /// What is left of it now.
    pub remaining: Option<Amount>,
    /// Calls at the same time, this one among them.
    pub in_use: Option<Amount>,
    /// How long until the quota is whole again. Zero where that has passed.
    pub reset: Option<Duration>,
    /// The time that `limit` and `remaining` are counted over, where the vendor documents it or the figures say it. Without it
    /// a day's limit could be taken for a minute's: compare with a bucket's limit only where it is known.
    pub window: Option<Duration>,
}

impl Reported {
    /// Whether the reply said nothing of the quota.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
