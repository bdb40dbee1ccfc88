//! Parses refill rates as rows contain them, without the bucket arithmetic.

/// Why a text is not a refill rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a refill rate: it must be a decimal number with at most 12 decimals, as in 1.666666666666"
)]
pub struct RateError(String);

const DECIMALS: usize = 12;

/// Reads tokens a second, written as a decimal, as an integer of 10^-12 tokens a second.
///
/// # Errors
/// [`RateError`] for a sign, an exponent, more than 12 decimals that are not zero, and what an `i64` cannot
/// hold: a rounded bound would not be the bound.
pub fn pico_per_sec(text: &str) -> Result<i64, RateError> {
    let error = || RateError(text.to_owned());
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = decimals.trim_end_matches('0');
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(decimals) || decimals.len() > DECIMALS {
        return Err(error());
    }
    format!("{whole}{decimals:0<DECIMALS$}").parse().map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_keeps_every_digit_or_is_refused() {
        assert_eq!(pico_per_sec("1.666666666666"), Ok(1_666_666_666_666));
        assert_eq!(pico_per_sec("0"), Ok(0));
        assert_eq!(pico_per_sec("59"), Ok(59_000_000_000_000));
        assert_eq!(pico_per_sec("0.5000000000000000"), Ok(500_000_000_000));
        for bad in ["", ".5", "-1", "1e3", "0.0000000000001", "1.2.3", "99999999999999"] {
            assert!(pico_per_sec(bad).is_err(), "{bad}");
        }
    }
}
