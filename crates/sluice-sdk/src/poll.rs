//! How often a process looks whose callers wait: pure but for the draw. What the fleet reads for waiting stays below some 500
//! units a second and bucket, however many processes wait.

use std::time::Duration;

use crate::outcome::RetryReason;
use crate::retry::{Backoff, random_up_to};
use crate::waiting::Setback;

/// The shortest pause between two looks at a full bucket.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest, while a cool-down lasts: it may be called off.
const LONGEST_COOL_DOWN: Duration = Duration::from_secs(1);

/// The longest pause grows by this for each process that waits for the bucket: its looks come every 2 ms times their number in the
/// mean, so that all of them are 500 a second. Larger finds a slot later that another process freed; smaller costs more units, and
/// a key serves 3,000 a second.
const FOR_EACH_PROCESS: Duration = Duration::from_millis(4);

/// The pauses after looks that were throttled, in eighths: as they are, ...
const AS_IT_IS: u32 = 8;
/// ... and four times as long at most. Longer would leave a slot unseen for more than half a second after the throttling.
const STRETCHED: u32 = 32;

/// The pauses of those who wait in one process: ever longer, from the last success on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    looks: u32,
    /// Setbacks that were none of the bucket's, one after the other.
    setbacks: u32,
    /// Eighths, by which pauses are longer than they would be: doubled by each throttled look, and back gradually.
    stretch: u32,
}

impl Default for Poll {
    fn default() -> Self {
        Self { looks: 0, setbacks: 0, stretch: AS_IT_IS }
    }
}

impl Poll {
    /// The next pause, of callers who wait for `why`, in one of `crowd` processes that wait for the bucket, as far as is known.
    pub(crate) fn next(&mut self, why: &Setback, crowd: Option<u32>) -> Duration {
        let longest = self.longest(why, crowd);
        match why {
            // Its end is known.
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => retry.wait.min(longest),
            _ => Duration::from_micros(random_up_to(u64::try_from(longest.as_micros()).unwrap_or(u64::MAX))),
        }
        .max(SHORTEST)
    }

    /// Somebody was served.
    pub(crate) const fn succeeded(&mut self) {
        (self.looks, self.setbacks) = (0, 0);
    }

    /// The longest that the pause may be; it is half of that in the mean.
    fn longest(&mut self, why: &Setback, crowd: Option<u32>) -> Duration {
        let (looks, setbacks) = (self.looks, self.setbacks);
        let is_contended = matches!(why, Setback::Refused(retry) if retry.reason == RetryReason::Contended);
        let is_throttled = matches!(why, Setback::Throttled(_));
        self.looks = looks.saturating_add(1);
        self.setbacks = if is_contended || matches!(why, Setback::Out(_)) { setbacks.saturating_add(1) } else { 0 };
        self.stretch = match is_throttled {
            true => (self.stretch * 2).min(STRETCHED),
            false => (self.stretch - self.stretch / 4).max(AS_IT_IS),
        };
        let alone = match why {
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => LONGEST_COOL_DOWN,
            // Many are at it: whoever gives back must get through.
            _ if is_contended => Backoff::CROWD.ceiling(setbacks),
            Setback::Out(_) | Setback::Final(_) => Backoff::CROWD.ceiling(setbacks),
            Setback::Refused(_) | Setback::Throttled(_) => Backoff::POLL.ceiling(looks),
        };
        alone.max(FOR_EACH_PROCESS * crowd.unwrap_or(1)) * self.stretch / AS_IT_IS
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::Dimension;

    use super::*;
    use crate::outcome::RetryIn;

    fn refused(reason: RetryReason) -> RetryIn {
        RetryIn::new(Duration::from_secs(1), Dimension::new("a#b").unwrap(), reason)
    }

    fn full() -> Setback {
        Setback::Refused(refused(RetryReason::NoFreeSlot))
    }

    fn throttled() -> Setback {
        Setback::Throttled(refused(RetryReason::Contended))
    }

    /// In milliseconds.
    fn longest(poll: &mut Poll, why: &Setback, crowd: Option<u32>) -> u128 {
        poll.longest(why, crowd).as_millis()
    }

    #[test]
    fn a_process_alone_looks_as_often_whether_it_knows_that_it_is_or_not() {
        for crowd in [None, Some(0), Some(1), Some(25)] {
            let mut poll = Poll::default();
            assert_eq!(
                [0; 4].map(|_| longest(&mut poll, &full(), crowd)),
                [25, 50, 100, 100].map(|ms| { if crowd == Some(25) { 100 } else { ms } })
            );
        }
    }

    #[test]
    fn all_processes_together_look_500_times_a_second_at_most() {
        for crowd in [26, 100, 500, 10_000] {
            let mut poll = Poll::default();
            let mean_ms = longest(&mut poll, &full(), Some(crowd)) / 2;
            assert_eq!(u128::from(crowd) * 1_000 / mean_ms, 500, "{crowd}");
        }
    }

    #[test]
    fn a_throttled_look_doubles_the_pause_to_four_times_and_it_comes_back_gradually() {
        let mut poll = Poll { looks: 9, ..Poll::default() };
        assert_eq!([0; 4].map(|_| longest(&mut poll, &throttled(), None)), [200, 400, 400, 400]);
        assert_eq!([0; 7].map(|_| longest(&mut poll, &full(), None)), [300, 225, 175, 137, 112, 100, 100]);
    }

    #[test]
    fn a_cool_down_is_waited_for_a_second_at_a_time() {
        let mut retry = refused(RetryReason::CoolingDown);
        retry.wait = Duration::from_millis(30);
        let why = Setback::Refused(retry);
        assert_eq!(Poll::default().next(&why, None).as_millis(), 30);
        assert_eq!(longest(&mut Poll::default(), &why, None), 1_000);
    }
}
