//! What a line borrows of others: which line is asked, and how soon again after it had nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Cost, ShareName, Timestamp};
use sluice_table::random_wait_around;

use crate::extensions::Extensions;

/// How long a line is not asked after it had too little. Doubled for each failure, and three quarters after
/// each success: few borrowers who compete for what flows in meet about one failure for two successes. A
/// longer time leaves more of an idle line unused, a shorter one costs more failed writes beside a busy one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause of a line of slots.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause of a line of tokens after a failed write is the time in which it fills, between these two.
/// So little of what it may lend is lost. The first keeps failed writes few at lines that fill faster, and the
/// second lets borrowers find within seconds that a slow line lends again.
const SHORTEST_TO_FILL: Duration = Duration::from_millis(300);
const LONGEST_TO_FILL: Duration = Duration::from_secs(2);

/// Lines that had less than a reading said.
#[derive(Debug, Default)]
struct Pauses(Mutex<HashMap<Option<ShareName>, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    length: Duration,
}

impl Pause {
    /// From now on, and not for all borrowers at once.
    fn from(now: Timestamp, length: Duration) -> Self {
        Self { until: now.after(random_wait_around(length)), length }
    }
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
    let pauses = of_line.of::<Pauses>();
    let pauses = pauses.0.lock();
    let is_asked =
        |lender: &Bucket| pauses.get(&lender.share().cloned()).is_none_or(|pause| pause.until <= now);
    bucket.lenders(cost, now).into_iter().find(|(lender, _)| is_asked(lender))
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

/// The line of a rate bucket had too little, with what its borrowers leave there.
pub(super) fn had_too_little(of_line: &Extensions, lender: &Bucket, floor: Amount, now: Timestamp) {
    let room = lender.limit().capacity().minus(floor).max(Amount::ZERO);
    let fills_in = lender.limit().refill_rate().time_for(room).unwrap_or_default();
    let fills_in = fills_in.clamp(SHORTEST_TO_FILL, LONGEST_TO_FILL);
    pauses(of_line, lender.share(), fills_in, now, Some(fills_in));
}

/// The line of a concurrency bucket had no slot.
pub(super) fn had_no_slot(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) {
    pauses(of_line, lender, LONGEST_PAUSE, now, None);
}

/// Callers that asked a line by the same reading count as one.
fn pauses(
    of_line: &Extensions,
    lender: Option<&ShareName>,
    longest: Duration,
    now: Timestamp,
    bound: Option<Duration>,
) {
    let pauses = of_line.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let before = pauses.get(&lender.cloned()).copied();
    if before.is_some_and(|pause| pause.until > now) {
        return;
    }
    let length = before.map(|pause| pause.length).map_or(FIRST_PAUSE, |before| (before * 2).min(longest));
    let pause = Pause::from(now, length);
    let until = bound.map_or(pause.until, |bound| pause.until.min(now.after(bound)));
    pauses.insert(lender.cloned(), Pause { until, ..pause });
}

/// A line lent, and is as `lender` sees it now. If it has more, it is asked again at once.
pub(super) fn lent(of_line: &Extensions, lender: &Bucket, floor: Amount, now: Timestamp) {
    let pauses: Arc<Pauses> = of_line.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let share = lender.share().cloned();
    let Some(pause) = pauses.get(&share) else { return };
    let length = pause.length * 3 / 4;
    let has_more = lender.level(now).minus(floor) >= lender.limit().cost_per_call().amount();
    match length >= FIRST_PAUSE {
        true if has_more => drop(pauses.insert(share, Pause { until: now, length })),
        true => drop(pauses.insert(share, Pause::from(now, length))),
        false => drop(pauses.remove(&share)),
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Dimension, Limit, LimitType, Rate};

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

    #[test]
    fn a_line_of_tokens_is_asked_again_by_the_time_that_it_takes_to_fill() {
        let now = Timestamp::from_secs(1_800_000_000);
        let (capacity, floor) = (Amount::from_tokens(110), Amount::from_tokens(10));
        for (fills_in_ms, pauses_ms) in [(10, 150..=300), (1_000, 500..=1_000), (30_000, 1_000..=2_000)] {
            let rate = Rate::per(Amount::from_tokens(100), Duration::from_millis(fills_in_ms)).unwrap();
            let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
            let lender = Bucket::full(Dimension::new("acme#rpm").unwrap(), limit, now);
            let (of_line, mut now) = (Extensions::default(), now);
            let mut last_ms = 0;
            for _ in 0..20 {
                had_too_little(&of_line, &lender, floor, now);
                let until = of_line.of::<Pauses>().0.lock()[&None].until;
                (last_ms, now) = (until.since(now).as_millis(), until);
            }
            assert!(pauses_ms.contains(&last_ms), "{fills_in_ms} ms to fill: a pause of {last_ms} ms");
        }
    }
}
