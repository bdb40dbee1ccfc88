//! A grant's holder reports the vendor's reply.

use sluice_vendors::Headers;

use crate::call::error::LimitError;
use crate::grant::Grant;
use crate::lane::part::{Hold, Part};
use crate::vendor::observe::Mark;
use crate::vendor::rate_limited::{Decision, Reply};
use crate::vendor::reply;
use crate::vendor::reply::{HeldPart, Replied, Usage};

impl Grant {
    /// Reports the vendor's reply, in one call: settles what the call used, and applies the headers to every
    /// dimension of the grant; or, if the vendor refused the call, lets the fleet react as
    /// [`Client::on_rate_limited`](crate::Client::on_rate_limited) does, and charges the call what its vendor
    /// counts of a refused call when the grant is released.
    ///
    /// `reply` is an [`http::response::Parts`] or a [`Reply`]; for `usage` see [`Usage`]. Costs at most one write
    /// for each dimension whose use differs from what was taken, and one more where the vendor has less left
    /// than the bucket.
    ///
    /// # Errors
    /// As for [`settle`](Self::settle) and [`Client::observe`](crate::Client::observe). An error is a failure of
    /// the limiter; do not let it fail a call that was made.
    pub async fn reply<'a, H: Headers + 'a>(
        &mut self,
        reply: impl Into<Reply<'a, H>>,
        usage: impl Into<Usage>,
    ) -> Result<Replied, LimitError> {
        let is_of_table = |part: &&Part| !matches!(part.hold, Hold::Local);
        let held = |part: &Part| HeldPart { dimension: part.entry.dimension.clone(), mark: Mark::of(part) };
        let held = self.parts().iter().filter(is_of_table).map(held).collect();
        let vendor = self.dimensions().next().cloned();
        // An error of one does not keep the others from being done.
        let replied = reply::reply(self.inner(), held, vendor.as_ref(), &reply.into()).await;
        let mut settled = Ok(());
        for (dimension, used) in usage.into().0 {
            settled = settled.and(self.settle(&dimension, used).await.map(drop));
        }
        // After the settlements: what the vendor says it counted stays charged.
        if replied.as_ref().is_ok_and(|replied| replied.decision != Decision::NotRefused) {
            self.charge_failure();
        }
        settled?;
        Ok(replied?)
    }
}
