//! What a caller asks for: dimensions, and the cost of each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use sluice_core::{
    COMMON, Cost, CostError, Dimension, DimensionError, Limit, ShareName, ShareNameError, Ticket,
};

use crate::api::quantity::Quantity;

/// Dimensions to acquire together, each with its cost if that is not the bucket's `cost_per_call`.
///
/// ```
/// use sluice_sdk::Request;
///
/// let one: Request<'_> = "openai#rpm".into();
/// let both = Request::from(["openai#rpm", "openai#tpm"]).cost("openai#tpm", 1_200);
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    names: DimensionNames<'a>,
    costs: Vec<(Cow<'a, str>, Quantity)>,
    share: Option<Cow<'a, str>>,
    pub(crate) ticket_within: Option<Duration>,
    pub(crate) ticket: Option<Box<Ticket>>,
}

/// Most requests name one dimension, and need no list.
#[derive(Clone, Debug)]
enum DimensionNames<'a> {
    One(Cow<'a, str>),
    Many(Vec<Cow<'a, str>>),
}

/// Why a request is invalid, whatever the table contains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No dimension is named.
    #[error("no dimension is named: name at least one, as in openai#rpm")]
    Empty,
    /// The name cannot be the name of a bucket.
    #[error(transparent)]
    Dimension(#[from] DimensionError),
    /// The share cannot be one of a bucket.
    #[error(transparent)]
    Share(#[from] ShareNameError),
    /// The cost is zero, negative, or not a number.
    #[error("cost {cost} for {dimension} cannot be used: {source}")]
    Cost {
        /// The dimension.
        dimension: String,
        /// The cost as given.
        cost: String,
        /// What is wrong with it.
        source: CostError,
    },
    /// A cost for a dimension that is not acquired: most likely a misspelled name.
    #[error("a cost is given for {0:?}, which is not one of the dimensions to acquire")]
    CostWithoutDimension(String),
    /// The bucket counts tokens, and neither the call nor the bucket states a cost.
    #[error(
        "{0} counts tokens, and the call names no cost: name its cost in the call, or declare the bucket's cost_per_call"
    )]
    NoCost(Dimension),
    /// A dimension is named twice: most likely a mistake.
    #[error("{0} is named twice: name it once, with the whole cost")]
    Duplicate(Dimension),
    /// The call waits for a slot inside of another slot of the same bucket. If all holders did so, none would
    /// ever get one.
    #[error(
        "a slot of {0} waits inside of another slot of {0}: both would wait for each other once the bucket is full; let the outer slot cover the inner call, or end the outer slot first"
    )]
    Nested(Dimension),
    /// The ticket holds tokens of a dimension that the request does not name: most likely another call's
    /// ticket.
    #[error(
        "the ticket holds {0}, which is not one of the dimensions to acquire: it is another call's ticket"
    )]
    OtherTicket(Dimension),
    /// A longest time of the call was named for a grant that is only waited for.
    #[error(
        "max_call is for `run`, which ends the call: a grant that `grant` or `stream` waits for ends with its release; leave max_call out, or end the call yourself"
    )]
    MaxCallForGrant,
    /// A slot was asked for with a ticket. Slots book starts of their own.
    #[error("a slot takes no ticket: pass the request with its ticket to `acquire`")]
    TicketForSlot,
    /// The grant took nothing from the dimension: most likely a misspelled name, or another call's grant.
    #[error("the grant holds nothing of {0:?}")]
    NotHeld(String),
    /// DynamoDB takes 100 actions in a transaction, and each dimension needs two.
    #[error("{0} dimensions are more than the 50 that one transaction can hold: name fewer")]
    TooMany(usize),
}

const MOST_DIMENSIONS: usize = 50;

/// A dimension, its cost if named, and the share that pays.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) dimension: Dimension,
    pub(crate) cost: Option<Cost>,
    pub(crate) share: Payer,
}

/// Which share of a bucket pays for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The client's own, if it has one.
    #[default]
    Client,
    /// This one; `None` is the common line.
    Named(Option<ShareName>),
}

impl Payer {
    /// The share as a caller names it, if it does.
    pub(crate) fn named(share: Option<&str>) -> Result<Self, RequestError> {
        Ok(match share {
            None => Self::Client,
            Some(COMMON) => Self::Named(None),
            Some(name) => Self::Named(Some(ShareName::new(name)?)),
        })
    }
}

impl Ask {
    /// The cost of this ask in a bucket with this limit.
    pub(crate) fn cost_in(&self, limit: &Limit) -> Result<Cost, RequestError> {
        cost_in(&self.dimension, self.cost, limit)
    }
}

/// The `cost` that a call names for `dimension`, or the default cost of the bucket.
pub(crate) fn cost_in(
    dimension: &Dimension,
    cost: Option<Cost>,
    limit: &Limit,
) -> Result<Cost, RequestError> {
    cost.or_else(|| limit.default_cost()).ok_or_else(|| RequestError::NoCost(dimension.clone()))
}

impl<'a> Request<'a> {
    const fn only_of(name: Cow<'a, str>) -> Self {
        Self {
            names: DimensionNames::One(name),
            costs: Vec::new(),
            share: None,
            ticket_within: None,
            ticket: None,
        }
    }

    /// Sets what the call takes from `dimension`. If it is set again, the last value counts.
    #[must_use]
    pub fn cost(mut self, dimension: impl Into<Cow<'a, str>>, cost: impl Into<Quantity>) -> Self {
        self.costs.push((dimension.into(), cost.into()));
        self
    }

    /// The share that pays, in place of the client's own (`SLUICE_SHARE`); `common` is the part that no share
    /// has. A bucket that does not have this share is asked as if none was named.
    #[must_use]
    pub fn share(mut self, share: impl Into<Cow<'a, str>>) -> Self {
        self.share = Some(share.into());
        self
    }

    /// Lets [`Client::acquire`](crate::Client::acquire) book a start up to `within` ahead, if none is
    /// possible now, and return a ticket for it ([`RetryIn::ticket`](crate::RetryIn::ticket)): for work that
    /// goes back into its queue until then, and should not compete again. A longer time refuses fewer
    /// callers, and books more starts ahead.
    ///
    /// Of several dimensions, the ticket books those that refuse now. The others, and concurrency buckets,
    /// are taken when the ticket is redeemed: tokens of a slack bucket would overflow before the start. Only
    /// rate buckets can be booked: if a concurrency bucket refuses, there is no ticket. The same holds for a
    /// ticket that would be good for less than a second (the call costs nearly all of the capacity, or the
    /// bucket fills up within a second), in a cool-down, and with `SLUICE_LEASES=all`.
    /// [`RetryIn::no_ticket`](crate::RetryIn::no_ticket) says which. `slot` books by itself, and ignores this
    /// setting.
    #[must_use]
    pub const fn ticket_within(mut self, within: Duration) -> Self {
        self.ticket_within = Some(within);
        self
    }

    /// Redeems this ticket first, if there is one: for work that was put back into its queue with the ticket
    /// of a refusal. [`Client::acquire`](crate::Client::acquire) then answers as
    /// [`Client::redeem`](crate::Client::redeem) does. If the ticket is spent or has lapsed, or cannot be
    /// read, it acquires anew. A ticket of other dimensions is an error, and so is a slot with a ticket.
    #[must_use]
    pub fn with_ticket(mut self, ticket: Option<Ticket>) -> Self {
        self.ticket = ticket.map(Box::new);
        self
    }

    /// The same request, with names of its own.
    #[must_use]
    pub fn into_owned(self) -> Request<'static> {
        let own = |name: Cow<'_, str>| Cow::Owned(name.into_owned());
        let names = match self.names {
            DimensionNames::One(name) => DimensionNames::One(own(name)),
            DimensionNames::Many(names) => DimensionNames::Many(names.into_iter().map(own).collect()),
        };
        let costs = self.costs.into_iter().map(|(name, cost)| (own(name), cost)).collect();
        let share = self.share.map(own);
        Request { names, costs, share, ticket_within: self.ticket_within, ticket: self.ticket }
    }

    pub(crate) fn names(&self) -> &[Cow<'a, str>] {
        match &self.names {
            DimensionNames::One(name) => std::slice::from_ref(name),
            DimensionNames::Many(names) => names,
        }
    }

    /// The share as the caller named it.
    pub(crate) fn named_share(&self) -> Option<&str> {
        self.share.as_deref()
    }

    fn payer(&self) -> Result<Payer, RequestError> {
        Payer::named(self.named_share())
    }

    /// The dimensions as the caller named them, for messages.
    pub(crate) fn dimensions(&self) -> impl Display {
        DisplayedRequest(self)
    }

    /// The one dimension of a valid request for one, and its cost if named. `None` for any other request.
    pub(crate) fn only(&self) -> Option<(&str, Option<Cost>)> {
        let [name] = self.names() else { return None };
        if self.named_share().is_some_and(|share| share != COMMON && !ShareName::is_valid(share)) {
            return None;
        }
        match self.costs.as_slice() {
            [] => Some((name, None)),
            [(of, cost)] if of == name => Some((name, Some(cost.cost().ok()?))),
            _ => None,
        }
    }

    /// The dimensions in the order of their names, which is the same in every process.
    pub(crate) fn parse(&self) -> Result<Vec<Ask>, RequestError> {
        let mut asks: BTreeMap<Dimension, Ask> = BTreeMap::new();
        let share = self.payer()?;
        for name in self.names() {
            let dimension = Dimension::new(name)?;
            let ask = Ask { dimension: dimension.clone(), cost: None, share: share.clone() };
            if let Some(twice) = asks.insert(dimension, ask) {
                return Err(RequestError::Duplicate(twice.dimension));
            }
        }
        for (name, quantity) in &self.costs {
            let cost = cost_of(name, quantity)?;
            let ask = asks.get_mut(&Dimension::new(name)?);
            let ask = ask.ok_or_else(|| RequestError::CostWithoutDimension(name.to_string()))?;
            ask.cost = Some(cost);
        }
        match asks.len() {
            0 => Err(RequestError::Empty),
            many if many > MOST_DIMENSIONS => Err(RequestError::TooMany(many)),
            _ => Ok(asks.into_values().collect()),
        }
    }
}

/// The cost of a call in `dimension`.
pub(crate) fn cost_of(dimension: &str, quantity: &Quantity) -> Result<Cost, RequestError> {
    let error =
        |source| RequestError::Cost { dimension: dimension.to_owned(), cost: quantity.to_string(), source };
    quantity.cost().map_err(error)
}

impl<'a> From<&'a str> for Request<'a> {
    fn from(name: &'a str) -> Self {
        Self::only_of(Cow::Borrowed(name))
    }
}

impl<'a> From<&'a String> for Request<'a> {
    fn from(name: &'a String) -> Self {
        Self::from(name.as_str())
    }
}

impl<'a> From<&'a Dimension> for Request<'a> {
    fn from(dimension: &'a Dimension) -> Self {
        Self::from(dimension.as_str())
    }
}

impl From<Dimension> for Request<'_> {
    fn from(dimension: Dimension) -> Self {
        Self::only_of(dimension.into())
    }
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for Request<'_> {
    fn from(names: [S; N]) -> Self {
        Self::from(names.as_slice())
    }
}

impl<S: AsRef<str>> From<&[S]> for Request<'_> {
    fn from(names: &[S]) -> Self {
        let owned = |name: &S| Cow::Owned(name.as_ref().to_owned());
        Self {
            names: DimensionNames::Many(names.iter().map(owned).collect()),
            costs: Vec::new(),
            share: None,
            ticket_within: None,
            ticket: None,
        }
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Request<'_> {
    fn from(names: Vec<S>) -> Self {
        Self::from(names.as_slice())
    }
}

struct DisplayedRequest<'a>(&'a Request<'a>);

impl Display for DisplayedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.names().iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Amount, LimitType, Rate};

    use super::*;

    #[test]
    fn a_dimension_named_twice_is_a_mistake_and_the_last_cost_counts() {
        let twice = Request::from(["b#x", "a#x", "b#x"]).parse().unwrap_err();
        assert_eq!(twice, RequestError::Duplicate(Dimension::new("b#x").unwrap()));
        let asks = Request::from("a#x").cost("a#x", 3).cost("a#x", 0.5).parse().unwrap();
        assert_eq!(asks[0].cost.unwrap().to_string(), "0.5");
    }

    #[test]
    fn a_bucket_of_tokens_has_no_cost_that_nobody_stated() {
        let limit = |per_call| {
            let rate = Rate::per(Amount::from_tokens(60_000), Duration::from_secs(60)).unwrap();
            Limit::rate(LimitType::Tokens, Amount::from_tokens(60_000), rate, per_call).unwrap()
        };
        let ask = Request::from("openai#tpm").parse().unwrap().remove(0);
        let error = ask.cost_in(&limit(Cost::ONE)).unwrap_err();
        assert!(error.to_string().contains("name its cost in the call"), "{error}");
        let stated = Cost::new(Amount::from_tokens(500)).unwrap();
        assert_eq!(ask.cost_in(&limit(stated)).unwrap(), stated);
        assert_eq!(Ask { cost: Some(Cost::ONE), ..ask }.cost_in(&limit(stated)).unwrap(), Cost::ONE);
    }

    #[test]
    fn a_senseless_request_is_told_what_is_wrong() {
        let none: [&str; 0] = [];
        assert_eq!(Request::from(none).parse().unwrap_err(), RequestError::Empty);
        let cost =
            |quantity: Quantity| Request::from("a#b").cost("a#b", quantity).parse().unwrap_err().to_string();
        for (quantity, text) in
            [(0.into(), "cost 0 "), ((-1).into(), "cost -1 "), (f64::NAN.into(), "cost NaN ")]
        {
            let error = cost(quantity);
            assert!(error.contains(text) && error.contains("above 0"), "{error}");
        }
        assert!(cost(f64::INFINITY.into()).contains("inf"));
        let stray = Request::from("a#b").cost("a#c", 1).parse().unwrap_err();
        assert_eq!(stray, RequestError::CostWithoutDimension("a#c".into()));
        assert!(matches!(Request::from("lease#x").parse(), Err(RequestError::Dimension(_))));
    }
}
