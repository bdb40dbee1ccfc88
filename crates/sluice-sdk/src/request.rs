//! What a caller asks for: dimensions, and what each costs.

use std::collections::BTreeMap;

use sluice_core::{Amount, Cost, CostError, Dimension, DimensionError};

/// Dimensions to acquire together, each with its cost where it is not the bucket's `cost_per_call`.
///
/// ```
/// use sluice_sdk::Request;
///
/// let one: Request = "openai#rpm".into();
/// let both = Request::from(["openai#rpm", "openai#tpm"]).cost("openai#tpm", 1_200);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Request {
    names: Vec<String>,
    costs: Vec<(String, Quantity)>,
}

/// A number of tokens as a caller writes it: any integer, or a float.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity(String);

/// Why a request makes no sense, whatever the table holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No dimension is named.
    #[error("no dimension is named: name at least one, as in openai#rpm")]
    Empty,
    /// Not the name of a bucket.
    #[error(transparent)]
    Dimension(#[from] DimensionError),
    /// Zero, less, or not a number.
    #[error("cost {cost} for {dimension} cannot be used: {source}")]
    Cost {
        /// The dimension.
        dimension: String,
        /// The cost as given.
        cost: String,
        /// What is wrong with it.
        source: CostError,
    },
    /// A cost for a dimension that is not acquired: most likely a slip in its name.
    #[error("a cost is given for {0:?}, which is not among the dimensions to acquire")]
    CostWithoutDimension(String),
    /// DynamoDB takes 100 actions in a transaction, two for each dimension.
    #[error("{0} dimensions are more than the 50 that one transaction can hold")]
    TooMany(usize),
}

const MOST_DIMENSIONS: usize = 50;

/// A dimension, and its cost where the caller named one. A dimension named twice is asked for once, at both costs.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) dimension: Dimension,
    pub(crate) cost: Option<Cost>,
    pub(crate) times: u32,
}

impl Ask {
    /// What it takes, where one call takes `per_call`.
    pub(crate) fn cost_or(&self, per_call: Cost) -> Cost {
        self.cost.unwrap_or_else(|| (1..self.times).fold(per_call, |sum, _| sum.plus(per_call)))
    }
}

impl Request {
    /// Sets what the call takes from `dimension`.
    #[must_use]
    pub fn cost(mut self, dimension: impl Into<String>, cost: impl Into<Quantity>) -> Self {
        self.costs.push((dimension.into(), cost.into()));
        self
    }

    /// The dimensions in the order of their names, which is the same in every process.
    pub(crate) fn parse(&self) -> Result<Vec<Ask>, RequestError> {
        let mut asks: BTreeMap<Dimension, Ask> = BTreeMap::new();
        for name in &self.names {
            let dimension = Dimension::new(name)?;
            let ask = Ask { dimension: dimension.clone(), cost: None, times: 0 };
            asks.entry(dimension).or_insert(ask).times += 1;
        }
        for (name, quantity) in &self.costs {
            let cost = quantity.parse(name)?;
            let ask = asks.get_mut(&Dimension::new(name)?);
            let ask = ask.ok_or_else(|| RequestError::CostWithoutDimension(name.clone()))?;
            ask.cost = Some(ask.cost.map_or(cost, |named| named.plus(cost)));
        }
        match asks.len() {
            0 => Err(RequestError::Empty),
            many if many > MOST_DIMENSIONS => Err(RequestError::TooMany(many)),
            _ => Ok(asks.into_values().collect()),
        }
    }
}

impl Quantity {
    fn parse(&self, dimension: &str) -> Result<Cost, RequestError> {
        self.0.parse().map_err(|source| RequestError::Cost {
            dimension: dimension.to_owned(),
            cost: self.0.clone(),
            source,
        })
    }
}

macro_rules! quantities {
    ($($number:ty),*) => {$(
        impl From<$number> for Quantity {
            fn from(number: $number) -> Self {
                Self(number.to_string())
            }
        }
    )*};
}

quantities!(i32, i64, u32, u64, usize, f64, Amount, Cost);

impl From<&str> for Request {
    fn from(name: &str) -> Self {
        Self { names: vec![name.to_owned()], costs: Vec::new() }
    }
}

impl From<&String> for Request {
    fn from(name: &String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<&Dimension> for Request {
    fn from(dimension: &Dimension) -> Self {
        Self::from(dimension.as_str())
    }
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for Request {
    fn from(names: [S; N]) -> Self {
        Self::from(names.as_slice())
    }
}

impl<S: AsRef<str>> From<&[S]> for Request {
    fn from(names: &[S]) -> Self {
        Self { names: names.iter().map(|name| name.as_ref().to_owned()).collect(), costs: Vec::new() }
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Request {
    fn from(names: Vec<S>) -> Self {
        Self::from(names.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_named_twice_is_merged() {
        let asks = Request::from(["b#x", "a#x", "b#x"]).parse().unwrap();
        assert_eq!(asks.len(), 2);
        assert_eq!(asks[1].cost_or(Cost::ONE).to_string(), "2");
        let asks = Request::from("a#x").cost("a#x", 3).cost("a#x", 0.5).parse().unwrap();
        assert_eq!(asks[0].cost_or(Cost::ONE).to_string(), "3.5");
    }

    #[test]
    fn a_senseless_request_is_told_what_is_wrong() {
        let none: [&str; 0] = [];
        assert_eq!(Request::from(none).parse().unwrap_err(), RequestError::Empty);
        let cost = |quantity: Quantity| Request::from("a#b").cost("a#b", quantity).parse().unwrap_err().to_string();
        for (quantity, text) in [(0.into(), "cost 0 "), ((-1).into(), "cost -1 "), (f64::NAN.into(), "cost NaN ")] {
            let error = cost(quantity);
            assert!(error.contains(text) && error.contains("above 0"), "{error}");
        }
        assert!(cost(f64::INFINITY.into()).contains("inf"));
        let stray = Request::from("a#b").cost("a#c", 1).parse().unwrap_err();
        assert_eq!(stray, RequestError::CostWithoutDimension("a#c".into()));
        assert!(matches!(Request::from("lease#x").parse(), Err(RequestError::Dimension(_))));
    }
}
