//! Warnings about limits that are valid but doubtful.

use core::time::Duration;

use super::Limit;
use crate::amount::Amount;
use crate::timestamp::CORRECTED_CLOCK_ERROR;

/// What to reconsider about a limit. The limit is applied nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitWarning {
    /// A rate bucket has room for one call, and is full again before clocks agree.
    #[error(
        "capacity {capacity} has room for one call and is full again after {} ms, but clocks may differ by {} ms: while a caller whose \
         clock is ahead uses the bucket, a caller whose clock is behind may be refused each time; give the bucket the capacity of \
         two calls",
        fills_in.as_millis(), CORRECTED_CLOCK_ERROR.as_millis()
    )]
    TighterThanClocks {
        /// The capacity.
        capacity: Amount,
        /// C / R.
        fills_in: Duration,
    },
}

impl Limit {
    /// Returns what is doubtful about the limit. A write on a full bucket with room for two calls leaves one
    /// call, for any caller and any clock. With room for one call it leaves nothing, and the next call is
    /// available C / R after the anchor: a caller whose clock lags by more than C / R always finds it taken.
    #[must_use]
    pub fn warning(&self) -> Option<LimitWarning> {
        let call = self.cost_per_call.amount();
        let has_room_for_two = self.capacity >= call.plus(call);
        let fills_in =
            self.rate.time_for(self.capacity).filter(|_| !self.is_concurrent() && !has_room_for_two)?;
        let capacity = self.capacity;
        (fills_in < CORRECTED_CLOCK_ERROR).then_some(LimitWarning::TighterThanClocks { capacity, fills_in })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Cost;
    use crate::limit::LimitType;

    fn requests(capacity: i32, rate: &str) -> Limit {
        Limit::rate(LimitType::Requests, Amount::from_tokens(capacity), rate.parse().unwrap(), Cost::ONE)
            .unwrap()
    }

    #[test]
    fn a_bucket_with_room_for_one_call_that_fills_before_clocks_agree_is_warned_of() {
        let warning = requests(1, "20").warning().unwrap();
        assert_eq!(
            std::format!("{warning}"),
            "capacity 1 has room for one call and is full again after 50 ms, but clocks may differ by 100 ms: while a caller whose \
             clock is ahead uses the bucket, a caller whose clock is behind may be refused each time; give the bucket the capacity of \
             two calls"
        );
        assert_eq!(requests(1, "10").warning(), None, "100 ms");
        assert_eq!(requests(2, "1000").warning(), None, "room for two");
        assert_eq!(Limit::concurrent(Amount::from_tokens(1), Cost::ONE).unwrap().warning(), None);
    }
}
