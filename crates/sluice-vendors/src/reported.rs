//! What a reply said about one quota.

use std::time::Duration;

use sluice_core::Amount;

/// What a reply said about one quota. `None` means "not said", never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The most that the vendor allows: in a window, or at the same time.
    pub limit: Option<Amount>,
    /// What is left of the limit now.
    pub remaining: Option<Amount>,
    /// Calls at the same time, including this one.
    pub in_use: Option<Amount>,
    /// The time until the quota is whole again. Zero if that has passed.
    pub reset: Option<Duration>,
    /// The window of `limit` and `remaining`, if the vendor documents it or it follows from the figures.
    /// Without it, a limit per day could be mistaken for a limit per minute: compare with a bucket's limit
    /// only if the window is known.
    pub window: Option<Duration>,
    /// The unit to which the vendor rounds `remaining`, up or down; zero if it does not.
    pub rounded_to: Amount,
}

impl Reported {
    /// Whether the reply said nothing about the quota.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limit.is_none() && self.remaining.is_none() && self.in_use.is_none() && self.reset.is_none()
    }
}
