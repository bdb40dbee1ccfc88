//! Refill rates, and the two conversions between time and tokens.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::Amount;
use crate::decimal::{self, DecimalError};
use crate::timestamp::whole_micros;

/// Tokens that flow back into a bucket, as an integer of 10^-12 tokens a second. A daily limit is a small
/// rate: one call a day, in millionths, would be off by 5 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(i64);

const SCALE: u32 = 12;
/// One microsecond at a rate of 1 adds 10^-18 tokens; a millionth of a token is 10^12 of these.
const PER_MICRO: i128 = 1_000_000_000_000;

impl Rate {
    /// No refill: a concurrency bucket.
    pub const ZERO: Self = Self(0);
    /// The highest: about 9.2 million tokens a second.
    pub const MAX: Self = Self(i64::MAX);

    /// `amount` tokens every `window`, rounded down; `None` if a `Rate` cannot hold the result.
    #[must_use]
    pub fn per(amount: Amount, window: Duration) -> Option<Self> {
        let window_micros = i128::try_from(window.as_micros()).ok().filter(|w| *w > 0)?;
        let pico = (i128::from(amount.micros()) * PER_MICRO).div_euclid(window_micros);
        i64::try_from(pico).ok().filter(|p| *p >= 0).map(Self)
    }

    /// Whether nothing flows back.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// What flows back in a minute, rounded up to a millionth: a limit of 500 a minute is stored as a rate of
    /// 8.333333333333 a second, and this is 500 again.
    #[must_use]
    pub fn per_minute(self) -> Amount {
        self.accrued_ceil(Duration::from_secs(60))
    }

    /// Tokens gained in `span`, rounded down. Never below zero: a `span` cannot lie before an anchor.
    #[must_use]
    pub fn accrued_floor(self, span: Duration) -> Amount {
        Amount::clamped((i128::from(whole_micros(span)) * i128::from(self.0)).div_euclid(PER_MICRO))
    }

    /// Tokens gained in `span`, rounded up.
    pub(crate) fn accrued_ceil(self, span: Duration) -> Amount {
        Amount::clamped(-(-i128::from(whole_micros(span)) * i128::from(self.0)).div_euclid(PER_MICRO))
    }

    /// Whether [`accrued_floor`](Self::accrued_floor) reaches `amount` in `span`, without a division.
    pub(crate) fn has_accrued(self, span: Duration, amount: Amount) -> bool {
        i128::from(whole_micros(span)) * i128::from(self.0) >= i128::from(amount.micros()) * PER_MICRO
    }

    /// Microseconds until `amount` has flowed back, rounded up: the first at which `accrued_floor` reaches
    /// `amount`. `i64::MAX` for an amount that never comes back.
    pub(crate) fn micros_for(self, amount: Amount) -> i64 {
        if self.0 == 0 {
            return if amount <= Amount::ZERO { 0 } else { i64::MAX };
        }
        let rate = i128::from(self.0);
        let micros = -(-i128::from(amount.micros()) * PER_MICRO).div_euclid(rate);
        Amount::clamped(micros).micros()
    }

    /// How long `amount` takes to flow back, rounded up; `None` if it never does.
    #[must_use]
    pub fn time_for(self, amount: Amount) -> Option<Duration> {
        let micros = self.micros_for(amount);
        (micros < i64::MAX).then(|| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    pub(crate) fn parse(text: &str) -> Result<(Self, bool), DecimalError> {
        let scaled = decimal::parse(text, 12)?;
        if scaled.value < 0 { Err(DecimalError::OutOfRange) } else { Ok((Self(scaled.value), scaled.exact)) }
    }

    /// The sum, saturating.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, and zero at least.
    pub(crate) const fn minus(self, other: Self) -> Self {
        let rest = self.0.saturating_sub(other.0);
        Self(if rest < 0 { 0 } else { rest })
    }

    /// The rate times one rate by another, rounded down.
    pub(crate) fn scaled_by(self, of: Self, to: Self) -> Self {
        self.scaled(Amount::from_micros(of.0), Amount::from_micros(to.0))
    }

    /// The rate times `of / to`, rounded down.
    pub(crate) fn scaled(self, of: Amount, to: Amount) -> Self {
        let product = i128::from(self.0) * i128::from(of.micros().max(0));
        Self(Amount::clamped(product.div_euclid(i128::from(to.micros().max(1)))).micros())
    }

    /// `kept / one` of this rate and the rest of `other`, rounded down.
    pub(crate) fn weighted(self, other: Self, kept: u64, one: u64) -> Self {
        let apart = (i128::from(self.0) - i128::from(other.0)) * i128::from(kept);
        Self(Amount::clamped(i128::from(other.0) + apart.div_euclid(i128::from(one.max(1)))).micros())
    }

    /// `numerator / denominator` of the rate, rounded down.
    pub(crate) fn fraction(self, numerator: u32, denominator: u32) -> Self {
        Self(Amount::from_micros(self.0).fraction(numerator, denominator).micros())
    }
}

impl FromStr for Rate {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text).map(|(rate, _)| rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal::write(f, self.0, SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString as _;

    #[test]
    fn a_window_becomes_a_rate_rounded_down() {
        let rate = Rate::per(Amount::from_tokens(100), Duration::from_secs(60)).unwrap();
        assert_eq!(rate.to_string(), "1.666666666666");
        assert_eq!(Rate::per(Amount::from_tokens(1), Duration::ZERO), None);
        assert_eq!(Rate::per(Amount::from_tokens(-1), Duration::from_secs(1)), None);
    }

    proptest! {
        #[test]
        fn a_wait_is_the_first_moment_at_which_the_tokens_are_there(
            pico in 1_i64..2_000_000_000_000_000, micros in 1_i64..1_000_000_000_000,
        ) {
            let (rate, amount) = (Rate(pico), Amount::from_micros(micros));
            let wait = rate.micros_for(amount);
            prop_assume!(wait < i64::MAX);
            let span = |micros: i64| Duration::from_micros(micros.unsigned_abs());
            prop_assert!(rate.accrued_floor(span(wait)) >= amount);
            prop_assert!(rate.accrued_floor(span(wait - 1)) < amount);
        }

        #[test]
        fn floor_and_ceil_differ_by_at_most_one_millionth(
            pico in 0_i64..2_000_000_000_000_000, micros in 0_u64..10_000_000_000,
        ) {
            let span = Duration::from_micros(micros);
            let (down, up) = (Rate(pico).accrued_floor(span), Rate(pico).accrued_ceil(span));
            prop_assert!(up == down || up == down.plus(Amount::from_micros(1)));
        }
    }
}
