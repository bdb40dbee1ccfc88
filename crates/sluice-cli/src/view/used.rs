//! What was taken from a bucket between two readings of its row.

use sluice_sdk::core::{Amount, Bucket, Timestamp};

use super::number::{per_second, tokens};

/// What was taken, minus what was given back, in tokens or slots; never below zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UseBounds {
    /// The lower bound.
    pub(super) least: f64,
    /// The upper bound: what overflowed in between leaves no trace, and may have been taken before that.
    pub(super) most: f64,
}

impl UseBounds {
    /// The use between two readings of one bucket. `None` if they do not show it: the limits changed in
    /// between, or nobody counts what is admitted to the bucket. If nobody wrote, nothing was taken.
    ///
    /// For a rate bucket, the use is what its line lost. If the anchor stays, both readings are on one line,
    /// and the difference of their tokens is the use. If the anchor moved, the line of the first reading is
    /// followed to the new anchor, where the second line begins. Any later instant would give the same
    /// result, unless the bucket fills up: then the later instant no longer shows what has flowed back. No
    /// more than that can have been taken in addition, and it is at most all that flowed back from the first
    /// reading, at `first_at`, to the new anchor.
    pub(super) fn between(first: &Bucket, first_at: Timestamp, last: &Bucket) -> Option<Self> {
        if first.split() != last.split() {
            return None;
        }
        // If replies of the vendor lowered the level, no call of ours took that amount.
        let observed = tokens(last.observed().minus(first.observed()));
        let lines = first.every_line().into_iter().zip(last.every_line());
        let used: Option<Vec<Self>> =
            lines.map(|(first, last)| Self::of_line(&first, first_at, &last)).collect();
        let sum = |sum: Self, one: Self| Self { least: sum.least + one.least, most: sum.most + one.most };
        let used = used?.into_iter().fold(Self { least: 0.0, most: 0.0 }, sum);
        Some(Self { least: (used.least - observed).max(0.0), most: (used.most - observed).max(0.0) })
    }

    /// The same for one line of a bucket: what it lost, whoever lowered it.
    pub(super) fn of_line(first: &Bucket, first_at: Timestamp, last: &Bucket) -> Option<Self> {
        let exactly = |amount: Amount| {
            let least = tokens(amount.max(Amount::ZERO));
            Self { least, most: least }
        };
        if first.limit() != last.limit() {
            return None;
        }
        if first.version() == last.version() {
            return Some(exactly(Amount::ZERO));
        }
        if last.limit().is_concurrent() {
            return Some(exactly(last.admitted()?.minus(first.admitted().unwrap_or_default())));
        }
        let has_moved = first.anchor() != last.anchor();
        let expected = if has_moved { first.level(last.anchor()) } else { first.tokens() };
        let lost = exactly(expected.minus(last.tokens()));
        if !has_moved || expected < first.limit().capacity() {
            return Some(lost);
        }
        let flowed_back =
            per_second(first.limit().refill_rate()) * last.anchor().since(first_at).as_secs_f64();
        let forgotten = tokens(first.level(first_at)) + flowed_back - tokens(expected);
        Some(Self { most: lost.least + forgotten.max(0.0), ..lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample::Row;
    use proptest::prelude::*;

    const CAPACITY: i64 = 100_000_000;
    /// Tokens a second, chosen so that no microsecond is rounded.
    const RATE: i64 = 5;

    /// A rate bucket that changes as callers change it: a spend keeps the anchor; if the bucket is full or
    /// the anchor is old, the anchor moves.
    #[derive(Clone, Copy, Debug)]
    struct RateRow {
        tokens: i64,
        anchor: i64,
        writes: i64,
    }

    impl RateRow {
        fn take(&mut self, cost: i64, at: i64) {
            let line = self.tokens + (at - self.anchor) * RATE;
            (self.tokens, self.anchor) = if line > CAPACITY {
                (CAPACITY - cost, at)
            } else if at - self.anchor > 60_000_000 {
                (line - cost, at)
            } else {
                (self.tokens - cost, self.anchor)
            };
            self.writes += 1;
        }

        fn is_full(self, at: i64) -> bool {
            self.tokens + (at - self.anchor) * RATE > CAPACITY
        }

        fn bucket(self) -> Bucket {
            Row::rate("openai#tpm", CAPACITY, RATE)
                .tokens(self.tokens)
                .anchor(self.anchor)
                .writes(self.writes)
                .bucket()
        }
    }

    /// The first reading is taken at its anchor.
    fn read_at(first: RateRow) -> Timestamp {
        Timestamp::from_micros(first.anchor)
    }

    fn takes() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((1_i64..40_000_000, 0_i64..30_000_000), 1..30)
    }

    proptest! {
        #[test]
        fn what_was_taken_is_told_exactly_unless_the_bucket_was_full(
            tokens in -50_000_000_i64..CAPACITY, takes in takes(),
        ) {
            let first = RateRow { tokens, anchor: 1_000_000, writes: 1 };
            let (mut last, mut at, mut was_full, mut sum) = (first, first.anchor, false, 0);
            for (cost, after) in takes {
                at += after;
                was_full |= last.is_full(at);
                last.take(cost, at);
                sum += cost;
            }
            let used = UseBounds::between(&first.bucket(), read_at(first), &last.bucket()).unwrap();
            let sum = super::tokens(Amount::from_micros(sum));
            prop_assert!(used.least <= sum + 1e-6 && sum <= used.most + 1e-6, "{used:?} of {sum}");
            prop_assert!(used.least == used.most || was_full, "{used:?} of {sum}");
        }

        /// Tokens were given back, or added by hand.
        #[test]
        fn it_is_never_below_zero(first in -CAPACITY..CAPACITY, last in -CAPACITY..CAPACITY, later in 0_i64..1_000_000_000) {
            let first = RateRow { tokens: first, anchor: 0, writes: 1 };
            let last = RateRow { tokens: last, anchor: later, writes: 2 };
            let used = UseBounds::between(&first.bucket(), read_at(first), &last.bucket()).unwrap();
            prop_assert!(used.least >= 0.0 && used.most >= used.least);
        }
    }

    /// At the instant of the survey, a quarter of what the last call took has flowed back.
    #[test]
    fn a_full_bucket_shows_the_call_that_was_made_since() {
        let first = RateRow { tokens: CAPACITY, anchor: 0, writes: 1 };
        let mut last = first;
        last.take(20_000_000, 5_000_000);
        let used = UseBounds::between(&first.bucket(), Timestamp::from_secs(4), &last.bucket()).unwrap();
        assert_eq!((used.least, used.most), (20.0, 25.0), "five overflowed from the reading to the call");
    }

    #[test]
    fn what_a_vendor_lowered_was_not_used() {
        let first = Row::rate("openai#tpm", CAPACITY, RATE).tokens(90_000_000);
        let last = first.clone().tokens(50_000_000).number("observed", "30").writes(1);
        let used = UseBounds::between(&first.bucket(), Timestamp::from_secs(0), &last.bucket()).unwrap();
        assert_eq!((used.least, used.most), (10.0, 10.0));
    }

    /// A lower capacity removes tokens that nobody used.
    #[test]
    fn a_change_of_limits_says_nothing_of_use() {
        let (first, last) =
            (Row::rate("openai#tpm", CAPACITY, RATE), Row::rate("openai#tpm", CAPACITY / 2, RATE).writes(1));
        assert_eq!(UseBounds::between(&first.bucket(), Timestamp::from_secs(0), &last.bucket()), None);
    }

    #[test]
    fn of_slots_the_grants_count_and_not_the_level() {
        let slots = |free: i64, writes| {
            Row::slots("elevenlabs#concurrent", 5).tokens(free * 1_000_000).writes(writes)
        };
        let between = |first: &Row, last: &Row| {
            UseBounds::between(&first.bucket(), Timestamp::from_secs(0), &last.bucket())
                .map(|used| (used.least, used.most))
        };
        let granted = |slots: f64| Some((slots, slots));
        let (first, last) = (slots(2, 90).number("admitted", "40"), slots(2, 104).number("admitted", "47"));
        assert_eq!(between(&first, &last), granted(7.0));
        assert_eq!(
            between(&slots(5, 0), &slots(3, 2).number("admitted", "2")),
            granted(2.0),
            "the first were granted"
        );
        assert_eq!(between(&slots(5, 0), &slots(3, 2)), None, "nobody counts them");
        assert_eq!(between(&slots(5, 2), &slots(5, 2)), granted(0.0), "nobody wrote");
    }
}
