//! Numbers as text: their value, rounded against the caller, and nothing else.

use proptest::prelude::*;
use sluice_core::{Amount, Cost, CostError, DecimalError, Factor, Rate, Timestamp};

/// A number, written down in some way.
#[derive(Clone, Debug)]
struct Written {
    negative: bool,
    whole: String,
    fraction: String,
    exponent: i32,
}

impl Written {
    fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let exponent = if self.exponent == 0 { String::new() } else { format!("E{:+}", self.exponent) };
        format!("{sign}{}.{}{exponent}", self.whole, self.fraction)
    }

    /// In units of `10^-scale`, rounded down, and whether nothing was lost; `None` beyond `i128`.
    fn floor(&self, scale: i32) -> Option<(i128, bool)> {
        let digits: i128 = format!("{}{}", self.whole, self.fraction).parse().unwrap();
        let digits = if self.negative { -digits } else { digits };
        let shift = self.exponent - i32::try_from(self.fraction.len()).unwrap() + scale;
        let power = 10_i128.pow(shift.unsigned_abs());
        if shift >= 0 {
            Some((digits.checked_mul(power)?, true))
        } else {
            Some((digits.div_euclid(power), digits.rem_euclid(power) == 0))
        }
    }

    fn in_range(&self, scale: i32) -> Result<i64, DecimalError> {
        let units = self.floor(scale).ok_or(DecimalError::OutOfRange)?.0;
        i64::try_from(units).map_err(|_| DecimalError::OutOfRange)
    }
}

fn written() -> impl Strategy<Value = Written> {
    (any::<bool>(), "[0-9]{1,16}", "[0-9]{0,18}", -15..=15)
        .prop_map(|(negative, whole, fraction, exponent)| Written { negative, whole, fraction, exponent })
}

/// Texts around the ends of what 64 bits hold.
fn brim() -> impl Strategy<Value = String> {
    (
        "(-?922337203685477580[6-9]|-?9223372036854775807)",
        prop_oneof![2 => Just(6_usize), 1 => 0..=12_usize],
        "[0-9]{0,3}",
    )
        .prop_map(|(digits, decimals, more)| {
            let (whole, fraction) = digits.split_at(digits.len() - decimals);
            format!("{whole}.{fraction}{more}")
        })
}

/// Whether the text is a decimal number at all.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = |text: &str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let (mantissa, exponent) =
        text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(unsigned(e))));
    let mantissa = unsigned(mantissa);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((&mantissa, ""));
    let exponent_is_one = exponent.is_none_or(|exponent| !exponent.is_empty() && digits(&exponent));
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_is_one
}

proptest! {
    #[test]
    fn a_number_is_read_rounded_down_however_it_is_written(number in written()) {
        let text = number.text();
        prop_assert_eq!(text.parse::<Amount>().map(Amount::micros), number.in_range(6), "{}", text);
        prop_assert_eq!(text.parse::<Timestamp>().map(Timestamp::micros), number.in_range(6), "{}", text);
    }

    #[test]
    fn a_cost_is_read_rounded_up(number in written()) {
        let ceiling = number.floor(6).map(|(units, exact)| units + i128::from(!exact));
        let cost = number.text().parse::<Cost>().map(|cost| i128::from(cost.amount().micros()));
        match ceiling {
            Some(..=0) if number.in_range(6).is_ok() => prop_assert_eq!(cost, Err(CostError::NotPositive)),
            Some(units) if i64::try_from(units).is_ok() => prop_assert_eq!(cost, Ok(units)),
            _ => prop_assert_eq!(cost, Err(CostError::Malformed(DecimalError::OutOfRange))),
        }
    }

    #[test]
    fn no_rate_is_below_zero_and_none_is_above_what_was_written(number in written()) {
        match number.text().parse::<Rate>() {
            Ok(rate) => {
                let held: Amount = rate.to_string().parse().unwrap();
                prop_assert!(held >= Amount::ZERO);
                prop_assert!(number.in_range(6).is_ok_and(|floor| held.micros() <= floor));
            }
            Err(error) => {
                prop_assert_eq!(error, DecimalError::OutOfRange);
                prop_assert!(number.negative || number.in_range(12).is_err());
            }
        }
    }

    #[test]
    fn nothing_wraps_round_at_the_ends_of_the_range(text in brim()) {
        if let Ok(amount) = text.parse::<Amount>() {
            prop_assert_eq!(amount < Amount::ZERO, text.starts_with('-'));
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }
        if let Ok(cost) = text.parse::<Cost>() {
            let beyond = text.split_once('.').map_or("", |(_, fraction)| fraction.get(6..).unwrap_or_default());
            let exact = beyond.bytes().all(|digit| digit == b'0');
            let floor = text.parse::<Amount>().unwrap();
            prop_assert!(if exact { cost.amount() == floor } else { cost.amount() > floor }, "{text}");
            prop_assert_eq!(cost.to_string().parse(), Ok(cost));
        }
    }

    #[test]
    fn a_text_is_read_where_it_is_a_number_and_only_there(
        text in prop_oneof!["[-+0-9eE._]{0,12}", "\\PC{0,12}", "-?[0-9]{1,4}\\.?[0-9]{0,4}[eE]?[-+0-9x]{0,3}"],
    ) {
        match text.parse::<Amount>() {
            Ok(_) => prop_assert!(is_number(&text), "{text:?}"),
            Err(DecimalError::OutOfRange) => {}
            Err(_) => prop_assert!(!is_number(&text), "{text:?}"),
        }
    }

    #[test]
    fn a_factor_lies_between_nothing_and_all(number in written()) {
        let factor = number.text().parse::<Factor>().map(Factor::ratio);
        let expected = number.in_range(6).ok().and_then(|units| u32::try_from(units).ok()).filter(|units| *units <= 1_000_000);
        prop_assert_eq!(factor.ok(), expected.map(|units| (units, 1_000_000)));
    }
}
