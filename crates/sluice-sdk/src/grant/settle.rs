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
    /// Says what the call really used of `dimension`, as soon as it is known: what it took too much goes back, what it took too
    /// little is taken now, into debt if need be, which refill pays before the next call is granted.
    ///
    /// One write, shared with the other calls that are settled meanwhile; none where the call used what it counts as. May be said
    /// again (as while a stream runs), and counts from what was said before. The write is never sent twice: where its reply is lost,
    /// what it gives back may be lost, and refills. So is what has flowed back by itself, or would lift the level above the
    /// capacity: the longer a call ran, the less of what it took too much is there to be given back.
    ///
    /// Takes at most twice the time of a request (4.2 s) while DynamoDB does not answer, and six times while others conflict.
    ///
    /// # Errors
    /// [`SettleError`]: a dimension that the grant does not hold, or of concurrency; a number below zero; a table that does not
    /// answer.
    pub async fn settle(&mut self, dimension: &str, used: impl Into<Quantity>) -> Result<Settled, SettleError> {
        let used = parse(dimension, &used.into())?;
        let inner = Arc::clone(self.inner());
        let part = self.part_mut(dimension).ok_or_else(|| SettleError::NotHeld(dimension.to_owned()))?;
        settle_part(&inner, part, used).await
    }

    /// Ends a call that failed: what its vendor does not count of it goes back, and so does what it held.
    ///
    /// Most vendors count the request of a failed call and none of its tokens; [`Vendor::profile`] says what each is known to do,
    /// and on what word. What was settled already stays as it is.
    ///
    /// Takes at most as long as a settlement and a release.
    ///
    /// # Errors
    /// As of [`Grant::release`]. What could not be settled is logged.
    pub async fn failed(mut self) -> Result<Released, ReleaseError> {
        self.charge_failure();
        self.release().await
    }

    /// What is settled when the grant is released.
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
