//! A grant's holder reports the vendor's reply.

use sluice_vendors::Headers;

use crate::call::error::LimitError;
use crate::grant::Grant;
use crate::lane::settle::SettleError;
use crate::vendor::rate_limited::{Decision, Reply};
use crate::vendor::reply;
use crate::vendor::reply::{HeldPart, Replied, Usage};

impl Grant {
    /// Reports the vendor's reply, in one call: settles what the call used, and applies the headers to every
    /// dimension of the grant; or, if the vendor refused the call, lets the fleet react as
    /// [`Client::on_rate_limited`](crate::Client::on_rate_limited) does, and charges the call what its vendor
    /// counts of a refused call when the grant is released.
    ///
    /// `reply` is an [`http::Response`] with its body, a [`Reply`], or an [`http::response::Parts`]: without
    /// a body, some refusals are read as an ordinary rate limit. For `usage` see [`Usage`]. Costs at most one
    /// write for each dimension whose use differs from what was taken, and one more where the vendor has less
    /// left than the bucket.
    ///
    /// # Errors
    /// [`SettleError`] for mistakes of the program. If a bucket cannot be read or written, that is logged
    /// (`reply.not_applied`, `settle.failed`) and no error: it must not fail a call that was made.
    pub async fn reply<'a, H: Headers + 'a>(
        &mut self,
        reply: impl Into<Reply<'a, H>>,
        usage: impl Into<Usage>,
    ) -> Result<Replied, LimitError> {
        let held = self.parts().iter().filter(|part| part.is_of_table()).map(HeldPart::of).collect();
        let vendor = self.parts().first().map(|part| part.entry.asked().clone());
        let replied = reply::reply(self.inner(), held, vendor.as_ref(), &reply.into()).await;
        // An error of one does not keep the others from being settled.
        let mut settled = Ok(());
        for (dimension, used) in usage.into().0 {
            match self.settle(&dimension, used).await {
                Ok(_) => {}
                Err(SettleError::Acquire(error)) => {
                    tracing::warn!(event = "settle.failed", dimension, %error)
                }
                Err(error) => settled = settled.and(Err(error)),
            }
        }
        // After the settlements: what the vendor says it counted stays charged.
        if replied.decision != Decision::NotRefused {
            self.charge_failure();
        }
        settled?;
        Ok(replied)
    }
}
