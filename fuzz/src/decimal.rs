//! A second opinion on decimals: exact, of any size, and not Sluice's own arithmetic.

use std::str::FromStr as _;

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, RoundingMode};

/// Exponents that Sluice refuses unread; as numbers they are far beyond any quota, or beyond any digit that
/// counts.
const LARGEST_EXPONENT: i64 = 400;

/// The value of `text`, whatever its size; `None` where it is no decimal number.
fn value(text: &str) -> Option<BigDecimal> {
    // `BigDecimal` reads more than DynamoDB writes: underscores, and a sign after the point.
    let (mantissa, _) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(())?;
    BigDecimal::from_str(text).ok()
}

/// `text` in units of `10^-scale`, rounded down; `None` where it is no decimal number, or one with an absurd
/// exponent.
pub fn floor(text: &str, scale: i64) -> Option<BigInt> {
    rounded(text, scale, RoundingMode::Floor)
}

/// As [`floor`], rounded up.
pub fn ceiling(text: &str, scale: i64) -> Option<BigInt> {
    rounded(text, scale, RoundingMode::Ceiling)
}

fn rounded(text: &str, scale: i64, mode: RoundingMode) -> Option<BigInt> {
    if written_exponent_is_absurd(text) {
        return None;
    }
    let (digits, exponent) = value(text)?.into_bigint_and_exponent();
    let units = BigDecimal::new(digits, exponent - scale).with_scale_round(0, mode);
    Some(units.into_bigint_and_exponent().0)
}

/// Whether the number is written with an exponent that Sluice refuses unread.
pub fn written_exponent_is_absurd(text: &str) -> bool {
    let Some(at) = text.find(['e', 'E']) else { return false };
    text[at + 1..].parse::<i64>().map_or(true, |exponent| exponent.abs() > LARGEST_EXPONENT)
}

/// Whether two texts are one number, to the last digit.
pub fn is_exactly(text: &str, other: &str) -> bool {
    value(text).is_some_and(|value_of_text| Some(value_of_text) == value(other))
}
