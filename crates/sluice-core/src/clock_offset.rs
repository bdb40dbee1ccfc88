//! The offset between DynamoDB's clock and this machine's clock, from the `Date` of replies.

use core::time::Duration;

use crate::timestamp::{CLOCK_ERROR, Timestamp, whole_micros};

/// Bounds of DynamoDB's clock minus this machine's, in microseconds; above zero, this machine is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    lower: i64,
    upper: i64,
}

/// `Date` is cut to whole seconds: DynamoDB's clock showed that time, or up to this much later.
const DATE_STEP: Duration = Duration::from_secs(1);

/// The maximum error of each DynamoDB host against the hosts' common time. A smaller value lets two hosts
/// contradict each other, and then everything known is forgotten; a larger value makes the offset less exact.
const HOST_ERROR: Duration = Duration::from_millis(10);

/// How long replies narrow the bounds before the older half is forgotten. A longer time is more exact, and
/// keeps outdated bounds for longer after a clock was set by less than the bounds can show.
const KEPT: Duration = Duration::from_secs(60);

impl ClockOffset {
    /// The bounds that follow from a reply: its request left at `sent` and the reply arrived at `received`,
    /// by this machine; DynamoDB wrote `date` in between. `None` if this clock was set back meanwhile.
    #[must_use]
    pub fn of_reply(date: Timestamp, sent: Timestamp, received: Timestamp) -> Option<Self> {
        let lower = date.before(HOST_ERROR).micros_since(received);
        let upper = date.after(DATE_STEP + HOST_ERROR).micros_since(sent);
        (received >= sent).then_some(Self { lower, upper })
    }

    /// The bounds that satisfy both; `None` if they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let (lower, upper) = (self.lower.max(other.lower), self.upper.min(other.upper));
        (lower <= upper).then_some(Self { lower, upper })
    }

    /// The offset is at least this.
    #[must_use]
    pub const fn lower_micros(self) -> i64 {
        self.lower
    }

    /// The offset is at most this.
    #[must_use]
    pub const fn upper_micros(self) -> i64 {
        self.upper
    }

    /// The possible offset that is nearest to zero: the part of the offset that is certain.
    #[must_use]
    pub fn micros(self) -> i64 {
        0.clamp(self.lower, self.upper)
    }

    /// Returns the lowest and the highest possible offset, in microseconds, that are within [`CLOCK_ERROR`]
    /// of every possible one: with any offset between, this machine shows DynamoDB's time to that error.
    /// `None` if the bounds are too far apart. After one reply, they are apart by one second, twice the error
    /// of a host, and the round trip: one reply within 2.98 s is enough.
    #[must_use]
    pub fn usable_micros(self) -> Option<(i64, i64)> {
        let error = whole_micros(CLOCK_ERROR);
        let lowest = self.lower.max(self.upper.saturating_sub(error));
        let highest = self.upper.min(self.lower.saturating_add(error));
        (lowest <= highest).then_some((lowest, highest))
    }

    /// The same bounds for a clock that is `micros` ahead of this one.
    #[must_use]
    pub const fn of_clock_ahead_by(self, micros: i64) -> Self {
        Self { lower: self.lower.saturating_sub(micros), upper: self.upper.saturating_sub(micros) }
    }

    /// [`micros`](Self::micros) in milliseconds, rounded towards zero.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.micros() / 1_000
    }

    /// Whether the clocks are certainly further apart than `span`.
    #[must_use]
    pub fn exceeds(self, span: Duration) -> bool {
        u128::from(self.micros().unsigned_abs()) > span.as_micros()
    }
}

/// The bounds that follow from all replies of the last one to two minutes. They are as narrow as the quickest
/// of these replies and the difference between hosts allow.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffsetEstimate {
    old: Option<ClockOffset>,
    young: Option<(Timestamp, ClockOffset)>,
}

impl OffsetEstimate {
    /// Takes in a reply that arrived at `now`. If it contradicts earlier replies, a clock was set, or runs at
    /// another speed: everything known is forgotten.
    pub fn note(&mut self, reply: ClockOffset, now: Timestamp) {
        let kept = whole_micros(KEPT);
        let (since, young) = match self.young {
            Some((since, young)) if (0..kept).contains(&now.micros_since(since)) => (since, young.and(reply)),
            // This half is full. A clock that went back also ends it.
            Some((_, young)) => {
                self.old = Some(young);
                (now, Some(reply))
            }
            None => (now, Some(reply)),
        };
        let together = young.filter(|young| self.old.is_none_or(|old| old.and(*young).is_some()));
        if together.is_none() {
            self.old = None;
        }
        self.young = Some(together.map_or((now, reply), |young| (since, young)));
    }

    /// Whether `reply` contradicts what is known.
    #[must_use]
    pub fn is_contradicted_by(&self, reply: ClockOffset) -> bool {
        self.offset().is_some_and(|known| known.and(reply).is_none())
    }

    /// The known bounds; `None` before the first reply.
    #[must_use]
    pub fn offset(&self) -> Option<ClockOffset> {
        let (_, young) = self.young?;
        self.old.map_or(Some(young), |old| old.and(young))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const START: i64 = 1_709_550_000_000_000;

    /// A reply at `at` of true time, by a machine whose clock is off by `-offset`.
    fn reply(at: i64, there: i64, back: i64, offset: i64) -> (ClockOffset, Timestamp) {
        let ours = |at: i64| Timestamp::from_micros(START + at - offset);
        let theirs = START + at + there;
        let date = Timestamp::from_micros(theirs - theirs.rem_euclid(1_000_000));
        let received = ours(at + there + back);
        (ClockOffset::of_reply(date, ours(at), received).unwrap(), received)
    }

    fn replies() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
        proptest::collection::vec((0..5_000_000_i64, 0..400_000_i64, 0..400_000_i64), 1..80)
    }

    proptest! {
        #[test]
        fn the_bounds_hold_the_true_offset_and_the_estimate_never_overstates_it(
            replies in replies(), offset in -10_000_000..10_000_000_i64,
        ) {
            let (mut estimate, mut at) = (OffsetEstimate::default(), 0);
            for (pause, there, back) in replies {
                at += pause;
                let (reply, now) = reply(at, there, back, offset);
                estimate.note(reply, now);
                let known = estimate.offset().unwrap();
                prop_assert!(known.lower_micros() <= offset && offset <= known.upper_micros(), "{known:?} {offset}");
                prop_assert!(known.micros().abs() <= offset.abs() && known.micros().signum() * offset.signum() >= 0);
                prop_assert!(known.upper_micros() - known.lower_micros() <= 1_020_000 + there + back);
                let (lowest, highest) = known.usable_micros().unwrap();
                let error = i64::try_from(CLOCK_ERROR.as_micros()).unwrap();
                prop_assert!(lowest >= offset - error && highest <= offset + error);
                at += there + back;
            }
        }

        #[test]
        fn a_clock_that_was_set_is_known_again_two_minutes_later_at_most(
            before in replies(), offset in -10_000_000..10_000_000_i64, set_by in -10_000_000..10_000_000_i64,
        ) {
            let (mut estimate, mut at) = (OffsetEstimate::default(), 0);
            for (pause, there, back) in before {
                at += pause;
                let (reply, now) = reply(at, there, back, offset);
                estimate.note(reply, now);
            }
            // A reply every 5 s, for both halves' time and the time by which the clock was set back.
            let offset = offset + set_by;
            for _ in 0..28 {
                at += 5_000_000;
                let (reply, now) = reply(at, 1_000, 1_000, offset);
                estimate.note(reply, now);
            }
            let known = estimate.offset().unwrap();
            prop_assert!(known.lower_micros() <= offset && offset <= known.upper_micros(), "{known:?} {offset}");
        }
    }

    #[test]
    fn one_reply_bounds_the_offset_to_a_second_what_hosts_differ_by_and_the_way() {
        let at = |micros| Timestamp::from_micros(START + micros);
        let said = ClockOffset::of_reply(at(0), at(200_000), at(300_000)).unwrap();
        assert_eq!((said.lower_micros(), said.upper_micros(), said.micros()), (-310_000, 810_000, 0));
        let behind = ClockOffset::of_reply(at(3_000_000), at(200_000), at(300_000)).unwrap();
        assert_eq!((behind.micros(), behind.millis()), (2_690_000, 2_690));
        assert!(behind.exceeds(Duration::from_secs(2)) && !behind.exceeds(Duration::from_micros(2_690_000)));
        assert_eq!(ClockOffset::of_reply(at(0), at(300_000), at(200_000)), None, "set back on the way");
    }

    #[test]
    fn one_reply_within_three_seconds_tells_the_time_to_two_seconds() {
        let at = |micros| Timestamp::from_micros(START + micros);
        let of = |trip| ClockOffset::of_reply(at(240_000_000), at(0), at(trip)).unwrap();
        assert_eq!(of(2_980_000).usable_micros(), Some((239_010_000, 239_010_000)));
        assert_eq!(of(2_980_001).usable_micros(), None);
        let quick = of(500_000);
        assert_eq!(quick.usable_micros(), Some((quick.lower_micros(), quick.upper_micros())));
        assert_eq!(quick.of_clock_ahead_by(240_000_000).usable_micros(), Some((-510_000, 1_010_000)));
    }

    #[test]
    fn replies_at_different_parts_of_a_second_narrow_the_bounds_to_the_way() {
        let mut estimate = OffsetEstimate::default();
        for at in (0..20_000_000).step_by(330_000) {
            let (reply, now) = reply(at, 1_000, 1_000, 0);
            estimate.note(reply, now);
        }
        let known = estimate.offset().unwrap();
        assert!(known.upper_micros() - known.lower_micros() <= 50_000, "{known:?}");
    }

    /// Two hosts 19 ms apart answer quickly and in turn. Their replies do not contradict each other.
    #[test]
    fn hosts_that_differ_by_some_milliseconds_leave_the_bounds_narrow() {
        let mut estimate = OffsetEstimate::default();
        for (turn, at) in (0..60_000_000).step_by(37_000).enumerate() {
            let host = if turn % 2 == 0 { -9_500 } else { 9_500 };
            let (reply, now) = reply(at, 500, 500, host);
            // Times are by a machine whose clock shows the hosts' common time.
            let now = Timestamp::from_micros(now.micros() + host);
            estimate.note(reply, now);
            if turn > 200 {
                let known = estimate.offset().unwrap();
                assert!(known.lower_micros() <= 0 && known.upper_micros() >= 0, "{known:?}");
                assert!(known.upper_micros() - known.lower_micros() <= 60_000, "{known:?}");
            }
        }
    }
}
