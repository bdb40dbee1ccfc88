//! Amounts, instants, rates and costs: the value of the text, rounded against the caller, and nothing beyond
//! the range.
#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use sluice_core::{Amount, Cost, CostError, DecimalError, Factor, Rate, Timestamp};
use sluice_fuzz::{ceiling, floor, is_exactly, written_exponent_is_absurd};

/// The text of what was read, once it is known to read back as the same.
fn written<T: FromStr<Err: std::fmt::Debug> + Display + PartialEq + std::fmt::Debug>(value: &T) -> String {
    let text = value.to_string();
    assert_eq!(text.parse::<T>().unwrap(), *value);
    text
}

fn check_error(error: DecimalError, text: &str, scale: i64) {
    match error {
        DecimalError::NotANumber => assert_eq!(floor(text, scale), None, "{text:?} is a number"),
        DecimalError::OutOfRange => assert!(
            written_exponent_is_absurd(text)
                || floor(text, scale).is_none_or(|units| i64::try_from(units).is_err()),
            "{text:?} is in range"
        ),
        other => panic!("{other:?}"),
    }
}

fuzz_target!(|text: &str| {
    match text.parse::<Amount>() {
        Ok(amount) => {
            assert_eq!(floor(text, 6), Some(amount.micros().into()));
            assert_eq!(floor(&written(&amount), 6), Some(amount.micros().into()));
        }
        Err(error) => check_error(error, text, 6),
    }
    match text.parse::<Timestamp>() {
        Ok(at) => {
            assert_eq!(floor(text, 6), Some(at.micros().into()));
            written(&at);
            let whole = at.ceil_to_second();
            assert!(whole >= at && whole.micros_since(at) < 1_000_000);
        }
        Err(error) => check_error(error, text, 6),
    }
    match text.parse::<Rate>() {
        Ok(rate) => assert_eq!(floor(text, 12), floor(&written(&rate), 12)),
        Err(DecimalError::OutOfRange) if text.starts_with('-') => {}
        Err(error) => check_error(error, text, 12),
    }
    match text.parse::<Cost>() {
        Ok(cost) => assert_eq!(ceiling(text, 6), ceiling(&written(&cost), 6)),
        Err(CostError::NotPositive) => assert!(ceiling(text, 6).unwrap() <= 0.into()),
        Err(CostError::Malformed(DecimalError::OutOfRange)) => assert!(
            written_exponent_is_absurd(text)
                || ceiling(text, 6).is_none_or(|units| i64::try_from(units).is_err())
        ),
        Err(CostError::Malformed(error)) => check_error(error, text, 6),
        Err(other) => panic!("{other:?}"),
    }
    if let Ok(factor) = text.parse::<Factor>() {
        let (numerator, denominator) = factor.ratio();
        assert!(numerator <= denominator);
        assert_eq!(floor(text, 6), Some(numerator.into()));
    }
    assert!(!is_exactly(text, "1") || text.parse() == Ok(Amount::from_tokens(1)));
});
