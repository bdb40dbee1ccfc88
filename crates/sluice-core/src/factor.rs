//! A part of something, as operators and callers state it.

use core::str::FromStr;

use crate::amount::Amount;
use crate::decimal::{self, DecimalError};

/// A part from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(u32);

/// Why a text is not a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactorError {
    /// Below 0 or above 1.
    #[error("a factor must be between 0 and 1")]
    OutOfRange,
    /// Not a number.
    #[error("a factor must be a decimal number between 0 and 1, and this is {0}")]
    Malformed(#[from] DecimalError),
}

impl Factor {
    const ONE: u32 = 1_000_000;

    /// Numerator and denominator.
    #[must_use]
    pub const fn ratio(self) -> (u32, u32) {
        (self.0, Self::ONE)
    }

    /// This part of `amount`, rounded down.
    #[must_use]
    pub fn of(self, amount: Amount) -> Amount {
        amount.fraction(self.0, Self::ONE)
    }
}

impl FromStr for Factor {
    type Err = FactorError;

    fn from_str(text: &str) -> Result<Self, FactorError> {
        let millionths = decimal::parse(text, 6)?.value;
        match u32::try_from(millionths) {
            Ok(value) if value <= Self::ONE => Ok(Self(value)),
            _ => Err(FactorError::OutOfRange),
        }
    }
}
