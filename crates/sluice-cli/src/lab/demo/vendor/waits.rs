//! The pauses that a vendor asked for, and whether callers kept them.

use std::time::Duration;

use tokio::time::Instant;

/// Calls that were answered with 429 and a `Retry-After`, and all calls that came.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// From when to when a pause was asked for.
    pauses: Vec<(Instant, Instant)>,
    calls: Vec<Instant>,
}

impl Waits {
    /// Records that a call came, whatever becomes of it.
    pub(super) fn came(&mut self, now: Instant) {
        self.calls.push(now);
    }

    /// Records that a call that arrived at `now` was asked to come back after `wait`.
    pub(super) fn asked(&mut self, now: Instant, wait: Duration) {
        self.pauses.push((now, now + wait));
    }

    pub(crate) fn count(&self) -> usize {
        self.pauses.len()
    }

    /// How long after a 429 the last call came that came before the end of the pause that it asked for: the
    /// longest such time, over all processes. `counted` is how much of the time between two instants counts.
    pub(crate) fn kept_within(&self, counted: impl Fn(Instant, Instant) -> Duration) -> Duration {
        let within = |(from, until): &(Instant, Instant)| {
            let last = self.calls.iter().filter(|call| *call > from && *call < until).max()?;
            Some(counted(*from, *last))
        };
        self.pauses.iter().filter_map(within).max().unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_before_the_end_of_a_pause_counts() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let all = |from: Instant, to: Instant| to - from;
        assert_eq!((waits.count(), waits.kept_within(all)), (0, Duration::ZERO));
        for millis in [0, 70, 200, 1_000, 1_100] {
            waits.came(at(millis));
        }
        waits.asked(at(0), Duration::from_secs(1));
        assert_eq!(waits.kept_within(all), Duration::from_millis(200), "the fourth came after the pause");
        waits.asked(at(70), Duration::from_secs(1));
        assert_eq!(waits.kept_within(all), Duration::from_millis(930), "but within that of the second");
        assert_eq!(waits.count(), 2);
        let half = |from: Instant, to: Instant| (to - from) / 2;
        assert_eq!(waits.kept_within(half), Duration::from_millis(465));
    }
}
