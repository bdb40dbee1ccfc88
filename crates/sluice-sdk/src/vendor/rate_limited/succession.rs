//! Decides which refusals belong to one trouble, and which follow in succession.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Timestamp;

/// A refusal this soon after a pause means that the pause was too short: the next pause is longer, and the
/// bucket is lowered by more.
const IN_SUCCESSION: Duration = Duration::from_secs(10);

/// The pause after a first refusal that names none; doubled for each refusal that follows in succession.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The first pause after a quota of a day or an account is used up; doubled for each that follows.
pub(super) const FIRST_PAUSE_OF_EXHAUSTED: Duration = Duration::from_secs(60);
const LONGEST_PAUSE_OF_EXHAUSTED: Duration = Duration::from_secs(15 * 60);

/// Kinds of refusal. Each is counted separately, since one kind says nothing about another.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusalKind {
    /// A limit over a time window, without a wait.
    Rate,
    /// A limit over a time window, with a long wait.
    Long,
    /// The vendor is overloaded.
    Busy,
    /// Too many calls at once.
    Concurrency,
    /// A quota of a day or an account is used up.
    Exhausted,
}

impl RefusalKind {
    /// The first pause, and the longest.
    const fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Exhausted => (FIRST_PAUSE_OF_EXHAUSTED, LONGEST_PAUSE_OF_EXHAUSTED),
            _ => (FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// How soon after a pause a refusal is in succession. Nobody may call for long after a quota is used up.
    fn in_succession(self, pause: Duration) -> Duration {
        match self {
            Self::Exhausted => pause.max(IN_SUCCESSION),
            _ => IN_SUCCESSION,
        }
    }
}

/// The refusals of one bucket in this process.
#[derive(Debug, Default)]
pub(crate) struct RateLimited(Mutex<Troubles>);

#[derive(Debug, Default)]
struct Troubles {
    rate: Option<RefusalStreak>,
    long: Option<RefusalStreak>,
    busy: Option<RefusalStreak>,
    concurrency: Option<RefusalStreak>,
    exhausted: Option<RefusalStreak>,
}

/// One or more refusals of a kind that came before the end of the pause that the first of them set.
#[derive(Clone, Copy, Debug)]
struct RefusalStreak {
    pause: Duration,
    until: Timestamp,
    /// This trouble, and those that it followed in succession.
    count: u32,
}

/// How a refusal relates to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedRefusal {
    /// How many troubles it follows in succession; `None` if its trouble is answered already.
    pub(super) before: Option<u32>,
    /// From now to the end of the trouble's pause. If the refusal names a pause, the named pause.
    pub(super) pause: Duration,
}

impl RateLimited {
    /// Counts a refusal at `now` that asks for a pause of `named`. Calls that were in flight together are
    /// refused together: a refusal within the pause of another says nothing new.
    pub(super) fn count(&self, kind: RefusalKind, now: Timestamp, named: Option<Duration>) -> CountedRefusal {
        let mut troubles = self.0.lock();
        let trouble = troubles.of(kind);
        if let Some(last) = trouble.filter(|last| last.holds(now)) {
            let until = named.map_or(last.until, |named| last.until.max(now.after(named)));
            *trouble = Some(RefusalStreak { until, pause: last.pause.max(until.since(now)), ..last });
            return CountedRefusal { before: None, pause: named.unwrap_or(until.since(now)) };
        }
        let before = trouble
            .filter(|last| now.since(last.until) <= kind.in_succession(last.pause))
            .map_or(0, |last| last.count);
        let (first, longest) = kind.pauses();
        let pause = named.unwrap_or(first.saturating_mul(1 << before.min(6)).min(longest));
        *trouble = Some(RefusalStreak { pause, until: now.after(pause), count: before.saturating_add(1) });
        CountedRefusal { before: Some(before), pause }
    }
}

impl Troubles {
    const fn of(&mut self, kind: RefusalKind) -> &mut Option<RefusalStreak> {
        match kind {
            RefusalKind::Rate => &mut self.rate,
            RefusalKind::Long => &mut self.long,
            RefusalKind::Busy => &mut self.busy,
            RefusalKind::Concurrency => &mut self.concurrency,
            RefusalKind::Exhausted => &mut self.exhausted,
        }
    }
}

impl RefusalStreak {
    /// Whether the pause is not over. A pause that began after `now` was set by a clock that has been put
    /// back since, and does not count.
    fn holds(&self, now: Timestamp) -> bool {
        let left = self.until.since(now);
        !left.is_zero() && left <= self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros((1_709_550_000_000 + millis) * 1_000)
    }

    #[test]
    fn what_comes_within_a_pause_is_one_trouble_and_what_comes_soon_after_it_the_next() {
        let refusals = RateLimited::default();
        let count = |millis| {
            let CountedRefusal { before, pause } = refusals.count(RefusalKind::Rate, at(millis), None);
            (before, pause.as_millis())
        };
        assert_eq!([count(0), count(0), count(999)], [(Some(0), 1_000), (None, 1_000), (None, 1)]);
        assert_eq!([count(1_000), count(2_999)], [(Some(1), 2_000), (None, 1)]);
        assert_eq!(count(13_000), (Some(2), 4_000), "ten seconds after the pause");
        assert_eq!(count(27_001), (Some(0), 1_000), "later");
        assert_eq!(
            count(-60_000),
            (Some(1), 2_000),
            "a clock that was put back does not wait for what it was"
        );
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        let refusals = RateLimited::default();
        let mut now = at(0);
        let pauses = [(); 9].map(|()| {
            let CountedRefusal { pause, .. } = refusals.count(RefusalKind::Busy, now, None);
            now = now.after(pause);
            pause.as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(refusals.count(RefusalKind::Rate, now, None).before, Some(0), "each kind apart");
    }

    #[test]
    fn the_longest_pause_that_was_named_holds() {
        let refusals = RateLimited::default();
        let named =
            |millis, secs| refusals.count(RefusalKind::Long, at(millis), Some(Duration::from_secs(secs)));
        assert_eq!(named(0, 30), CountedRefusal { before: Some(0), pause: Duration::from_secs(30) });
        assert_eq!(named(10_000, 60), CountedRefusal { before: None, pause: Duration::from_secs(60) });
        assert_eq!(named(69_999, 6).before, None);
        assert_eq!(named(75_999, 6).before, Some(1));
    }
}
