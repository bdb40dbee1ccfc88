//! How often a process looks whose callers wait: pure but for the draw and the time that is left. What the fleet reads for
//! waiting stays below some 500 units a second and bucket, as long as no more than 500 processes wait.

use std::time::Duration;

use sluice_table::{Backoff, random_up_to};
use tokio::time::Instant;

use crate::api::refusal::RetryReason;
use crate::lane::setback::Setback;

/// The shortest pause between two looks at a full bucket.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest, while a cool-down lasts: it may be called off.
const LONGEST_COOL_DOWN: Duration = Duration::from_secs(1);

/// Looks after a cool-down are spread over this at least: all processes know its end, and many may wait for it that are not counted.
const SPREAD: Duration = Duration::from_millis(10);

/// The longest pause grows by this for each process that waits for the bucket: its looks come every 2 ms times their number in the
/// mean, so that all of them are 500 a second. Larger finds a slot later that another process freed; smaller costs more units, and
/// a key serves 3,000 a second.
const FOR_EACH_PROCESS: Duration = Duration::from_millis(4);

/// The longest pause, however many processes wait: that of 500. More look once a second each, and all of them that much more often.
/// A larger cap would let callers leave at their deadline who never had a look.
const LONGEST: Duration = Duration::from_secs(2);
/// The longest after throttled looks: of 1,500 processes each still looks every two seconds, which is a quarter of what a key serves.
const LONGEST_STRETCHED: Duration = Duration::from_secs(4);

/// So long before its deadline a caller has its last look: a read takes a few milliseconds, and a write that follows it no more.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// The pauses after looks that were throttled, in eighths: as they are, ...
const AS_IT_IS: u32 = 8;
/// ... and four times as long at most. Longer would leave a slot unseen for more than half a second after the throttling.
const STRETCHED: u32 = 32;
/// Of a rate bucket nobody knows how many processes wait: 100 ms become two seconds, as those of 500 do.
const STRETCHED_UNCOUNTED: u32 = 160;

/// The pauses of those who wait in one process: ever longer, from the last success on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    looks: u32,
    /// Setbacks that were none of the bucket's, one after the other.
    setbacks: u32,
    /// Eighths, by which pauses are longer than they would be: doubled by each throttled look, and back gradually.
    stretch: u32,
    most_stretched: u32,
}

/// Those whom a pause keeps waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Company {
    /// How many processes wait for the bucket, as far as is known.
    pub(crate) crowd: Option<u32>,
    /// The earliest deadline in line.
    pub(crate) until: Option<Instant>,
    /// Whether one of them gives back. What others wait for does not wait as long as they do.
    pub(crate) gives_back: bool,
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

    /// The next pause of callers who wait for `why`. It ends early enough for a last look before the earliest deadline, where that is
    /// further off than half of the longest pause: an earlier end would have crowds look more than a third more often.
    pub(crate) fn next(&mut self, why: &Setback, company: Company) -> Duration {
        let longest = self.longest(why, company);
        let drawn = match why {
            // Its end is known, and to all processes: they spread their looks after it as they do theirs at a full bucket.
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => {
                retry.wait.min(longest).saturating_add(drawn_up_to(for_crowd(company.crowd).max(SPREAD)))
            }
            _ => drawn_up_to(longest),
        };
        let left = company.until.map(|until| until.saturating_duration_since(Instant::now()));
        let last_look = left.map(|left| left.saturating_sub(LAST_LOOK)).filter(|at| *at >= longest / 2);
        last_look.map_or(drawn, |at| drawn.min(at)).max(SHORTEST)
    }

    /// Somebody was served.
    pub(crate) fn succeeded(&mut self) {
        (self.looks, self.setbacks) = (0, 0);
        self.relax();
    }

    /// The longest that the pause may be; it is half of that in the mean.
    fn longest(&mut self, why: &Setback, company: Company) -> Duration {
        let (looks, setbacks) = (self.looks, self.setbacks);
        let is_contended = matches!(why, Setback::Refused(retry) if retry.reason == RetryReason::Contended);
        self.looks = looks.saturating_add(1);
        self.setbacks = if is_contended || matches!(why, Setback::Out(_)) { setbacks.saturating_add(1) } else { 0 };
        match why {
            Setback::Throttled(_) => self.stretch = (self.stretch * 2).min(self.most_stretched),
            _ => self.relax(),
        }
        let uncrowded = match why {
            Setback::Refused(retry) if retry.reason == RetryReason::CoolingDown => LONGEST_COOL_DOWN,
            // Many are at it: whoever gives back must get through.
            _ if is_contended => Backoff::CROWD.ceiling(setbacks),
            Setback::Out(_) | Setback::Final(_) => Backoff::CROWD.ceiling(setbacks),
            Setback::Refused(_) | Setback::Throttled(_) => Backoff::POLL.ceiling(looks),
        };
        match company.gives_back {
            true => uncrowded,
            false => (uncrowded.max(for_crowd(company.crowd)) * self.stretch / AS_IT_IS).min(LONGEST_STRETCHED),
        }
    }

    fn relax(&mut self) {
        self.stretch = (self.stretch - self.stretch / 4).max(AS_IT_IS);
    }
}

/// The longest pause at a full bucket of each of so many processes.
fn for_crowd(crowd: Option<u32>) -> Duration {
    FOR_EACH_PROCESS.saturating_mul(crowd.unwrap_or(1)).min(LONGEST)
}

fn drawn_up_to(longest: Duration) -> Duration {
    Duration::from_micros(random_up_to(u64::try_from(longest.as_micros()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests;
