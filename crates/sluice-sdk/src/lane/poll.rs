//! How often a process looks at a bucket for its callers. Pure, except for the random draw and the time left;
//! and the pauses that the return of DynamoDB ends. The looks of up to 500 processes that wait cost about 500
//! units a second and bucket, together.

use std::time::Duration;

use sluice_core::Limit;
use sluice_table::{Backoff, Store, random_wait_up_to};
use tokio::time::{Instant, sleep, timeout};

use crate::api::refusal::RetryReason;
use crate::lane::setback::Setback;

/// The shortest pause between two looks at a full bucket.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest pause while a cool-down lasts: the cool-down may be cancelled.
const LONGEST_COOL_DOWN: Duration = Duration::from_secs(1);

/// The least time over which looks after a cool-down are spread: all know its end, and not all are counted.
const SPREAD: Duration = Duration::from_millis(10);

/// The time over which the lanes of a process look again after an outage: all learn of the return at once.
const SPREAD_AFTER_RETURN: Duration = Duration::from_millis(50);
/// Callers that waited out a cool-down start within this share of their wait after its end, and within
/// [`LONGEST_SPREAD`]. A larger share lets the vendor recover more gently, and calls start later.
const SPREAD_SHARE: u32 = 10;
const LONGEST_SPREAD: Duration = Duration::from_secs(1);

/// The longest pause grows by this for each process that waits. The mean pause is then 2 ms times their
/// number: together they look 500 times a second. Larger finds a freed slot later; smaller costs more units,
/// of which a key serves 3,000 a second.
const FOR_EACH_PROCESS: Duration = Duration::from_millis(4);

/// The longest pause, whatever the number of processes: that of 500. If more wait, each looks once a second,
/// and the looks rise with their number. With a larger cap, callers could reach their deadline without a
/// look.
const LONGEST: Duration = Duration::from_secs(2);
/// The longest pause after throttled looks: 1,500 processes then use a quarter of what a key serves.
const LONGEST_STRETCHED: Duration = Duration::from_secs(4);

/// How long before its deadline a caller has its last look: a read, and a write that follows it.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// The least factor on pauses, in eighths: pauses as they are. Throttled looks raise the factor.
const AS_IT_IS: u32 = 8;
/// The greatest factor after throttled looks, in eighths: pauses four times as long. A greater factor would
/// leave a slot unseen for more than half a second after the throttling.
const STRETCHED: u32 = 32;
/// The greatest factor for a rate bucket, in eighths. Nobody knows how many processes wait for a rate bucket:
/// 100 ms become two seconds, as for 500 processes.
const STRETCHED_UNCOUNTED: u32 = 160;

/// The pauses of the callers that wait in one process. They grow from the last success on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    looks: u32,
    /// Consecutive setbacks that the bucket did not cause.
    setbacks: u32,
    /// The factor on pauses, in eighths. Each throttled look doubles it; then it falls back gradually.
    stretch: u32,
    most_stretched: u32,
}

/// The callers that a pause keeps waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitContext {
    /// How many processes wait for the bucket, as far as it is known.
    pub(crate) crowd: Option<u32>,
    /// The earliest deadline in the queue.
    pub(crate) until: Option<Instant>,
    /// Whether a caller gives back. Others wait for what it gives, so it does not pause as long.
    pub(crate) gives_back: bool,
    /// The pause at a full bucket, if the order of the waiting processes says it.
    pub(crate) next_look: Option<Duration>,
}

/// What is known of the other processes that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    pub(crate) crowd: Option<u32>,
    pub(crate) next_look: Option<Duration>,
}

impl Default for Poll {
    fn default() -> Self {
        Self { looks: 0, setbacks: 0, stretch: AS_IT_IS, most_stretched: STRETCHED }
    }
}

impl Poll {
    /// For a bucket whose waiting processes are not counted.
    pub(crate) fn uncounted() -> Self {
        Self { most_stretched: STRETCHED_UNCOUNTED, ..Self::default() }
    }

    /// Returns the next pause of callers that wait for `why`. The pause ends early enough for a last look
    /// before the earliest deadline, if that look is at least half of the longest pause away. If pauses ended
    /// earlier than that, crowds would look more than a third more often.
    pub(crate) fn next(&mut self, why: &Setback, context: WaitContext) -> Duration {
        let longest = self.longest(why, context);
        let full = matches!(why, Setback::Refused(retry) if retry.reason == RetryReason::NoFreeSlot);
        let drawn = match why {
            _ if full && !context.gives_back && context.next_look.is_some() => {
                context.next_look.unwrap_or_default()
            }
            // All processes know when a cool-down ends: they spread their looks after it as at a full bucket.
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => retry
                .wait
                .min(longest)
                .saturating_add(random_wait_up_to(for_crowd(context.crowd).max(SPREAD))),
            _ => random_wait_up_to(longest),
        };
        let left = context.until.map(|until| until.saturating_duration_since(Instant::now()));
        let last_look = left.map(|left| left.saturating_sub(LAST_LOOK)).filter(|at| *at >= longest / 2);
        last_look.map_or(drawn, |at| drawn.min(at)).max(SHORTEST)
    }

    pub(crate) fn succeeded(&mut self) {
        (self.looks, self.setbacks) = (0, 0);
        self.relax();
    }

    /// Returns the longest that the pause may be. The mean pause is half of that.
    fn longest(&mut self, why: &Setback, context: WaitContext) -> Duration {
        let (looks, setbacks) = (self.looks, self.setbacks);
        let is_contended = matches!(why, Setback::Refused(retry) if retry.reason == RetryReason::Contended);
        self.looks = looks.saturating_add(1);
        self.setbacks =
            if is_contended || matches!(why, Setback::Out(_)) { setbacks.saturating_add(1) } else { 0 };
        match why {
            Setback::Throttled(_) => self.stretch = (self.stretch * 2).min(self.most_stretched),
            _ => self.relax(),
        }
        let uncrowded = match why {
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => LONGEST_COOL_DOWN,
            // Many writers compete: a caller that gives back must get through.
            _ if is_contended => Backoff::CROWD.ceiling(setbacks),
            Setback::Out(_) | Setback::Final(_) => Backoff::CROWD.ceiling(setbacks),
            Setback::Refused(_) | Setback::Throttled(_) => Backoff::POLL.ceiling(looks),
        };
        match context.gives_back {
            true => uncrowded,
            false => {
                (uncrowded.max(for_crowd(context.crowd)) * self.stretch / AS_IT_IS).min(LONGEST_STRETCHED)
            }
        }
    }

    fn relax(&mut self) {
        self.stretch = (self.stretch - self.stretch / 4).max(AS_IT_IS);
    }
}

/// Returns how long after the end of a cool-down a caller takes up its call that waited `waited` for the end:
/// at random, so that callers do not start in the same instant. A bucket of this `limit` that fills in less
/// time than the spread needs no longer one: its refill sets the pace. Uses at most half of the time that the
/// caller has `left` by then.
pub(crate) fn spread_after_cool_down(waited: Duration, limit: Option<&Limit>, left: Duration) -> Duration {
    let fills_in = limit.and_then(|limit| limit.refill_rate().time_for(limit.capacity()));
    let longest = (waited / SPREAD_SHARE).min(LONGEST_SPREAD).min(left / 2);
    random_wait_up_to(fills_in.map_or(longest, |fills_in| longest.min(fills_in)))
}

/// Returns the longest pause of each of `crowd` processes at a full bucket.
fn for_crowd(crowd: Option<u32>) -> Duration {
    FOR_EACH_PROCESS.saturating_mul(crowd.unwrap_or(1)).min(LONGEST)
}

/// Pauses, at most until DynamoDB has come back more than `returns` times.
pub(crate) async fn pause_until_return(store: &Store, pause: Duration, returns: u32) {
    let back = async {
        store.returned(returns).await;
        sleep(spread_after_return()).await;
    };
    let _ = timeout(pause, back).await;
}

/// How long after the return of DynamoDB callers look again.
pub(crate) fn spread_after_return() -> Duration {
    random_wait_up_to(SPREAD_AFTER_RETURN)
}

#[cfg(test)]
mod tests;
