//! After an outage: with a share policy, no process takes anything from the table until all have charged what
//! they granted by themselves ([`charge`](super::charge)), and calls of the outage have leases.
//!
//! The processes find the return within half a second and a round trip of each other: a probe begins every
//! 250 to 500 ms. Until the last of them has charged, the table shows tokens that the vendor has counted. It
//! also refills what the first of them has charged, at the whole rate, while the last still grants.

use std::time::Duration;

use sluice_core::{Amount, Dimension, Limit};
use sluice_table::Store;

use crate::api::refusal::{RetryIn, RetryReason};
use crate::config::on_unavailable::OnUnavailable;

/// How long after the return: half a second, and the round trips of a probe and of a charge. A larger value
/// holds the callers longer; after a smaller one, the first process may take before the last has charged.
const HOLD: Duration = Duration::from_millis(750);

/// The time for which a process charges its own refill in addition: half a second, and the round trip of a
/// probe. A larger value wastes that part of the limit once after an outage; after a smaller one, the vendor
/// may refuse calls.
const CHARGED_AHEAD: Duration = Duration::from_millis(600);

/// How long the hold still lasts, if DynamoDB has just come back and the policy is a share.
pub(crate) fn left(store: &Store, policy: OnUnavailable) -> Option<Duration> {
    if !policy.is_share() {
        return None;
    }
    // In this order: who sees that the outage is over also sees when it ended. A later outage ends the hold:
    // the process answers by itself again.
    if store.is_out() {
        return None;
    }
    HOLD.checked_sub(store.since_return()?).filter(|left| !left.is_zero())
}

/// Whether the hold lasts.
pub(crate) fn holds(store: &Store, policy: OnUnavailable) -> bool {
    left(store, policy).is_some()
}

/// The refusal of a caller that wants something of `dimension` during the hold. After a return of DynamoDB: by
/// an answer to a probe, or to whatever was sent.
pub(crate) fn refusal(store: &Store, policy: OnUnavailable, dimension: &Dimension) -> Option<RetryIn> {
    left(store, policy).map(|wait| RetryIn::new(wait, dimension.clone(), RetryReason::Exhausted))
}

/// What is charged in addition to what was granted, by a process whose part is `part`. Nothing if no outage
/// has just ended.
///
/// Let the first process charge at `t0`, and this one at `t`, up to half a second later. With the addition it
/// charges at least what it had spent at `t0` and has granted since: its part has refilled no more than the
/// addition. The last one charges at `t1`. Then the table lacks at least what the vendor counts: all that was
/// spent at `t0` and granted since, less what the whole limit refills from `t0` to `t1`, for both.
pub(super) fn addition(store: &Store, policy: OnUnavailable, part: &Limit) -> Amount {
    match left(store, policy) {
        Some(_) => part.refill_rate().accrued_floor(CHARGED_AHEAD),
        None => Amount::ZERO,
    }
}
