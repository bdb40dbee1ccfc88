//! The pauses that a vendor asked for, and whether callers kept them.

use std::time::Duration;

use tokio::time::Instant;

/// Calls that were answered with 429 and a `Retry-After`.
#[derive(Debug, Default)]
pub(crate) struct Waits(Vec<(Instant, Instant)>);

impl Waits {
    /// Records that a call that arrived at `now` was asked to come back after `wait`.
    pub(super) fn asked(&mut self, now: Instant, wait: Duration) {
        self.0.push((now, now + wait));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The most further 429s, over all processes, between a 429 and the end of the wait that it asked for.
    /// `counts` says of a further one whether it counts, from when the first and when it came.
    pub(crate) fn most_more(&self, counts: impl Fn(Instant, Instant) -> bool) -> usize {
        let more = |n: usize, first: Instant, until: Instant| {
            self.0[n + 1..].iter().filter(|(at, _)| *at < until && counts(first, *at)).count()
        };
        self.0.iter().enumerate().map(|(n, (at, until))| more(n, *at, *until)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_before_the_end_of_a_wait_is_counted() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        assert_eq!((waits.count(), waits.most_more(|_, _| true)), (0, 0));
        for (millis, wait) in [(0, 1), (999, 1), (1_000, 2), (1_998, 1), (2_999, 1)] {
            waits.asked(start + Duration::from_millis(millis), Duration::from_secs(wait));
        }
        assert_eq!(waits.count(), 5);
        assert_eq!(waits.most_more(|_, _| true), 2, "the second and the third were each followed by two");
        let long_after = |first: Instant, more: Instant| more - first >= Duration::from_millis(999);
        assert_eq!(waits.most_more(long_after), 1, "the first of the two came at once");
    }
}
