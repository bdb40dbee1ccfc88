//! Buckets for vendors that count calls in windows of time.

use core::time::Duration;

use super::{InvalidLimit, Limit, LimitType};
use crate::amount::{Amount, Cost};
use crate::rate::Rate;
use crate::timestamp::CORRECTED_CLOCK_ERROR;

/// A vendor's limit on what arrives in any window of time, and what lies between the start of a call and the
/// vendor's count.
///
/// A vendor whose counter starts anew each minute has the same limit: a bucket does not know when the minute
/// of the vendor begins, so each window may be one that the vendor counts.
///
/// ```
/// use core::time::Duration;
/// use sluice_core::{Amount, AnyWindow, Cost, Limit, LimitType};
///
/// let count = AnyWindow {
///     amount: Amount::from_tokens(600),
///     window: Duration::from_secs(10),
///     arrival_jitter: Duration::from_millis(170),
///     clock_error: Duration::ZERO,
/// };
/// let limit = Limit::in_any_window(LimitType::Requests, &count, Amount::from_tokens(2), Cost::ONE)?;
/// assert_eq!(limit.refill_rate().to_string(), "58.800393313667"); // 598 / 10.17
/// # Ok::<(), sluice_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyWindow {
    /// N: requests or tokens that the vendor allows in each window.
    pub amount: Amount,
    /// W: the window.
    pub window: Duration,
    /// j: the longest time from a call's start to its arrival at the vendor.
    pub arrival_jitter: Duration,
    /// e: the largest error of a caller's clock.
    pub clock_error: Duration,
}

/// The longest usual request to DynamoDB from within its Region. An assumption: `sluice doctor` measures it,
/// and a fleet further away needs a larger burst.
const SLOW_REQUEST: Duration = Duration::from_millis(20);

impl AnyWindow {
    /// W + j + 2e, rounded up: calls that arrive within the window have started within this span, by clocks
    /// that differ.
    #[must_use]
    pub fn starts_within(&self) -> Duration {
        let errors = self.clock_error.saturating_mul(2);
        let span = self.window.saturating_add(self.arrival_jitter).saturating_add(errors);
        match span.subsec_nanos() % 1_000 {
            0 => span,
            over => span.saturating_add(Duration::from_nanos((1_000 - over).into())),
        }
    }

    /// The largest refill rate R with `burst + R * (W + j + 2e) <= N`. Zero if the burst leaves no room,
    /// `None` if a `Rate` cannot be that high.
    fn rate_beside(&self, burst: Amount) -> Option<Rate> {
        let flows_back = self.amount.minus(burst);
        if flows_back <= Amount::ZERO {
            Some(Rate::ZERO)
        } else {
            Rate::per(flows_back, self.starts_within())
        }
    }

    /// The burst of a bucket for which nobody chose one. It has room for one call; for two, if a call flows
    /// back before clocks agree ([`Limit::warning`]); and for twice the refill during a request to DynamoDB,
    /// so that faster processes leave tokens to a slower one. Rounded up to whole tokens. A larger burst
    /// would leave a lower refill rate.
    #[must_use]
    pub fn burst(&self, cost_per_call: Cost) -> Amount {
        let call = cost_per_call.amount();
        let rate = self.rate_beside(Amount::ZERO).unwrap_or(Rate::MAX);
        let calls = if rate.accrued_ceil(CORRECTED_CLOCK_ERROR) > call { call.plus(call) } else { call };
        let during_a_request = rate.accrued_ceil(SLOW_REQUEST);
        let slow = during_a_request.plus(during_a_request);
        let whole = slow.whole();
        calls.max(if slow == whole { whole } else { whole.plus(Amount::from_tokens(1)) })
    }
}

impl Limit {
    /// The bucket with the given `burst` from which no more than the vendor counts can start: refill rate R
    /// is the largest with `burst + R * (W + j + 2e) <= N`, rounded down. The bound is proved in `line.rs`.
    ///
    /// # Errors
    /// [`InvalidLimit::Burst`] if the burst leaves nothing to flow back, [`InvalidLimit::TooFast`] if more
    /// flows back than a [`Rate`] can hold; else as [`Limit::rate`].
    pub fn in_any_window(
        limit_type: LimitType,
        count: &AnyWindow,
        burst: Amount,
        cost_per_call: Cost,
    ) -> Result<Self, InvalidLimit> {
        match count.rate_beside(burst) {
            None => Err(InvalidLimit::TooFast {
                amount: count.amount.minus(burst),
                window: count.starts_within(),
            }),
            Some(rate) if rate.is_zero() && limit_type != LimitType::Concurrent => {
                Err(InvalidLimit::Burst { burst, amount: count.amount })
            }
            Some(rate) => Self::rate(limit_type, burst, rate, cost_per_call),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;
    use proptest::prelude::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn count(amount: i32, window: Duration, jitter: Duration, clock_error: Duration) -> AnyWindow {
        AnyWindow { amount: Amount::from_tokens(amount), window, arrival_jitter: jitter, clock_error }
    }

    fn rate_of(count: &AnyWindow, burst: i32) -> Result<Rate, InvalidLimit> {
        let limit = Limit::in_any_window(LimitType::Requests, count, Amount::from_tokens(burst), Cost::ONE)?;
        Ok(limit.refill_rate())
    }

    /// The figures of `docs/buckets.md`.
    #[test]
    fn six_hundred_in_any_ten_seconds() {
        let rate = |jitter, error| {
            rate_of(&count(600, millis(10_000), millis(jitter), error), 2).unwrap().to_string()
        };
        assert_eq!(rate(170, Duration::ZERO), "58.800393313667");
        assert_eq!(rate(170, CORRECTED_CLOCK_ERROR), "57.666345226615");
        assert_eq!(rate(500, CORRECTED_CLOCK_ERROR), "55.887850467289");
    }

    #[test]
    fn a_burst_that_leaves_nothing_to_flow_back_is_an_error() {
        let one = count(1, millis(1_000), Duration::ZERO, Duration::ZERO);
        let error = rate_of(&one, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a burst of 1 leaves nothing of the limit 1 to flow back: choose a burst below 1"
        );
        assert!(rate_of(&one, 2).is_err());
    }

    #[test]
    fn a_rate_that_is_too_high_is_an_error_of_its_own() {
        let count = |window| count(i32::MAX, window, Duration::ZERO, Duration::ZERO);
        assert_eq!(
            rate_of(&count(millis(100)), 1).unwrap_err().to_string(),
            "2147483646 in 100ms is above the highest refill rate, 9223372.036854775807 a second: state a longer window"
        );
        assert!(rate_of(&count(Duration::ZERO), 1).is_err());
        let burst = count(millis(100)).burst(Cost::ONE);
        assert_eq!(burst.to_string(), "368935", "twice what the highest rate gives in 20 ms");
    }

    #[test]
    fn a_burst_that_nobody_chose_has_room_for_a_call_and_for_slow_requests() {
        let burst =
            |amount, window, cost| count(amount, window, millis(0), millis(0)).burst(cost).to_string();
        let minute = Duration::from_secs(60);
        assert_eq!(burst(3, minute, Cost::ONE), "1");
        assert_eq!(burst(600, minute, Cost::ONE), "1", "a call flows back in 100 ms");
        assert_eq!(burst(601, minute, Cost::ONE), "2");
        assert_eq!(burst(600, millis(10_000), Cost::ONE), "3", "60 a second for 40 ms");
        assert_eq!(burst(600, millis(10_000), Cost::new(Amount::from_tokens(7)).unwrap()), "7");
        assert_eq!(burst(600, millis(1_000), Cost::ONE), "24");
    }

    prop_compose! {
        fn counts()(
            amount in 1_i64..1_000_000_000_000_000, window in 1_u64..90_000_000_000_000_000,
            jitter in 0_u64..10_000_000_000, clock_error in 0_u64..2_000_000_000,
        ) -> AnyWindow {
            AnyWindow {
                amount: Amount::from_micros(amount),
                window: Duration::from_nanos(window),
                arrival_jitter: Duration::from_nanos(jitter),
                clock_error: Duration::from_nanos(clock_error),
            }
        }
    }

    /// `burst + rate * (W + j + 2e)` in units of 10^-21 tokens, from texts and nanoseconds: not by the way
    /// that the rate was found.
    fn most_in_a_window(count: &AnyWindow, burst: Amount, pico_a_second: i128) -> i128 {
        let span = count.window + count.arrival_jitter + 2 * count.clock_error;
        i128::from(burst.micros()) * 1_000_000_000_000_000
            + pico_a_second * i128::try_from(span.as_nanos()).unwrap()
    }

    fn pico(rate: Rate) -> i128 {
        let text = rate.to_string();
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        whole.parse::<i128>().unwrap() * 1_000_000_000_000
            + std::format!("{decimals:0<12}").parse::<i128>().unwrap()
    }

    proptest! {
        #[test]
        fn no_window_admits_more_than_the_vendor_counts_and_a_higher_rate_would(
            count in counts(), part in 0_u32..=1_000,
        ) {
            let burst = count.amount.fraction(part, 1_000);
            prop_assume!(burst > Amount::ZERO);
            let cost = Cost::new(Amount::from_micros(1)).unwrap();
            let allowed = i128::from(count.amount.micros()) * 1_000_000_000_000_000;
            match Limit::in_any_window(LimitType::Requests, &count, burst, cost) {
                Ok(limit) => {
                    prop_assert_eq!(limit.capacity(), burst);
                    let rate = pico(limit.refill_rate());
                    prop_assert!(most_in_a_window(&count, burst, rate) <= allowed);
                    // Windows are rounded up to microseconds, so the next rate is one that breaks the rounded
                    // bound.
                    let next = most_in_a_window(&count, burst, rate + 1) + (rate + 1) * 999;
                    prop_assert!(next > allowed, "{next} <= {allowed}");
                    if count.starts_within() == count.window + count.arrival_jitter + 2 * count.clock_error {
                        prop_assert!(most_in_a_window(&count, burst, rate + 1) > allowed);
                    }
                }
                // Not even the lowest rate fits, or no `Rate` is large enough.
                Err(error) => {
                    let least = most_in_a_window(&count, burst, 1) + 999;
                    let most = most_in_a_window(&count, burst, i64::MAX.into());
                    prop_assert!(least > allowed || most < allowed, "{error}");
                }
            }
        }

        #[test]
        fn the_burst_that_nobody_chose_needs_no_warning_and_leaves_a_rate(
            amount in 2_i32..1_000_000_000, window in 1_u64..100_000_000, jitter in 0_u64..10_000,
        ) {
            let count = count(amount, millis(window), millis(jitter), CORRECTED_CLOCK_ERROR);
            let limit = Limit::in_any_window(LimitType::Requests, &count, count.burst(Cost::ONE), Cost::ONE);
            match limit {
                Ok(limit) => prop_assert_eq!(limit.warning(), None),
                // More than a `Rate` can hold: 9.2 million tokens a second.
                Err(error @ InvalidLimit::TooFast { .. }) => {
                    let least = i128::from(amount) - i128::from(count.burst(Cost::ONE).micros()) / 1_000_000;
                    let span_micros = i128::try_from(count.starts_within().as_micros()).unwrap();
                    prop_assert!(least * 1_000_000 >= 9_223_372 * span_micros, "{error}");
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}
