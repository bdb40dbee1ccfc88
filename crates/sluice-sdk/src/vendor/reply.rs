//! One report of a vendor's reply: what it used, what its headers say, whether it is a refusal.

use sluice_core::Dimension;
use sluice_vendors::{Headers, Vendor, classify};

use crate::api::error::AcquireError;
use crate::api::request::{Quantity, Request};
use crate::grant::Grant;
use crate::lane::inner::Inner;
use crate::lane::settle::SettleError;
use crate::vendor::observe::{Mark, Observed, observe};
use crate::vendor::rate_limited::{Decision, Reply, on_rate_limited};

/// What a call used, by dimension: from a pair, an array of pairs, an `Option` of a pair, or `()` for nothing.
#[derive(Clone, Debug, Default)]
pub struct Usage(pub(crate) Vec<(String, Quantity)>);

/// What a reported reply meant, and what it changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replied {
    /// What to do with the call, if the vendor refused it; [`Decision::NotRefused`] for any other reply.
    pub decision: Decision,
    /// What the headers said about each dimension; empty after a refusal.
    pub observed: Vec<(Dimension, Observed)>,
}

impl From<()> for Usage {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl<D: Into<String>, Q: Into<Quantity>> From<(D, Q)> for Usage {
    fn from((dimension, used): (D, Q)) -> Self {
        Self(vec![(dimension.into(), used.into())])
    }
}

impl<D: Into<String>, Q: Into<Quantity>, const N: usize> From<[(D, Q); N]> for Usage {
    fn from(used: [(D, Q); N]) -> Self {
        Self(used.into_iter().map(|(dimension, used)| (dimension.into(), used.into())).collect())
    }
}

impl<D: Into<String>, Q: Into<Quantity>> From<Option<(D, Q)>> for Usage {
    fn from(used: Option<(D, Q)>) -> Self {
        used.map(Self::from).unwrap_or_default()
    }
}

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
    ) -> Result<Replied, SettleError> {
        for (dimension, used) in usage.into().0 {
            self.settle(&dimension, used).await?;
        }
        let held = self.parts().iter().map(|part| (part.entry.dimension.clone(), Mark::of(part))).collect();
        let replied = self::reply(self.inner(), held, &reply.into()).await?;
        if replied.decision != Decision::NotRefused {
            self.charge_failure();
        }
        Ok(replied)
    }
}

/// Applies a reply to a call that held `held`.
pub(crate) async fn reply<H: Headers>(
    inner: &Inner,
    held: Vec<(Dimension, Option<Mark>)>,
    reply: &Reply<'_, H>,
) -> Result<Replied, AcquireError> {
    let Some((first, _)) = held.first() else {
        // A grant made while DynamoDB is out may hold nothing.
        return Ok(Replied { decision: Decision::NotRefused, observed: Vec::new() });
    };
    let is_refused = classify(Vendor::of(first), reply.status, reply.headers, reply.body, inner.now()).is_some();
    if is_refused {
        let names: Vec<&str> = held.iter().map(|(dimension, _)| dimension.as_str()).collect();
        let decision = on_rate_limited(inner, &Request::from(names), reply).await?;
        return Ok(Replied { decision, observed: Vec::new() });
    }
    let mut observed = Vec::with_capacity(held.len());
    for (dimension, mark) in held {
        let seen = observe(inner, dimension.as_str(), reply.headers, mark).await?;
        observed.push((dimension, seen));
    }
    Ok(Replied { decision: Decision::NotRefused, observed })
}
