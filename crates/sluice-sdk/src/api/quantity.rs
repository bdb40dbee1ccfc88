//! A number of tokens, as callers write it.

use std::fmt;

use sluice_core::{Amount, Cost, CostError};

/// A number of tokens as a caller writes it: an `i32`, `i64`, `u32`, `u64`, `usize` or `f64`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity(Number);

#[derive(Clone, Debug, PartialEq)]
enum Number {
    Whole(i64),
    Text(String),
}

impl Quantity {
    /// The cost of a call.
    pub(crate) fn cost(&self) -> Result<Cost, CostError> {
        match &self.0 {
            Number::Whole(tokens) => match i32::try_from(*tokens) {
                Ok(tokens) => Cost::new(Amount::from_tokens(tokens)),
                Err(_) => tokens.to_string().parse(),
            },
            Number::Text(text) => text.parse(),
        }
    }

    /// The amount used: zero or more, rounded up.
    pub(crate) fn used(&self) -> Result<Amount, CostError> {
        match &self.0 {
            Number::Whole(0) => Ok(Amount::ZERO),
            Number::Text(text)
                if text.parse() == Ok(Amount::ZERO) && !text.contains(|c| matches!(c, '1'..='9')) =>
            {
                Ok(Amount::ZERO)
            }
            _ => self.cost().map(Cost::amount),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Number::Whole(tokens) => tokens.fmt(f),
            Number::Text(text) => f.write_str(text),
        }
    }
}

macro_rules! quantities {
    ($($number:ty),*) => {$(
        impl From<$number> for Quantity {
            fn from(number: $number) -> Self {
                Self(i64::try_from(number).map_or_else(|_| Number::Text(number.to_string()), Number::Whole))
            }
        }
    )*};
}

quantities!(i32, i64, u32, u64, usize);

impl From<f64> for Quantity {
    fn from(number: f64) -> Self {
        Self(Number::Text(number.to_string()))
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        Self(Number::Text(amount.to_string()))
    }
}

impl From<Cost> for Quantity {
    fn from(cost: Cost) -> Self {
        Self::from(cost.amount())
    }
}
