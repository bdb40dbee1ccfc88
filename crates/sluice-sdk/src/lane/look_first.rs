//! When a read comes before a write of a share's own line, and what refused callers are told.
//!
//! Several processes want the token that flows in next, and one gets it. The writes of the others fail, and a
//! write that fails costs as much as one that succeeds: five times the read that would have shown that
//! nothing is there. So a caller that does not wait reads first, if it counts on tokens that have flowed in
//! since the last reading, and others take of the line too. A call then takes one more request.
//!
//! A read saves nothing if all look at the same instant: each sees the token before one of them takes it. So
//! in a bucket with shares, `acquire` adds a random time to the wait of each refusal. The time does not
//! depend on what the process saw. If only those that saw others take were told more, a process that takes
//! all that flows in would see nobody, come back at the exact instant, and keep it.

use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Timestamp};
use sluice_table::random_wait_up_to;

use crate::bucket::known::BucketReading;
use crate::extensions::Extensions;
use crate::lane::last_start;

/// A refused caller is told at most the time in which so many calls flow in, in addition to its exact wait. A
/// larger value saves reads, and callers come back later. If the line holds fewer calls, what flows in until
/// they come back would be lost: then it is the time in which the rest of the line fills.
const CALLS_SPREAD: u32 = 2;
/// At most this is told in addition: it is long beside a request, so that few come at one instant.
const LONGEST_SPREAD: Duration = Duration::from_secs(2);

/// Others count as such if the line lost tokens within the time in which so many calls flow in, or within ten
/// seconds if that is longer. A smaller value forgets others at slow lines.
const CALLS_REMEMBERED: u32 = 10;

/// Whether the line had less than `cost` at the reading, and others take what flows in.
pub(super) fn is_most_likely_gone(
    of_line: &Extensions,
    reading: &BucketReading,
    cost: Cost,
    now: Timestamp,
) -> bool {
    let read_at = now.before(reading.age(now));
    let span = flows_in(&reading.bucket, cost.amount()).saturating_mul(CALLS_REMEMBERED);
    reading.bucket.level(read_at) < cost.amount() && last_start::has_rivals(of_line, span)
}

/// How much longer than exact the wait is that `acquire` tells a caller that the line refuses.
pub(crate) fn spread(line: &Bucket, cost: Cost) -> Duration {
    if line.has_shares() { random_wait_up_to(longest_spread(line, cost)) } else { Duration::ZERO }
}

fn longest_spread(line: &Bucket, cost: Cost) -> Duration {
    let rest_fills_in = flows_in(line, line.limit().capacity().minus(cost.amount()));
    let spread = flows_in(line, cost.amount()).saturating_mul(CALLS_SPREAD);
    spread.min(rest_fills_in).min(LONGEST_SPREAD)
}

/// How long `amount` takes to flow in.
fn flows_in(line: &Bucket, amount: Amount) -> Duration {
    line.limit().refill_rate().time_for(amount).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sluice_core::{Dimension, Limit, LimitType, Rate};

    use super::*;

    #[test]
    fn refused_callers_come_back_within_two_calls_or_the_rest_of_the_line_or_two_seconds() {
        // Calls that the line holds, and milliseconds in which a call flows in.
        for (capacity, a_call, longest) in [(100, 10, 20), (1, 10, 0), (2, 10, 10), (100, 30_000, 2_000)] {
            let millis = Duration::from_millis;
            let rate = Rate::per(Amount::from_tokens(1), millis(a_call)).unwrap();
            let limit =
                Limit::rate(LimitType::Requests, Amount::from_tokens(capacity), rate, Cost::ONE).unwrap();
            let dimension = Dimension::new("acme#rpm").unwrap();
            let line = Bucket::full(dimension, limit, Timestamp::from_secs(1_800_000_000));
            assert_eq!(longest_spread(&line, Cost::ONE), millis(longest), "{capacity} calls, {a_call} ms");
            assert_eq!(spread(&line, Cost::ONE), Duration::ZERO, "exact without shares");
        }
    }
}
