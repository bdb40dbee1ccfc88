//! The average of drain rates.

use core::time::Duration;

use crate::rate::Rate;

/// The part of the old average that is left after a second, in 2^-32: 0.8^(1/30). A sample weighs 0.2 for
/// every thirty seconds, so samples may be any time apart: if the rate falls to a tenth, two whole samples of
/// five minutes bring the average within a tenth of the new rate. A sweep every fifteen seconds does not make
/// the average jump.
const KEPT: u64 = 4_263_139_338;

const ONE: u64 = 1 << 32;

/// The average after a sample that took `span`, which counts in whole seconds.
pub(super) fn average(before: Rate, sample: Rate, span: Duration) -> Rate {
    let kept = power(KEPT, span.as_secs());
    before.weighted(sample, kept, ONE)
}

/// `base^exponent`, in 2^-32, rounded down.
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let times =
        |left: u64, right: u64| u64::try_from((u128::from(left) * u128::from(right)) >> 32).unwrap_or(ONE);
    let mut product = ONE;
    while exponent > 0 && product > 0 {
        if exponent % 2 == 1 {
            product = times(product, base);
        }
        base = times(base, base);
        exponent /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Amount;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn thirty_seconds_weigh_a_fifth() {
        let after = average(rate("10"), rate("0"), Duration::from_secs(30));
        assert!((rate("7.99999")..=rate("8.00001")).contains(&after), "{after}");
        assert_eq!(average(rate("10"), rate("3"), Duration::ZERO), rate("10"));
        assert_eq!(average(rate("10"), rate("3"), Duration::from_secs(86_400)), rate("3"));
    }

    #[test]
    fn two_sweeps_after_a_vendor_slowed_to_a_tenth_the_rate_is_within_a_tenth() {
        let five_minutes = Duration::from_secs(300);
        let after = average(average(rate("10"), rate("1"), five_minutes), rate("1"), five_minutes);
        assert!((rate("1")..rate("1.11")).contains(&after), "{after}");
    }

    proptest! {
        #[test]
        fn the_average_lies_between_and_does_not_depend_on_where_the_time_is_cut(
            before in 0_u32..1_000_000, sample in 0_u32..1_000_000, first in 1_u64..400, second in 1_u64..400,
        ) {
            let (before, sample) = (rate(&before.to_string()), rate(&sample.to_string()));
            let whole = average(before, sample, Duration::from_secs(first + second));
            let parts = average(average(before, sample, Duration::from_secs(first)), sample, Duration::from_secs(second));
            prop_assert!(whole >= before.min(sample) && whole <= before.max(sample));
            let (low, high) = (whole.min(parts), whole.max(parts));
            prop_assert!(high.weighted(low, 0, 1) == low && high <= low.scaled(Amount::from_tokens(10_001), Amount::from_tokens(10_000)).max(rate("0.01")), "{} and {}", whole, parts);
        }
    }
}
