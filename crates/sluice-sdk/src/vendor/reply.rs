//! One report of a vendor's reply: what it used, what its headers say, whether it is a refusal.

use sluice_core::{COMMON, Cost, Dimension, ShareName};
use sluice_vendors::Headers;

use crate::api::quantity::Quantity;
use crate::api::request::Request;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part};
use crate::vendor::observe::{Mark, Observed, observe};
use crate::vendor::rate_limited::{
    Decision, PastCoolDowns, Reply, judged_alone, on_rate_limited, refusal_of,
};

/// What a call used, by dimension: from a pair, an array or list of pairs, an `Option` of a pair, or `()` for
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Usage(pub(crate) Vec<(String, Quantity)>);

/// What a reported reply meant, and what it changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replied {
    /// What to do with the call, if the vendor refused it; [`Decision::NotRefused`] for any other reply.
    pub decision: Decision,
    /// What the headers said about each dimension; empty after a refusal. A dimension is missing if its
    /// bucket could not be read or written.
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

impl<D: Into<String>, Q: Into<Quantity>> From<Vec<(D, Q)>> for Usage {
    fn from(used: Vec<(D, Q)>) -> Self {
        Self(used.into_iter().map(|(dimension, used)| (dimension.into(), used.into())).collect())
    }
}

impl<D: Into<String>, Q: Into<Quantity>> From<Option<(D, Q)>> for Usage {
    fn from(used: Option<(D, Q)>) -> Self {
        used.map(Self::from).unwrap_or_default()
    }
}

/// A bucket that a reported call held something of.
pub(crate) struct HeldPart {
    pub(crate) dimension: Dimension,
    /// The position of the call, for tokens that the table gave.
    pub(crate) mark: Option<Mark>,
    /// What the call takes, if that is known.
    pub(crate) cost: Option<Cost>,
    /// The share that pays for the call; `None` is the common line.
    share: Option<ShareName>,
    /// Whether shadow mode made the call in a cool-down of the bucket.
    pub(crate) in_cool_down: bool,
}

impl HeldPart {
    pub(crate) fn of(part: &Part) -> Self {
        let cost = matches!(part.hold, Hold::Tokens { .. } | Hold::LetThrough { .. }).then_some(part.cost);
        let in_cool_down = matches!(part.hold, Hold::LetThrough { in_cool_down: true });
        let share = part.payer().share.clone();
        Self { dimension: part.entry.asked().clone(), mark: Mark::of(part), cost, share, in_cool_down }
    }

    /// Tokens that a slot holds.
    pub(crate) fn of_tokens(mark: &Mark) -> Self {
        let (dimension, share) = (mark.dimension.clone(), mark.share().cloned());
        Self { dimension, mark: Some(mark.clone()), cost: Some(mark.cost()), share, in_cool_down: false }
    }

    pub(crate) const fn of_slots(dimension: Dimension) -> Self {
        Self { dimension, mark: None, cost: None, share: None, in_cool_down: false }
    }
}

/// Applies a reply to a call that held `held` by the table. The reply to a call that was granted while
/// DynamoDB was out is judged without the table; then `vendor` is a dimension that the call asked for, if one
/// is known.
///
/// A failure of the limiter is logged: it must not fail a call that was made.
pub(crate) async fn reply<H: Headers>(
    inner: &Inner,
    held: Vec<HeldPart>,
    vendor: Option<&Dimension>,
    reply: &Reply<'_, H>,
) -> Replied {
    let Some(first) = held.first() else {
        let vendors = &inner.config.vendors;
        let vendor = vendor.map_or(vendors.other(), |dimension| vendors.of(dimension));
        return Replied { decision: judged_alone(inner, vendor, reply), observed: Vec::new() };
    };
    let vendor = inner.config.vendors.of(&first.dimension);
    if refusal_of(vendor, reply, inner.now()).is_some() {
        let request = Request::from(held.iter().map(|part| part.dimension.as_str()).collect::<Vec<_>>());
        let with_cost = |request: Request<'static>, part: &HeldPart| match part.cost {
            Some(cost) => request.cost(part.dimension.as_str().to_owned(), cost),
            None => request,
        };
        let share = held.iter().find_map(|part| part.share.as_ref()).map_or(COMMON, ShareName::as_str);
        let request = held.iter().fold(request, with_cost).share(share.to_owned());
        let past =
            held.iter().filter(|part| part.in_cool_down).map(|part| &part.dimension).collect::<Vec<_>>();
        // If the table does not answer, the call still learns what to do. The failure is logged.
        let decision = on_rate_limited(inner, &request, reply, PastCoolDowns::Of(&past)).await;
        let decision = decision.unwrap_or_else(|_| judged_alone(inner, vendor, reply));
        return Replied { decision, observed: Vec::new() };
    }
    let mut observed = Vec::with_capacity(held.len());
    for HeldPart { dimension, mark, .. } in held {
        match observe(inner, dimension.as_str(), reply.headers, mark).await {
            Ok(seen) => observed.push((dimension, seen)),
            Err(error) => tracing::warn!(event = "reply.not_applied", %dimension, %error),
        }
    }
    Replied { decision: Decision::NotRefused, observed }
}
