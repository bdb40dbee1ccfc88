//! Settling a grant: what its call really used.

use std::sync::Arc;

use sluice_core::{Amount, Dimension, LimitType};
use sluice_ops::Released;
use sluice_vendors::{Counted, Kept};

use crate::api::basis::Basis;
use crate::api::quantity::Quantity;
use crate::grant::Grant;
use crate::lane::entry::Entry;
use crate::lane::part::{Hold, Part};
use crate::lane::release::ReleaseError;
use crate::lane::settle::{SettleError, Settled, parse, settle_part};
use crate::lane::shadow;

impl Grant {
    /// Reports what the call used of `dimension`; call this as soon as it is known. What was not used goes
    /// back. What was used in addition is taken now, if need be as a debt, which refill pays before the next
    /// grant. A debt ends at minus the capacity ([`Settled::Capped`]), unless
    /// [`ClientBuilder::cap_debt`](crate::ClientBuilder::cap_debt) is off. If the vendor counts tokens when a
    /// call arrives ([`Counted::OnArrival`], as OpenAI and Azure do), nothing goes back: the vendor does not
    /// return it either.
    ///
    /// Costs one write, shared with calls that are settled meanwhile; none if the call used what it counts
    /// as. A later call (as while a stream runs) counts from the value settled before. The write is never
    /// sent twice: if its reply is lost, what it gives back may be lost, and refills. Tokens that have
    /// refilled, or that have no room below the capacity, do not go back: the longer a call ran, the less
    /// goes back.
    ///
    /// Takes at most two requests (4.2 s each) while DynamoDB does not answer, and six while others conflict.
    ///
    /// # Errors
    /// [`SettleError`]: a dimension that the grant does not hold, a concurrency limit, a number below zero,
    /// or a table that does not answer.
    pub async fn settle(
        &mut self,
        dimension: &str,
        used: impl Into<Quantity>,
    ) -> Result<Settled, SettleError> {
        let used = parse(dimension, &used.into())?;
        let (inner, basis) = (Arc::clone(self.inner()), self.basis());
        let Some(part) = self.part_mut(dimension) else {
            return match basis {
                Basis::Table => Err(SettleError::NotHeld(dimension.to_owned())),
                // What was granted without the table may hold nothing.
                _ => Ok(Settled::AsTaken),
            };
        };
        part.entry.unsettled.heard();
        // What a refusal of an earlier call under the same grant would have charged.
        part.used = None;
        let used = as_vendor_counts(part, used);
        match settle_part(&inner, part, used).await {
            Err(error) if error.is_of_table() => {
                shadow::or_in_shadow(&inner, Err(error), || Settled::AsTaken)
            }
            settled => settled,
        }
    }

    /// Ends a failed call: what its vendor does not count goes back, and so does what the grant held. Most
    /// vendors count the request and none of the tokens: [`Profile`](sluice_vendors::Profile) states what
    /// each does, with its source. What was settled stays. Takes at most as long as a settle and a release.
    ///
    /// # Errors
    /// As for [`Grant::release`]. A settle that fails is logged.
    pub async fn failed(mut self) -> Result<Released, ReleaseError> {
        self.charge_failure();
        self.release().await
    }

    /// Sets what is settled when the grant is released.
    pub(crate) fn charge(&mut self, dimension: &str, used: Amount) {
        if let Some(part) = self.part_mut(dimension).filter(|part| !part.is_let_through()) {
            part.entry.unsettled.heard();
            part.used = Some(as_vendor_counts(part, used));
        }
    }

    /// Charges a failed call with what its vendor counts of it.
    pub(crate) fn charge_failure(&mut self) {
        for part in self.parts_mut() {
            let Hold::Tokens { is_settled, .. } = &mut part.hold else { continue };
            if *is_settled || part.used.is_some() {
                continue;
            }
            match kept_by_failure(&part.entry) {
                Kept::Nothing => part.used = Some(Amount::ZERO),
                // The vendor counts the call as made.
                Kept::All => *is_settled = true,
            }
        }
    }
}

/// What the vendor counts for a call that used `used`: at least what was reserved, if it counts when the call
/// arrives, since what the call does not use does not come back there.
fn as_vendor_counts(part: &Part, used: Amount) -> Amount {
    let is_of_tokens = part.entry.limit().is_some_and(|limit| limit.limit_type() == LimitType::Tokens);
    let counted = part
        .entry
        .vendor
        .tokens_of(model_of(&part.entry.dimension))
        .map_or(Counted::Used, |count| count.counted);
    if is_of_tokens && counted == Counted::OnArrival { used.max(part.cost.amount()) } else { used }
}

/// The model in a bucket's name: the part between the vendor and the metric.
fn model_of(dimension: &Dimension) -> &str {
    let after_vendor = dimension.as_str().split_once('#').map_or("", |(_, rest)| rest);
    after_vendor.rsplit_once('#').map_or("", |(model, _)| model)
}

/// What a failed call keeps of a bucket.
fn kept_by_failure(entry: &Entry) -> Kept {
    let limit_type = entry.limit().map_or(LimitType::Requests, |limit| limit.limit_type());
    entry.vendor.kept_by_failure(limit_type)
}
