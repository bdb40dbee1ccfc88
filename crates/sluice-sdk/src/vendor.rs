//! Reactions to what a vendor says: headers, refusals, estimates; and what undoes them.

pub(crate) mod cool_down;
pub(crate) mod estimate;
pub(crate) mod observe;
pub(crate) mod penalize;
pub(crate) mod rate_limited;
pub(crate) mod refill;
pub(crate) mod reply;
