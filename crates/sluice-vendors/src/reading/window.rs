//! Infers the window of a limit from the figures.

use std::time::Duration;

use crate::reported::Reported;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// OpenAI rounds resets to this step: 1 ms.
const RESET_STEP_NANOS: i128 = 1_000_000;

/// What is left is a whole number, rounded down: up to one more may be left.
const REMAINING_STEP_MICROS: i128 = 1_000_000;

/// The window of a limit that flows back evenly. The used part (`limit - remaining`) flows back in `reset`,
/// so the whole limit flows back in `reset * limit / used`. The result is a minute, a day, or `None` if the
/// figures give neither, or both.
///
/// OpenAI's limits are of this kind: one of 10,000 requests comes back in 8.64 s if the limit is per day, and
/// in 6 ms if it is per minute. In the samples on
/// <https://developers.openai.com/api/docs/guides/rate-limits>, requests (60, 59, 1 s) and project tokens
/// (60,000, 57,000, 3 s) give a minute, and tokens (150,000, 149,984, 6 min) give neither.
///
/// What is left is rounded down, so the used part may be smaller by nearly one, but not below one: the call
/// that the reply is for has been counted. A reply of 200, 197 and 16m17.764s
/// (<https://github.com/langchain4j/langchain4j/issues/641>) is a day's: 2.26 requests of 432 s each.
pub(super) fn implied(reported: &Reported) -> Option<Duration> {
    let limit = i128::from(reported.limit?.micros());
    let used = limit - i128::from(reported.remaining?.micros());
    let reset = i128::try_from(reported.reset?.as_nanos()).ok()?;
    if used <= 0 {
        return None;
    }
    let least_used = (used - REMAINING_STEP_MICROS).max(REMAINING_STEP_MICROS).min(used);
    let (shortest, longest) = (reset.checked_mul(limit)? / used, reset.checked_mul(limit)? / least_used);
    // How far rounding of the reset alone may have moved the result. If that is much, any window would fit.
    let rounding = RESET_STEP_NANOS.checked_mul(limit)? / least_used;
    let mut fitting = [MINUTE, DAY].into_iter().filter(|window| {
        let window = i128::try_from(window.as_nanos()).unwrap_or(i128::MAX);
        let tolerance = rounding.max(window / 20);
        rounding <= window / 2 && shortest - tolerance <= window && window <= longest + tolerance
    });
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Amount;

    fn window(limit: i32, remaining: i32, reset: Duration) -> Option<Duration> {
        let amount = |tokens| Some(Amount::from_tokens(tokens));
        implied(&Reported {
            limit: amount(limit),
            remaining: amount(remaining),
            reset: Some(reset),
            ..Reported::default()
        })
    }

    #[test]
    fn a_limit_that_flows_back_evenly_tells_its_window() {
        assert_eq!(window(60, 59, Duration::from_secs(1)), Some(MINUTE));
        assert_eq!(window(60_000, 57_000, Duration::from_secs(3)), Some(MINUTE));
        assert_eq!(window(10_000, 9_999, Duration::from_millis(6)), Some(MINUTE));
        assert_eq!(window(160_000, 159_976, Duration::from_millis(9)), Some(MINUTE));
        assert_eq!(window(10_000, 9_999, Duration::from_millis(8_640)), Some(DAY));
        assert_eq!(window(200, 199, Duration::from_secs(432)), Some(DAY));
    }

    #[test]
    fn what_is_left_is_rounded_down() {
        assert_eq!(window(200, 197, Duration::from_millis(977_764)), Some(DAY));
        assert_eq!(window(500, 498, Duration::from_millis(150)), Some(MINUTE));
        assert_eq!(window(200, 197, Duration::from_millis(400_000)), None, "less than two of a day's");
    }

    #[test]
    fn figures_that_say_neither_say_nothing() {
        assert_eq!(window(150_000, 149_984, Duration::from_secs(360)), None);
        assert_eq!(window(10_000, 10_000, Duration::ZERO), None, "nothing is used");
        assert_eq!(window(10_000, 10_001, Duration::from_millis(6)), None);
        assert_eq!(
            window(150_000_000, 149_999_999, Duration::ZERO),
            None,
            "rounding alone would make it anything"
        );
        assert_eq!(implied(&Reported::default()), None);
    }
}
