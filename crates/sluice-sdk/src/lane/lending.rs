//! What a line borrows of others: which line is asked, and how soon again.
//!
//! Borrowers of a line of tokens do not know how many they are. If each asked as often as the line fills, many
//! would ask in vain, and if each asked less often, what few of them leave would be lost. So each goes by what
//! it finds: a line that is empty whenever it is asked has enough borrowers, and one that is full has too few.
//! That does not depend on who was faster, so luck does not last.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Cost, ShareName, Timestamp};
use sluice_table::random_wait_around;

use crate::extensions::Extensions;

/// How long a line of slots is not asked after it had none. Doubled for each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A pause of a line of tokens goes by the time in which the line fills, between these two. The first keeps
/// failed writes few at lines that fill faster. With the second, borrowers find within seconds that a slow
/// line lends again.
const SHORTEST_TO_FILL: Duration = Duration::from_millis(300);
const LONGEST_TO_FILL: Duration = Duration::from_secs(2);
/// The part of what a line may lend that its borrowers should find there, all together asking often enough. A
/// larger part saves writes, and leaves more of what a line may lend unused.
const FOUND: f64 = 0.2;
/// In a line that may lend few calls, one call, but not more than this part.
const FOUND_AT_MOST: f64 = 0.6;
/// A pause doubles for each so much that borrowers find less.
const FOUND_STEP: f64 = 0.05;
/// The shortest and the longest pause, in times to fill.
const SHORTEST: f64 = 0.5;
const LONGEST: f64 = 4.0;
/// A line that has this part of what it may lend counts as full.
const FULL: f64 = 0.95;
/// What the last look found counts so much of the mean.
const OF_LAST_LOOK: f64 = 0.25;

/// Lines of slots that had none.
#[derive(Debug, Default)]
struct Pauses(Mutex<HashMap<Option<ShareName>, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    length: Duration,
}

/// What borrowers found in lines of tokens.
#[derive(Debug, Default)]
struct Looks(Mutex<HashMap<Option<ShareName>, Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    /// The line is asked again from then on.
    next: Timestamp,
    /// The part of what the line may lend that was there, a mean of the last looks.
    found: f64,
    /// Whether the line had more than was asked for.
    had_more: bool,
}

/// From now on, and not for all borrowers at once.
fn after_pause(now: Timestamp, length: Duration) -> Timestamp {
    now.after(random_wait_around(length))
}

/// The line that most likely lends `cost` now, as the bucket is seen from it, with what a borrower leaves
/// there.
pub(super) fn lender(
    of_line: &Extensions,
    bucket: &Bucket,
    cost: Cost,
    now: Timestamp,
) -> Option<(Bucket, Amount)> {
    if !bucket.has_shares() {
        return None;
    }
    let looks = of_line.of::<Looks>();
    let looks = looks.0.lock();
    let is_asked = |lender: &Bucket| looks.get(&lender.share().cloned()).is_none_or(|look| look.next <= now);
    bucket.lenders(cost, now).into_iter().find(|(lender, _)| is_asked(lender))
}

/// The line of a rate bucket had too little, with what its borrowers leave there.
pub(super) fn had_too_little(of_line: &Extensions, lender: &Bucket, floor: Amount, now: Timestamp) {
    looked(of_line, lender, (floor, Amount::ZERO), now);
}

/// A line lent `took`, and is as `lender` sees it now. If it has more, it is asked again at once.
pub(super) fn lent(of_line: &Extensions, lender: &Bucket, floor: Amount, took: Amount, now: Timestamp) {
    looked(of_line, lender, (floor, took), now);
}

fn looked(of_line: &Extensions, lender: &Bucket, (floor, took): (Amount, Amount), now: Timestamp) {
    let call = lender.limit().cost_per_call().amount();
    let looks = of_line.of::<Looks>();
    let mut looks = looks.0.lock();
    let before = looks.get(&lender.share().cloned()).copied();
    // Callers that asked a line by the same reading count as one.
    if before.is_some_and(|look| look.next > now) {
        return;
    }
    let may_lend = may_lend(lender, floor);
    let aim = part_of(may_lend, call).clamp(FOUND, FOUND_AT_MOST);
    let found = match (before, found(lender, floor, took, now)) {
        // Nobody asks often enough.
        (_, found) if found >= FULL => 1.0,
        (None, _) => aim,
        // What this process left there.
        (Some(look), _) if look.had_more => look.found,
        (Some(look), found) => look.found + (found - look.found) * OF_LAST_LOOK,
    };
    let fills_in = lender.limit().refill_rate().time_for(may_lend).unwrap_or_default();
    let times = ((aim - found) / FOUND_STEP).exp2().clamp(SHORTEST, LONGEST);
    let pause = fills_in.clamp(SHORTEST_TO_FILL, LONGEST_TO_FILL).mul_f64(times);
    let had_more = took > Amount::ZERO && lender.level(now).minus(floor) >= call;
    let next = if had_more { now } else { after_pause(now, pause) };
    looks.insert(lender.share().cloned(), Look { next, found, had_more });
}

/// What the line lends if it is full.
fn may_lend(lender: &Bucket, floor: Amount) -> Amount {
    lender.limit().capacity().minus(floor).max(lender.limit().cost_per_call().amount())
}

/// The part of that that is there, before `took` was taken.
fn found(lender: &Bucket, floor: Amount, took: Amount, now: Timestamp) -> f64 {
    part_of(may_lend(lender, floor), lender.level(now).minus(floor).plus(took))
}

/// The part that `amount` is of `whole`, from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "pauses need no exact part")]
fn part_of(whole: Amount, amount: Amount) -> f64 {
    (amount.micros() as f64 / whole.micros() as f64).clamp(0.0, 1.0)
}

/// Whether a line of slots is asked now.
pub(super) fn is_asked(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) -> bool {
    let pauses = of_line.of::<Pauses>();
    let pauses = pauses.0.lock();
    pauses.get(&lender.cloned()).is_none_or(|pause| pause.until <= now)
}

/// A line has lent slots.
pub(super) fn has_lent(of_line: &Extensions, lender: Option<&ShareName>) {
    of_line.of::<Pauses>().0.lock().remove(&lender.cloned());
}

/// The line of a concurrency bucket had no slot. Callers that asked it by the same reading count as one.
pub(super) fn had_no_slot(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) {
    let pauses = of_line.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let before = pauses.get(&lender.cloned()).copied();
    if before.is_some_and(|pause| pause.until > now) {
        return;
    }
    let doubled = |pause: Pause| (pause.length * 2).min(LONGEST_PAUSE);
    let length = before.map_or(FIRST_PAUSE, doubled);
    pauses.insert(lender.cloned(), Pause { until: after_pause(now, length), length });
}

#[cfg(test)]
mod tests {
    use sluice_core::{Dimension, Limit, LimitType, Plan, Rate, RatePlanner, Take};

    use super::*;

    #[test]
    fn callers_that_find_nothing_at_once_lengthen_the_pause_once() {
        let of_line = Extensions::default();
        let mut now = Timestamp::from_secs(1_800_000_000);
        let is_asked = |now| is_asked(&of_line, None, now);
        for longest in [30, 60, 120] {
            (0..15).for_each(|_| had_no_slot(&of_line, None, now));
            assert!(!is_asked(now));
            now = now.after(Duration::from_millis(longest));
            assert!(is_asked(now), "not after {longest} ms");
        }
        (0..20).for_each(|_| {
            had_no_slot(&of_line, None, now);
            now = now.after(Duration::from_secs(1));
        });
        had_no_slot(&of_line, None, now);
        assert!(!is_asked(now.after(LONGEST_PAUSE / 2 - Duration::from_micros(1))));
        has_lent(&of_line, None);
        assert!(is_asked(now));
    }

    const CALL: Amount = Amount::from_tokens(1);

    /// A line that may lend a hundred calls and fills in a second, with these calls that it may lend now.
    fn line(calls: i32, now: Timestamp) -> (Bucket, Amount) {
        let rate = Rate::per(Amount::from_tokens(100), Duration::from_secs(1)).unwrap();
        let limit = Limit::rate(LimitType::Requests, Amount::from_tokens(110), rate, Cost::ONE).unwrap();
        let full = Bucket::full(Dimension::new("acme#rpm").unwrap(), limit, now);
        let spent = Take {
            cost: Cost::new(Amount::from_tokens(100 - calls).max(CALL)).unwrap(),
            now,
            patience: Duration::ZERO,
        };
        match RatePlanner::new(&full).plan(spent) {
            Plan::Write(planned) if calls < 100 => (planned.after, Amount::from_tokens(10)),
            _ => (full, Amount::from_tokens(10)),
        }
    }

    /// The pause after the last of many looks that each find so many calls.
    fn pause(finds: i32) -> Duration {
        let (of_line, mut now) = (Extensions::default(), Timestamp::from_secs(1_800_000_000));
        let mut last = Duration::ZERO;
        for _ in 0..30 {
            let (lender, floor) = line(finds, now);
            had_too_little(&of_line, &lender, floor, now);
            let next = of_line.of::<Looks>().0.lock()[&None].next;
            (last, now) = (next.since(now), next);
        }
        last
    }

    #[test]
    fn the_less_borrowers_find_the_less_often_they_ask() {
        let ms = Duration::from_millis;
        for (finds, times) in [(0, 4.0), (10, 4.0), (15, 2.0), (20, 1.0), (25, 0.5), (100, 0.5)] {
            let (least, most) = (ms(500).mul_f64(times), ms(1_500).mul_f64(times));
            let pause = pause(finds);
            assert!((least - ms(1)..=most + ms(1)).contains(&pause), "finds {finds}: {pause:?}");
        }
    }

    #[test]
    fn a_line_that_has_more_is_asked_again_at_once_and_one_that_is_full_soon() {
        let (of_line, now) = (Extensions::default(), Timestamp::from_secs(1_800_000_000));
        let look = || of_line.of::<Looks>().0.lock()[&None];
        let (lender, floor) = line(3, now);
        lent(&of_line, &lender, floor, CALL, now);
        assert_eq!((look().next, look().had_more), (now, true));
        let found = look().found;
        let (lender, floor) = line(0, now);
        lent(&of_line, &lender, floor, CALL, now);
        assert!(look().next > now, "nothing is left");
        assert_eq!(look().found, found, "it found what it had left there itself");
        had_too_little(&of_line, &lender, floor, now);
        assert_eq!(look().found, found, "a second caller with the same reading");

        let later = look().next;
        let (lender, floor) = line(0, later);
        had_too_little(&of_line, &lender, floor, later);
        assert!(look().found < found);
        let later = look().next;
        let (full, floor) = line(100, later);
        lent(&of_line, &full, floor, CALL, later);
        assert_eq!(look().found, 1.0, "full once counts as full");
    }
}
