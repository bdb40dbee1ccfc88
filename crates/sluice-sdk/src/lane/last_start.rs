//! Decides who books the last starts that callers would wait for.
//!
//! If callers ask for more than flows in, they book up to the end of their patience. Then one more start
//! comes within it each time a token flows in. Every process knows when, and has a caller for it: one write
//! succeeds, the others fail. So a process that booked one of the last starts lets others book for a while:
//! its callers are refused, unless their starts are earlier by the time that is left. No start is lost, only
//! booked later.
//!
//! The time depends on how far ahead the line is booked, so that as many processes as there are take turns:
//! the further, the more of them there are, and the longer each lets others book. It does not depend on who
//! was faster, because a process that was lucky once would be lucky again. And it is random: with a fixed
//! time, processes would come back in the same order each time.
//!
//! Others book meanwhile, so a reading that the process extends by what has flowed in since shows too many
//! tokens. Instead, the process assumes that the line is booked as far ahead as when it last saw it. It asks
//! DynamoDB again when its turn has come by that assumption.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Claim, Reason, Refusal, Timestamp};
use sluice_table::random_wait_around;
use tokio::time::Instant;

use crate::extensions::Extensions;

/// The last starts are those in the last third (1 / `LAST_PART`) of a caller's patience, so a caller loses at
/// most this third. A larger part leaves room for more processes to take turns, and refuses more callers.
const LAST_PART: u32 = 3;

/// How many calls flow in, on average, while a process lets others book: `CALLS` if it booked the earliest of
/// the last starts, doubled up to `DOUBLINGS` times towards the end of the patience (96 calls: enough for
/// about a hundred processes). A larger `DOUBLINGS` serves more processes, but after a short rush a process
/// refuses its callers for longer.
const CALLS: f64 = 6.0;
const DOUBLINGS: f64 = 4.0;

/// A process lets others book for at most this many times the patience of its caller, on average.
const LONGEST_IN_PATIENCES: u32 = 4;

/// When its turn has come by the last reading, a process leaves this many more calls to the others, which may
/// have booked more since. A larger value saves writes where many compete, and refuses more callers.
const CALLS_MORE: u32 = 2;

/// A process that has seen nobody else book for this long, or for its caller's patience if that is longer,
/// stops letting others book. With a shorter time it would stop before its turn at a slow line has come.
const RIVALS_KNOWN_FOR: Duration = Duration::from_secs(10);

/// How long a reading refuses callers whose starts are left to others: for `MEMORY`, or for the time in which
/// `MEMORY_CALLS` flow in if that is longer (up to `LONGEST_MEMORY`), but at most for the caller's patience.
/// Larger values save writes at slow lines; what others give back, and other limits, are noticed later.
const MEMORY_CALLS: u32 = 10;
const MEMORY: Duration = Duration::from_secs(10);
const LONGEST_MEMORY: Duration = Duration::from_secs(60);

/// What the callers of a line know of those of other processes.
#[derive(Debug, Default)]
struct LastStart(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When another process was last seen to book.
    rival_seen: Option<Instant>,
    others_until: Option<Instant>,
}

impl State {
    fn has_rivals(&self, patience: Duration) -> bool {
        self.rival_seen.is_some_and(|seen| seen.elapsed() <= RIVALS_KNOWN_FOR.max(patience))
    }
}

/// By how much the start of a caller with this patience must be earlier than its latest start.
pub(super) fn left_to_others(of_line: &Extensions, patience: Duration) -> Duration {
    let last_start = of_line.of::<LastStart>();
    let state = last_start.0.lock();
    let until = state.others_until.filter(|_| state.has_rivals(patience));
    let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    left.min(patience / LAST_PART)
}

/// The claim to judge by the last reading, which is `age` old. Others most likely booked what has flowed in
/// since, so the line is judged as at the time of the reading, and `CALLS_MORE` are left to others as well.
/// `None` if the process has to ask DynamoDB. `left` is what the claim leaves to others of its patience.
pub(super) fn claim_from_memory(claim: Claim, left: Duration, line: &Bucket, age: Duration) -> Option<Claim> {
    let (patience, a_call) = (claim.patience + left, flows_in(line, claim.cost.amount()));
    let memory = a_call.saturating_mul(MEMORY_CALLS).clamp(MEMORY, LONGEST_MEMORY).min(patience);
    if left.is_zero() || age >= memory {
        return None;
    }
    let more = a_call.saturating_mul(CALLS_MORE).min((patience / LAST_PART).saturating_sub(left));
    Some(Claim { patience: claim.patience.saturating_sub(age + more), ..claim })
}

/// What is told to a caller whose start was left to others: that it is later than its patience. By then the
/// tokens are there, and whoever comes back takes them.
pub(super) fn refused(refusal: Refusal, patience: Duration, left_to_others: Duration) -> Refusal {
    match refusal.reason {
        Reason::Exhausted if !left_to_others.is_zero() => {
            Refusal { wait: refusal.wait.max(patience + Duration::from_micros(1)), ..refusal }
        }
        _ => refusal,
    }
}

/// Whether the line was seen to lose tokens that this process did not take in its lane, in the last ten
/// seconds or within `span` if that is longer.
pub(super) fn has_rivals(of_line: &Extensions, span: Duration) -> bool {
    of_line.of::<LastStart>().0.lock().has_rivals(span)
}

/// The line has less than this process left there. Another process took tokens, most likely: settlements of
/// this process take some too.
pub(super) fn rival_seen(of_line: &Extensions) {
    of_line.of::<LastStart>().0.lock().rival_seen = Some(Instant::now());
}

/// This process took tokens for `last`, and left the line as `after`.
pub(super) fn booked(of_line: &Extensions, last: Claim, after: &Bucket, now: Timestamp) {
    let cost = last.cost.amount();
    let latest = now.after(last.patience);
    let before_latest = after.reaches(cost).map_or(Duration::ZERO, |next| latest.since(next));
    let last_third = last.patience / LAST_PART;
    if last_third.is_zero() || before_latest > last_third {
        return;
    }
    let last_start = of_line.of::<LastStart>();
    let mut state = last_start.0.lock();
    if state.has_rivals(last.patience) {
        let free_part = before_latest.as_secs_f64() / last_third.as_secs_f64();
        let calls = CALLS * (DOUBLINGS * (1.0 - free_part)).exp2();
        // In calls of this cost, not in tokens.
        let on_average =
            flows_in(after, cost).mul_f64(calls).min(last.patience.saturating_mul(LONGEST_IN_PATIENCES));
        state.others_until = Some(Instant::now() + random_wait_around(on_average));
    }
}

/// How long `amount` takes to flow in.
fn flows_in(line: &Bucket, amount: Amount) -> Duration {
    line.limit().refill_rate().time_for(amount).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sluice_core::{Cost, Dimension, Limit, LimitType, Plan, Rate, RatePlanner, Take};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Ten tokens a second, and the next of them is there at `next`.
    fn line(next: Timestamp) -> Bucket {
        let (capacity, rate) = (Amount::from_tokens(10), Amount::from_tokens(10));
        let rate = Rate::per(rate, Duration::from_secs(1)).unwrap();
        let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
        let dimension = Dimension::new("acme#rpm").unwrap();
        let emptied = next.before(Duration::from_millis(100));
        let all = Take { cost: Cost::new(capacity).unwrap(), now: emptied, patience: Duration::ZERO };
        match RatePlanner::new(&Bucket::full(dimension, limit, emptied)).plan(all) {
            Plan::Write(planned) => planned.after,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_booked_one_of_the_last_starts_lets_others_book_for_a_while() {
        fastrand::seed(7);
        let (of_line, now) = (Extensions::default(), Timestamp::from_secs(1_800_000_000));
        let last = Claim { cost: Cost::ONE, patience: PATIENCE };
        let too_late = line(now.after(PATIENCE + Duration::from_millis(1)));
        let left = |patience| left_to_others(&of_line, patience);

        booked(&of_line, last, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "nobody else wants it");
        rival_seen(&of_line);
        let millis = Duration::from_millis;
        booked(&of_line, last, &line(now.after(PATIENCE * 2 / 3 - millis(1))), now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "it was not one of the last");
        booked(&of_line, Claim { patience: Duration::ZERO, ..last }, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "a caller that does not wait");

        // Ten calls flow in each second: 96 take 9.6 s, 24 take 2.4 s, and 6 take 0.6 s.
        for (free, on_average) in [(millis(0), 9_600), (PATIENCE / 6, 2_400), (PATIENCE / 3, 600)] {
            let lengths: Vec<Duration> = (0..200)
                .map(|_| {
                    booked(&of_line, last, &line(now.after(PATIENCE - free)), now);
                    let until = of_line.of::<LastStart>().0.lock().others_until.unwrap();
                    until.duration_since(Instant::now())
                })
                .collect();
            let mean = lengths.iter().sum::<Duration>() / 200;
            assert!(mean > millis(on_average) * 9 / 10 && mean < millis(on_average) * 11 / 10, "{mean:?}");
            assert!(lengths.iter().max().unwrap() <= &(millis(on_average) * 3 / 2));
        }
        booked(&of_line, last, &too_late, now);
        assert!(left(Duration::from_millis(30)) <= Duration::from_millis(10), "a third of the patience");
        assert_eq!(left(Duration::ZERO), Duration::ZERO);

        of_line.of::<LastStart>().0.lock().others_until = Some(Instant::now() + PATIENCE * 3);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(left(PATIENCE), PATIENCE / 3);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(left(PATIENCE), Duration::ZERO, "the others may be gone");
        booked(&of_line, last, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "nobody else was seen for a whole patience");
    }

    #[test]
    fn who_lets_others_book_takes_the_line_to_be_booked_as_far_as_when_it_was_seen() {
        let now = Timestamp::from_secs(1_800_000_000);
        let (line, left) = (line(now.after(PATIENCE)), Duration::from_secs(6));
        let claim = |patience| Claim { cost: Cost::ONE, patience };
        let judged = |left, secs| {
            let judged = claim_from_memory(claim(PATIENCE - left), left, &line, Duration::from_secs(secs));
            judged.map(|claim| claim.patience.as_millis())
        };
        assert_eq!(judged(Duration::ZERO, 5), None, "its turn has come");
        // Two calls take 0.2 s.
        assert_eq!(judged(left, 0), Some(23_800));
        assert_eq!(judged(left, 9), Some(14_800));
        assert_eq!(judged(left, 10), None, "it asks after ten seconds");
        assert_eq!(judged(PATIENCE / 3, 0), Some(20_000), "a caller loses a third at most");
        let short = Claim { cost: Cost::ONE, patience: Duration::from_secs(2) };
        let judged =
            |secs| claim_from_memory(short, Duration::from_secs(1), &line, Duration::from_secs(secs));
        assert_eq!(judged(2).map(|claim| claim.patience), Some(Duration::ZERO));
        assert_eq!(judged(3), None, "it asks after its whole patience");
    }

    #[test]
    fn who_is_refused_a_start_that_is_left_to_others_is_told_that_it_is_later_than_its_patience() {
        let told = |wait_secs, reason, left_secs| {
            let refusal = Refusal { wait: Duration::from_secs(wait_secs), reason };
            refused(refusal, PATIENCE, Duration::from_secs(left_secs)).wait
        };
        let late = PATIENCE + Duration::from_micros(1);
        assert_eq!(told(25, Reason::Exhausted, 10), late);
        assert_eq!(told(45, Reason::Exhausted, 10), Duration::from_secs(45), "exact as ever");
        assert_eq!(told(25, Reason::CoolingDown, 10), Duration::from_secs(25));
        assert_eq!(told(25, Reason::Exhausted, 0), Duration::from_secs(25));
    }
}
