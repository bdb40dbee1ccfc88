//! Converts decimal text to scaled integers and back: the wire form of amounts, instants and rates.

use core::fmt;

/// Why a text is not a number that Sluice can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecimalError {
    /// Not a finite decimal number: empty, `NaN`, `inf`, letters.
    #[error("not a finite decimal number")]
    NotANumber,
    /// Further from zero than the type can hold.
    #[error("out of range")]
    OutOfRange,
}

/// A decimal as an integer of `10^-scale`, rounded down (towards minus infinity).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) value: i64,
    /// False if rounding dropped a digit that was not zero.
    pub(crate) exact: bool,
}

/// Larger exponents mean nothing for a quota, and would only make the loop below long.
const MAX_EXPONENT: i32 = 400;

/// Parses `text` ("46.5", "-1", "1.5e3") in units of `10^-scale`, rounding down.
pub(crate) fn parse(text: &str, scale: i32) -> Result<Scaled, DecimalError> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = split_exponent(unsigned)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(DecimalError::NotANumber);
    }
    // The digit at index i of whole ++ fraction weighs 10^(last - i) units.
    let whole_len = i32::try_from(whole.len()).map_err(|_| DecimalError::OutOfRange)?;
    let mut weight = whole_len - 1 + exponent + scale;
    let mut value: i128 = 0;
    let mut dropped = false;
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return Err(DecimalError::NotANumber);
        }
        let digit = i128::from(byte - b'0');
        if weight >= 0 {
            value =
                value.checked_mul(10).and_then(|v| v.checked_add(digit)).ok_or(DecimalError::OutOfRange)?;
        } else {
            dropped |= digit != 0;
        }
        weight -= 1;
    }
    // Zeros that the exponent still requires ("1e9" has one digit).
    while weight >= 0 && value != 0 {
        value = value.checked_mul(10).ok_or(DecimalError::OutOfRange)?;
        weight -= 1;
    }
    let signed = match (negative, dropped) {
        (false, _) => value,
        (true, false) => -value,
        (true, true) => -value - 1,
    };
    let value = i64::try_from(signed).map_err(|_| DecimalError::OutOfRange)?;
    Ok(Scaled { value, exact: !dropped })
}

fn split_exponent(text: &str) -> Result<(&str, i32), DecimalError> {
    let Some(at) = text.find(['e', 'E']) else { return Ok((text, 0)) };
    let exponent: i32 = text[at + 1..].parse().map_err(|_| DecimalError::NotANumber)?;
    if exponent.abs() > MAX_EXPONENT {
        return Err(DecimalError::OutOfRange);
    }
    Ok((&text[..at], exponent))
}

/// Writes `value` units of `10^-scale` as a plain decimal without trailing zeros.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, value: i64, scale: u32) -> fmt::Result {
    let unit = 10_u64.pow(scale);
    let magnitude = value.unsigned_abs();
    let (whole, mut fraction) = (magnitude / unit, magnitude % unit);
    let sign = if value < 0 { "-" } else { "" };
    if fraction == 0 {
        return write!(f, "{sign}{whole}");
    }
    let mut width = scale as usize;
    while fraction.is_multiple_of(10) {
        fraction /= 10;
        width -= 1;
    }
    write!(f, "{sign}{whole}.{fraction:0width$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micro(text: &str) -> Result<(i64, bool), DecimalError> {
        parse(text, 6).map(|s| (s.value, s.exact))
    }

    #[test]
    fn rounds_down_and_says_so() {
        assert_eq!(micro("46.5"), Ok((46_500_000, true)));
        assert_eq!(micro("46.5000009"), Ok((46_500_000, false)));
        assert_eq!(micro("-0.0000001"), Ok((-1, false)));
        assert_eq!(micro("1E+2"), Ok((100_000_000, true)));
        assert_eq!(micro("1.5e-3"), Ok((1_500, true)));
        assert_eq!(micro("0E-20"), Ok((0, true)));
        assert_eq!(micro("12e-7"), Ok((1, false)));
        assert_eq!(micro("0e300"), Ok((0, true)));
    }

    #[test]
    fn refuses_what_is_not_a_number() {
        for text in ["", "-", ".", "NaN", "inf", "1,5", "1.2.3", "e5", "1e", "--1", "1e99999999999"] {
            assert_eq!(micro(text), Err(DecimalError::NotANumber), "{text:?}");
        }
        for text in ["1e40", "99999999999999999999", "1e401"] {
            assert_eq!(micro(text), Err(DecimalError::OutOfRange), "{text:?}");
        }
    }

    struct Micro(i64);
    impl fmt::Display for Micro {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, self.0, 6)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any::<i64>()) {
            prop_assume!(value != i64::MIN);
            let text = ToString::to_string(&Micro(value));
            prop_assert_eq!(micro(&text), Ok((value, true)), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = parse(&text, 12);
        }

        #[test]
        fn no_number_like_text_panics(text in "[-+0-9eE.]{0,60}") {
            let _ = parse(&text, 6);
        }
    }
}
