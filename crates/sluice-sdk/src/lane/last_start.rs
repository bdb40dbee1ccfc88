//! Decides who books the last start that callers would wait for.
//!
//! If callers ask for more than flows in, they book up to the end of their patience. Then one more start comes
//! within it each time a token flows in. Every process knows when, and has a caller for it: one write
//! succeeds, the others fail. So a process that booked the last start lets others book for a while: its
//! callers are refused, unless their starts are earlier by the time that is left. No start is lost, only
//! booked later.
//!
//! The time does not depend on who was faster: a process that was lucky once would be lucky again. It is
//! random: with a fixed time, processes would come back in the same order each time.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Claim, Reason, Refusal, Timestamp};
use sluice_table::random_wait_up_to;
use tokio::time::Instant;

use crate::extensions::Extensions;

/// So many calls flow in, on average, while a process lets others book. A larger value saves writes where more
/// processes than that compete, and a smaller one refuses fewer callers whose start was free.
const CALLS: u32 = 48;

/// A caller loses a third of its patience at most: one part in so many.
const ONE_IN: u32 = 3;

/// A process that has seen nobody else book for so long lets nobody go first.
const RIVALS_KNOWN_FOR: Duration = Duration::from_secs(10);

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
    fn has_rivals(&self) -> bool {
        self.rival_seen.is_some_and(|seen| seen.elapsed() <= RIVALS_KNOWN_FOR)
    }
}

/// By how much the start of a caller with this patience must be earlier than its latest start.
pub(super) fn left_to_others(of_line: &Extensions, patience: Duration) -> Duration {
    let last_start = of_line.of::<LastStart>();
    let state = last_start.0.lock();
    let until = state.others_until.filter(|_| state.has_rivals());
    let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    left.min(patience / ONE_IN)
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

/// The line has less than this process left there. Another process took tokens, most likely: settlements of
/// this process take some too.
pub(super) fn rival_seen(of_line: &Extensions) {
    of_line.of::<LastStart>().0.lock().rival_seen = Some(Instant::now());
}

/// This process took tokens for `last`, and left the line as `after`.
pub(super) fn booked(of_line: &Extensions, last: Claim, after: &Bucket, now: Timestamp) {
    let cost = last.cost.amount();
    let is_last = |latest| after.reaches(cost).is_none_or(|next| next > latest);
    if last.patience.is_zero() || !is_last(now.after(last.patience)) {
        return;
    }
    let last_start = of_line.of::<LastStart>();
    let mut state = last_start.0.lock();
    if state.has_rivals() {
        let flows_in = |amount: Amount| after.limit().refill_rate().time_for(amount).unwrap_or_default();
        // Whatever a call costs. The time that is drawn is at most twice that.
        let on_average = (flows_in(cost) * CALLS).min(last.patience);
        state.others_until = Some(Instant::now() + random_wait_up_to(on_average * 2));
    }
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
    async fn who_booked_the_last_start_lets_others_book_for_a_while() {
        fastrand::seed(7);
        let (of_line, now) = (Extensions::default(), Timestamp::from_secs(1_800_000_000));
        let last = Claim { cost: Cost::ONE, patience: PATIENCE };
        let too_late = line(now.after(PATIENCE + Duration::from_millis(1)));
        let left = |patience| left_to_others(&of_line, patience);

        booked(&of_line, last, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "nobody else wants it");
        rival_seen(&of_line);
        booked(&of_line, last, &line(now.after(PATIENCE)), now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "it was not the last");
        booked(&of_line, Claim { patience: Duration::ZERO, ..last }, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "a caller that does not wait");

        let lengths: Vec<Duration> = (0..200)
            .map(|_| {
                booked(&of_line, last, &too_late, now);
                left(PATIENCE)
            })
            .collect();
        let mean = lengths.iter().sum::<Duration>() / 200;
        assert!(mean > Duration::from_millis(4_000) && mean < Duration::from_millis(5_600), "{mean:?}");
        assert!(lengths.iter().max().unwrap() <= &Duration::from_millis(9_600));
        assert!(left(Duration::from_millis(30)) <= Duration::from_millis(10), "a third of the patience");
        assert_eq!(left(Duration::ZERO), Duration::ZERO);

        of_line.of::<LastStart>().0.lock().others_until = Some(Instant::now() + PATIENCE);
        tokio::time::advance(RIVALS_KNOWN_FOR).await;
        assert_eq!(left(PATIENCE), PATIENCE / 3);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(left(PATIENCE), Duration::ZERO, "the others may be gone");
        booked(&of_line, last, &too_late, now);
        assert_eq!(left(PATIENCE), Duration::ZERO, "nobody else was seen for ten seconds");
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
