//! Settling a grant: what its call really used.

use std::sync::Arc;

use sluice_core::{Amount, LimitType};
use sluice_ops::Released;
use sluice_vendors::{Kept, Vendor};

use crate::api::request::Quantity;
use crate::grant::Grant;
use crate::lane::entry::Entry;
use crate::lane::part::Hold;
use crate::lane::release::ReleaseError;
use crate::lane::settle::{SettleError, Settled, parse, settle_part};

impl Grant {
    /// Reports what the call really used of `dimension`; call this as soon as it is known. If the call used
    /// less than it took, the difference goes back. If it used more, the difference is taken now, if need be
    /// as a debt, which refill pays before the next call is granted.
    ///
    /// Costs one write, shared with the other calls that are settled meanwhile; none if the call used what it
    /// counts as. It may be called again (as while a stream runs), and then counts from the value settled
    /// before. The write is never sent twice: if its reply is lost, what it gives back may be lost, and
    /// refills. Tokens that have flowed back by themselves, or that would lift the level above the capacity,
    /// are not given back either: the longer a call ran, the less of its surplus is there to be given back.
    ///
    /// Takes at most the time of two requests (4.2 s each) while DynamoDB does not answer, and of six while
    /// other writers conflict.
    ///
    /// # Errors
    /// [`SettleError`]: a dimension that the grant does not hold, a concurrency limit, a number below zero,
    /// or a table that does not answer.
    pub async fn settle(&mut self, dimension: &str, used: impl Into<Quantity>) -> Result<Settled, SettleError> {
        let used = parse(dimension, &used.into())?;
        let inner = Arc::clone(self.inner());
        let part = self.part_mut(dimension).ok_or_else(|| SettleError::NotHeld(dimension.to_owned()))?;
        settle_part(&inner, part, used).await
    }

    /// Ends a call that failed: what the vendor does not count of the call goes back, and so does what the
    /// grant held.
    ///
    /// Most vendors count the request of a failed call and none of its tokens; [`Vendor::profile`] states
    /// what each vendor is known to do, and the source. What was settled already stays as it is.
    ///
    /// Takes at most as long as a settle and a release.
    ///
    /// # Errors
    /// As for [`Grant::release`]. A settle that fails is logged.
    pub async fn failed(mut self) -> Result<Released, ReleaseError> {
        self.charge_failure();
        self.release().await
    }

    /// Sets what is settled when the grant is released.
    pub(crate) fn charge(&mut self, dimension: &str, used: Amount) {
        if let Some(part) = self.part_mut(dimension) {
            part.used = Some(used);
        }
    }

    /// Charges a failed call with what its vendor counts of it.
    pub(crate) fn charge_failure(&mut self) {
        for part in self.parts_mut() {
            let is_open = matches!(part.hold, Hold::Tokens { is_settled: false, .. });
            if is_open && part.used.is_none() && kept_by_failure(&part.entry) == Kept::Nothing {
                part.used = Some(Amount::ZERO);
            }
        }
    }
}

/// What a failed call keeps of a bucket.
fn kept_by_failure(entry: &Entry) -> Kept {
    let limit_type = entry.limit().map_or(LimitType::Requests, |limit| limit.limit_type());
    Vendor::of(&entry.dimension).profile().kept_by_failure(limit_type)
}
