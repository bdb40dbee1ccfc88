//! Tokens of a bucket, as integers of one millionth.

use core::fmt;
use core::str::FromStr;

use crate::decimal::{self, DecimalError};

/// A number of tokens (requests, LLM tokens or slots), in millionths; negative if a bucket is in debt.
///
/// Reading rounds down after six decimals: fewer tokens, against the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

const MICROS_PER_TOKEN: i64 = 1_000_000;
const SCALE: u32 = 6;

impl Amount {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// `micros` millionths of a token.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// `tokens` whole tokens.
    #[must_use]
    pub const fn from_tokens(tokens: i32) -> Self {
        Self(tokens as i64 * MICROS_PER_TOKEN)
    }

    /// The amount in millionths of a token.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whether the amount is a whole number of tokens.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.0 % MICROS_PER_TOKEN == 0
    }

    /// The whole tokens in the amount, rounded down.
    #[must_use]
    pub(crate) const fn whole(self) -> Self {
        Self(self.0 - self.0.rem_euclid(MICROS_PER_TOKEN))
    }

    /// Rounded down to a multiple of `call`.
    pub(crate) const fn in_calls(self, call: Self) -> Self {
        match call.0 > 0 {
            true => Self(self.0 - self.0.rem_euclid(call.0)),
            false => self,
        }
    }

    /// The amount without its sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// The sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, saturating.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Half of the amount, rounded down.
    #[must_use]
    pub fn half(self) -> Self {
        self.fraction(1, 2)
    }

    /// `numerator / denominator` of the amount, rounded down.
    #[must_use]
    pub(crate) fn fraction(self, numerator: u32, denominator: u32) -> Self {
        let product = i128::from(self.0) * i128::from(numerator);
        Self::clamped(product.div_euclid(i128::from(denominator)))
    }

    /// The amount times `of / to`, rounded down.
    pub(crate) fn scaled(self, of: Self, to: Self) -> Self {
        let product = i128::from(self.0) * i128::from(of.0);
        Self::clamped(product.div_euclid(i128::from(to.0.max(1))))
    }

    pub(crate) fn clamped(micros: i128) -> Self {
        let bounded = micros.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Self(i64::try_from(bounded).unwrap_or(i64::MAX))
    }

    pub(crate) fn parse(text: &str) -> Result<(Self, bool), DecimalError> {
        decimal::parse(text, 6).map(|scaled| (Self(scaled.value), scaled.exact))
    }
}

impl FromStr for Amount {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text).map(|(amount, _)| amount)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal::write(f, self.0, SCALE)
    }
}

/// What one call takes from a bucket: always above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(Amount);

/// Why an amount cannot be the cost of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The amount is zero or less.
    #[error("it must be a number above 0")]
    NotPositive,
    /// The text is not a number.
    #[error("it must be a number above 0, and is {0}")]
    Malformed(#[from] DecimalError),
}

impl Cost {
    /// One token.
    pub const ONE: Self = Self(Amount::from_tokens(1));

    /// The cost of `amount`.
    ///
    /// # Errors
    /// [`CostError::NotPositive`] for zero and less.
    pub const fn new(amount: Amount) -> Result<Self, CostError> {
        if amount.0 > 0 { Ok(Self(amount)) } else { Err(CostError::NotPositive) }
    }

    /// The tokens that the call takes.
    #[must_use]
    pub const fn amount(self) -> Amount {
        self.0
    }
}

impl FromStr for Cost {
    type Err = CostError;

    /// Reads a decimal. Digits after the sixth round **up**: too small a cost is against the vendor.
    fn from_str(text: &str) -> Result<Self, CostError> {
        let (amount, exact) = Amount::parse(text)?;
        let above = if exact { Some(amount.0) } else { amount.0.checked_add(1) };
        Self::new(Amount(above.ok_or(DecimalError::OutOfRange)?))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_above_zero_and_rounds_up() {
        assert_eq!("0".parse::<Cost>(), Err(CostError::NotPositive));
        assert_eq!("-1".parse::<Cost>(), Err(CostError::NotPositive));
        assert_eq!("NaN".parse::<Cost>(), Err(CostError::Malformed(DecimalError::NotANumber)));
        assert_eq!("0.00000001".parse::<Cost>(), Ok(Cost(Amount(1))));
        // There is no room above it to round into.
        let brim = Amount(i64::MAX).to_string();
        assert_eq!(brim.parse::<Cost>(), Ok(Cost(Amount(i64::MAX))));
        assert_eq!(
            alloc::format!("{brim}1").parse::<Cost>(),
            Err(CostError::Malformed(DecimalError::OutOfRange))
        );
    }
}
