//! What a line borrows of others: which line is asked, and how soon again.
//!
//! Borrowers of a line of tokens do not know how many they are. If each asks as often as the line fills, many
//! ask in vain. If each asks less often and they are few, what the line could lend is lost. So each borrower
//! decides by what it finds: a line that is empty at each look has enough borrowers, and a full one too few.
//! What a borrower finds does not depend on whether it was faster, so no borrower stays lucky. A line that
//! lends fewer than two calls is an exception (ADR 12).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Cost, Lender, ShareName, Timestamp};
use sluice_table::random_wait_around;

use crate::bucket::known::BucketReading;
use crate::extensions::Extensions;

/// The part of what a line may lend that borrowers should find. If they find less, they ask too often
/// together. A larger part saves requests, and leaves more of what a line may lend unused.
const PART_FOUND: f64 = 0.1;
/// If a line may lend only a few calls, borrowers should find one call, but at most this part: with a larger
/// part, the line would be full most of the time.
const PART_FOUND_AT_MOST: f64 = 0.5;
/// A pause doubles for each `STEP` that borrowers find less. A smaller one follows chance more closely.
const STEP: f64 = 0.05;
/// The shortest and the longest pause, as multiples of the time in which the line fills. With the shortest,
/// nothing is lost of a line that nobody else asks. A larger `LONGEST` would save writes beside hundreds of
/// borrowers, but a borrower would notice later that the line lends again.
const SHORTEST: f64 = 0.5;
const LONGEST: f64 = 4.0;
/// The longest pause, but at least the time in which a call flows in.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Beside other borrowers, a line that fills faster counts as one that fills in this time, so that few looks
/// are in vain.
const SHORTEST_TO_FILL: Duration = Duration::from_millis(300);
/// Of a line that fills more slowly, what flows in during this time counts as all that it may lend: borrowers
/// find within seconds that it lends again.
const LONGEST_TO_FILL: Duration = Duration::from_secs(2);
/// A mean of less than this part of a call means that a look mostly finds none. With the whole call, whoever
/// is alone at a line that lends one call would read each time, after a single look in vain.
const MOSTLY: f64 = 0.95;
/// A line that has this part of what it may lend counts as full.
const FULL: f64 = 0.95;
/// What the last look found counts so much of the mean: about four looks are remembered.
const OF_LAST_LOOK: f64 = 0.25;

/// What borrowers found in lines of tokens.
#[derive(Debug, Default)]
struct Looks(Mutex<HashMap<Option<ShareName>, Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    /// The line is asked again from then on.
    next: Timestamp,
    /// The part of what the line may lend that was there, a mean of the last looks.
    part_found: f64,
    /// Whether the last write took tokens and left enough for another call.
    had_more: bool,
}

/// What a write or a read of a borrower showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    /// The line, as the reply showed it.
    pub(super) line: &'a Bucket,
    /// What borrowers leave there.
    pub(super) floor: Amount,
    /// What the write took: nothing, if it failed, and of a read.
    pub(super) took: Amount,
    /// What the first caller asked for.
    pub(super) cost: Cost,
}

impl Shown<'_> {
    /// What can be borrowed after the write.
    fn left(self, now: Timestamp) -> Amount {
        self.line.level(now).minus(self.floor)
    }

    /// What a full line lends: at most what flows in during `LONGEST_TO_FILL`, and at least one call.
    fn may_lend(self) -> Amount {
        let (limit, call) = (self.line.limit(), self.cost.amount());
        let flows_in = limit.refill_rate().accrued_floor(LONGEST_TO_FILL);
        limit.capacity().minus(self.floor).min(flows_in).max(call)
    }

    /// The part of what the line may lend that was there before the write.
    fn part_found(self, now: Timestamp) -> f64 {
        part(self.left(now).plus(self.took), self.may_lend())
    }

    /// Whether the line was full before the write: its borrowers do not ask often enough. A line that held
    /// one call does not count: whoever takes its only call always finds it full.
    fn was_full(self, now: Timestamp) -> bool {
        let two = self.cost.amount().plus(self.cost.amount());
        self.part_found(now) >= FULL && self.left(now).plus(self.took) >= two
    }
}

/// The line that most likely lends `cost` now. A line that was full when a reply last showed it is asked at
/// once.
pub(super) fn lender(
    of_line: &Extensions,
    reading: &BucketReading,
    cost: Cost,
    now: Timestamp,
) -> Option<Lender> {
    if !reading.bucket.has_shares() {
        return None;
    }
    let looks = of_line.of::<Looks>();
    let looks = looks.0.lock();
    let read_at = now.before(reading.age(now));
    let is_asked = |line: &Bucket, floor: Amount| {
        let is_due = looks.get(&line.share().cloned()).is_none_or(|look| look.next <= now);
        is_due || Shown { line, floor, took: Amount::ZERO, cost }.was_full(read_at)
    };
    reading.bucket.lenders(cost, now).into_iter().find(|lender| is_asked(lender.line(), lender.floor()))
}

/// A write of a borrower was applied, or it or a read found too little.
pub(super) fn note_look(of_line: &Extensions, shown: Shown<'_>, now: Timestamp) {
    let looks = of_line.of::<Looks>();
    let mut looks = looks.0.lock();
    let share = shown.line.share().cloned();
    let should_find = part(shown.cost.amount(), shown.may_lend()).clamp(PART_FOUND, PART_FOUND_AT_MOST);
    let part_found = match looks.get(&share) {
        _ if shown.was_full(now) => 1.0,
        // Who found a call at its first look does not begin as one that finds less.
        None => should_find.max(part(shown.took, shown.may_lend())),
        // What this process left there.
        Some(look) if look.had_more => look.part_found,
        Some(look) => look.part_found + (shown.part_found(now) - look.part_found) * OF_LAST_LOOK,
    };
    let had_more = shown.took > Amount::ZERO && shown.left(now) >= shown.cost.amount();
    let pause =
        if had_more { Duration::ZERO } else { random_wait_around(pause(shown, part_found, should_find)) };
    looks.insert(share, Look { next: now.after(pause), part_found, had_more });
}

/// Whether this process mostly found less than one call in the line, so that its write would most likely
/// fail.
pub(super) fn finds_little(of_line: &Extensions, shown: Shown<'_>) -> bool {
    let looks = of_line.of::<Looks>();
    let looks = looks.0.lock();
    let one_call = part(shown.cost.amount(), shown.may_lend());
    let look = looks.get(&shown.line.share().cloned());
    look.is_some_and(|look| !look.had_more && look.part_found < one_call * MOSTLY)
}

/// The line has something to lend, although a write failed.
pub(super) fn ask_again(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) {
    if let Some(look) = of_line.of::<Looks>().0.lock().get_mut(&lender.cloned()) {
        look.next = look.next.min(now);
    }
}

/// The mean pause of a borrower that finds this part.
fn pause(shown: Shown<'_>, part_found: f64, should_find: f64) -> Duration {
    let fills_in = shown.line.limit().refill_rate().time_for(shown.may_lend()).unwrap_or_default();
    let shortest = if part_found > should_find { Duration::ZERO } else { SHORTEST_TO_FILL };
    let times = ((should_find - part_found) / STEP).exp2().clamp(SHORTEST, LONGEST);
    let fills_in = fills_in.max(shortest);
    fills_in.mul_f64(times).min(LONGEST_PAUSE.max(fills_in))
}

/// The part that `amount` is of `whole`, from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "pauses need no exact part")]
fn part(amount: Amount, whole: Amount) -> f64 {
    (amount.micros() as f64 / whole.micros() as f64).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use sluice_core::{Dimension, Limit, LimitType, Plan, Rate, RatePlanner, Take};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn calls(number: i32) -> Amount {
        Amount::from_tokens(number)
    }

    /// A line that lends `lends` calls if it is full, fills in `fills_in_ms`, and has `now_there` to borrow.
    fn line(lends: i32, fills_in_ms: u64, now_there: i32) -> Bucket {
        let rate = Rate::per(calls(lends), Duration::from_millis(fills_in_ms)).unwrap();
        let limit = Limit::rate(LimitType::Requests, calls(lends + FLOOR), rate, Cost::ONE).unwrap();
        let full = Bucket::full(Dimension::new("acme#rpm").unwrap(), limit, NOW);
        if lends == now_there {
            return full;
        }
        let cost = Cost::new(calls(lends - now_there)).unwrap();
        match RatePlanner::new(&full).plan(Take { cost, now: NOW, patience: Duration::ZERO }) {
            Plan::Write(planned) => planned.after,
            other => panic!("{other:?}"),
        }
    }

    /// What borrowers leave.
    const FLOOR: i32 = 10;

    fn shown(line: &Bucket, took: i32) -> Shown<'_> {
        Shown { line, floor: calls(FLOOR), took: calls(took), cost: Cost::ONE }
    }

    /// The mean pause after many looks that each find so many calls.
    fn mean_pause(lends: i32, fills_in_ms: u64, finds: i32) -> f64 {
        let (of_line, line) = (Extensions::default(), line(lends, fills_in_ms, finds));
        let pauses = (0..300).map(|_| {
            note_look(&of_line, shown(&line, 0), NOW);
            of_line.of::<Looks>().0.lock()[&None].next.since(NOW).as_secs_f64()
        });
        pauses.skip(50).sum::<f64>() / 250.0
    }

    #[test]
    fn the_less_borrowers_find_the_less_often_they_ask() {
        fastrand::seed(7);
        let cases = [
            // Of a hundred calls.
            (100, 1_000, 0, 4.0),
            (100, 1_000, 5, 2.0),
            (100, 1_000, 10, 1.0),
            (100, 1_000, 15, 0.5),
            (100, 1_000, 100, 0.5),
            // Of four calls, one should be there.
            (4, 1_000, 1, 1.0),
            (4, 1_000, 2, 0.5),
            (1, 1_000, 0, 4.0),
            // A line that fills fast, one that fills slowly, and one of which a call takes 10 s.
            (100, 10, 0, 1.2),
            (100, 10, 100, 0.005),
            (100, 60_000, 0, 8.0),
            (100, 60_000, 3, 1.0),
            (6, 60_000, 0, 10.0),
            (6, 60_000, 2, 5.0),
        ];
        for (lends, fills_in_ms, finds, secs) in cases {
            let pause = mean_pause(lends, fills_in_ms, finds);
            let is_near = pause > secs * 0.93 && pause < secs * 1.07;
            assert!(is_near, "{finds} of {lends} in {fills_in_ms} ms: {pause}");
        }
    }

    #[test]
    fn a_line_that_has_more_is_asked_again_at_once() {
        let of_line = Extensions::default();
        let look = || of_line.of::<Looks>().0.lock()[&None];
        note_look(&of_line, shown(&line(100, 1_000, 3), 1), NOW);
        assert_eq!((look().next, look().had_more), (NOW, true));
        let found = look().part_found;
        let empty = line(100, 1_000, 0);
        note_look(&of_line, shown(&empty, 1), NOW);
        assert!(look().next > NOW, "nothing is left");
        assert_eq!(look().part_found, found, "it found what it had left there itself");
        note_look(&of_line, shown(&empty, 0), NOW);
        assert!(look().part_found < found);
        note_look(&of_line, shown(&line(100, 1_000, 99), 1), NOW);
        assert_eq!(look().part_found, 1.0, "full once counts as full");
    }

    #[test]
    fn whoever_has_the_only_call_of_a_line_does_not_ask_sooner_for_that() {
        let (of_line, one) = (Extensions::default(), line(1, 1_000, 0));
        for _ in 0..20 {
            note_look(&of_line, shown(&one, 0), NOW);
        }
        note_look(&of_line, shown(&one, 1), NOW);
        assert!(of_line.of::<Looks>().0.lock()[&None].part_found < 0.3);
    }
}
