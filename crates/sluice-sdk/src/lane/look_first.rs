//! When a read comes before a write of a share's own line, and what refused callers are told.
//!
//! Several processes want the token that flows in next, and one has it. The writes of the others fail, and a
//! write that fails costs as much as one that succeeds: five times the read that would have shown that nothing
//! is there. So a caller that does not wait reads first, if it counts on tokens that have flowed in since the
//! last reading, and others take of the line too. A call then takes one more request.
//!
//! A read saves nothing if all look at the same instant: each sees the token before one of them takes it. So
//! callers that are refused beside others are told different waits, each at random.
//!
//! Both depend on whether others take of the line, which all processes see alike, and not on how often a process
//! was faster: if only those that mostly fail were told longer waits, who was lucky once would stay lucky.

use sluice_core::{Bucket, Cost, Reason, Refusal, Timestamp};
use sluice_table::random_wait_up_to;

use crate::bucket::known::BucketReading;
use crate::extensions::Extensions;
use crate::lane::entry::Entry;
use crate::lane::last_start;

/// Refused callers come back within the time in which so many calls flow in. A larger value saves reads, and
/// callers come back later.
const CALLS_SPREAD: u32 = 2;

/// Whether the line had less than `cost` at the reading, and others take what flows in.
pub(super) fn is_most_likely_gone(
    of_line: &Extensions,
    reading: &BucketReading,
    cost: Cost,
    now: Timestamp,
) -> bool {
    let read_at = now.before(reading.age(now));
    reading.bucket.level(read_at) < cost.amount() && last_start::has_rivals(of_line)
}

/// What is told to a refused caller that does not wait.
pub(super) fn told(entry: &Entry, refusal: Refusal, cost: Cost) -> Refusal {
    let Some(line) = entry.reading().map(|reading| reading.bucket) else { return refusal };
    let is_contended = line.has_shares() && last_start::has_rivals(&entry.extensions);
    match refusal.reason {
        Reason::Exhausted if is_contended => spread(refusal, &line, cost),
        _ => refusal,
    }
}

fn spread(refusal: Refusal, line: &Bucket, cost: Cost) -> Refusal {
    let a_call = line.limit().refill_rate().time_for(cost.amount()).unwrap_or_default();
    let later = random_wait_up_to(a_call.saturating_mul(CALLS_SPREAD));
    Refusal { wait: refusal.wait.saturating_add(later), ..refusal }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_core::{Amount, Dimension, Limit, LimitType, Rate, Timestamp};

    use super::*;

    #[test]
    fn refused_callers_come_back_within_the_time_in_which_two_calls_flow_in() {
        fastrand::seed(7);
        let (capacity, rate) = (Amount::from_tokens(100), Amount::from_tokens(100));
        let rate = Rate::per(rate, Duration::from_secs(1)).unwrap();
        let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
        let now = Timestamp::from_secs(1_800_000_000);
        let line = Bucket::full(Dimension::new("acme#rpm").unwrap(), limit, now);
        let refusal = Refusal { wait: Duration::from_millis(70), reason: Reason::Exhausted };
        let waits: Vec<Duration> = (0..500).map(|_| spread(refusal, &line, Cost::ONE).wait).collect();
        let millis = Duration::from_millis;
        assert!(waits.iter().all(|wait| *wait >= millis(70) && *wait <= millis(90)), "never sooner");
        let mean = waits.iter().sum::<Duration>() / 500;
        assert!(mean > millis(79) && mean < millis(81), "{mean:?}");
    }
}
