//! Whether a bucket adopts a lower limit that its vendor reports, and how low.
//!
//! One mistaken reply ("limit 1") must not stop every process, so a bucket adopts no limit below its floor.

use core::time::Duration;

use super::Bucket;
use crate::amount::Amount;
use crate::limit::Limit;
use crate::vendor_limit::OnLowerLimit;

impl Bucket {
    /// Whether a lower limit that the vendor reports becomes the limit of the bucket.
    #[must_use]
    pub const fn adopts_limit(&self) -> bool {
        self.adopts_limit
    }

    /// Whether the row states this choice, its floor included.
    #[must_use]
    pub fn is_set_to(&self, then: OnLowerLimit) -> bool {
        match then {
            OnLowerLimit::Report => !self.adopts_limit,
            OnLowerLimit::Adopt { at_least } => {
                self.adopts_limit && self.adopt_at_least.as_deref() == Some(&at_least)
            }
        }
    }

    /// Whether the row states a floor for the limits that the bucket adopts.
    #[must_use]
    pub const fn states_floor(&self) -> bool {
        self.adopt_at_least.is_some()
    }

    /// The least limit that the bucket adopts: requests or tokens a minute; calls at once, for concurrency.
    /// If the row does not state it, [`Limit::default_floor`] of the present limit.
    #[must_use]
    pub fn adopt_at_least(&self) -> Amount {
        self.adopt_at_least.as_deref().copied().unwrap_or_else(|| self.whole_limit().default_floor())
    }

    /// The limit that the bucket adopts if the vendor reports `reported` in each `window` (calls at once, for
    /// concurrency): that limit, or the bucket's floor if that is higher. `None` if the bucket adopts no
    /// limit, or if its own is not higher.
    #[must_use]
    pub fn adopted(&self, reported: Amount, window: Duration) -> Option<Limit> {
        let floor = if self.limit.is_concurrent() { self.adopt_at_least() } else { self.floor_in(window) };
        self.whole_limit().lowered_to(reported.max(floor), window).filter(|_| self.adopts_limit)
    }

    /// The floor of a rate bucket in another window, rounded down.
    fn floor_in(&self, window: Duration) -> Amount {
        let micros = i128::try_from(window.as_micros()).unwrap_or(i128::MAX);
        let minute = 60_000_000;
        Amount::clamped(i128::from(self.adopt_at_least().micros()).saturating_mul(micros).div_euclid(minute))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Cost;
    use crate::dimension::Dimension;
    use crate::limit::LimitType;
    use crate::rate::Rate;
    use crate::timestamp::Timestamp;
    use std::string::ToString as _;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn tokens(tokens: i32) -> Amount {
        Amount::from_tokens(tokens)
    }

    fn adopting(limit: Limit, at_least: Option<Amount>) -> Bucket {
        let bucket = Bucket::full(Dimension::new("a#b").unwrap(), limit, Timestamp::from_secs(0));
        Bucket { adopts_limit: true, adopt_at_least: at_least.map(Box::new), ..bucket }
    }

    fn five_hundred() -> Limit {
        Limit::rate(LimitType::Requests, tokens(500), Rate::per(tokens(500), MINUTE).unwrap(), Cost::ONE)
            .unwrap()
    }

    #[test]
    fn a_limit_below_the_floor_is_adopted_down_to_the_floor() {
        for (at_least, expected) in [(None, "0.833333333333"), (Some(tokens(120)), "2")] {
            let bucket = adopting(five_hundred(), at_least);
            let lower = bucket.adopted(tokens(1), MINUTE).unwrap();
            assert_eq!(lower.refill_rate().to_string().get(..12), expected.get(..12), "{at_least:?}");
            let of_a_day = bucket.adopted(tokens(1), DAY).unwrap();
            assert_eq!(of_a_day.refill_rate().to_string().get(..12), expected.get(..12), "{at_least:?}");
        }
        assert_eq!(
            adopting(five_hundred(), None).adopted(tokens(60), MINUTE).unwrap().capacity(),
            tokens(60)
        );
    }

    #[test]
    fn a_bucket_at_its_floor_adopts_nothing_lower() {
        let lowered = adopting(five_hundred(), None).adopted(tokens(1), MINUTE).unwrap();
        for window in [MINUTE, DAY] {
            assert_eq!(adopting(lowered, Some(tokens(50))).adopted(tokens(1), window), None);
        }
        assert_eq!(
            adopting(five_hundred(), Some(tokens(900))).adopted(tokens(1), MINUTE),
            None,
            "a floor above it"
        );
    }

    #[test]
    fn a_bucket_of_slots_adopts_room_for_one_call_at_least() {
        let slots = |slots, cost| Limit::concurrent(tokens(slots), Cost::new(tokens(cost)).unwrap()).unwrap();
        assert_eq!(
            adopting(slots(5, 1), None).adopted(tokens(0), Duration::ZERO).unwrap().capacity(),
            tokens(1)
        );
        assert_eq!(
            adopting(slots(50, 1), None).adopted(tokens(1), Duration::ZERO).unwrap().capacity(),
            tokens(5)
        );
        assert_eq!(
            adopting(slots(50, 8), None).adopted(tokens(1), Duration::ZERO).unwrap().capacity(),
            tokens(8)
        );
        assert_eq!(adopting(slots(1, 1), None).adopted(tokens(0), Duration::ZERO), None);
    }

    #[test]
    fn a_bucket_that_reports_lower_limits_adopts_none() {
        let bucket = Bucket { adopts_limit: false, ..adopting(five_hundred(), None) };
        assert_eq!(bucket.adopted(tokens(60), MINUTE), None);
    }
}
