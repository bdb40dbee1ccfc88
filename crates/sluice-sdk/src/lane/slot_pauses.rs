//! How soon a line of slots is asked again after it had none to lend.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{ShareName, Timestamp};
use sluice_table::random_wait_around;

use crate::extensions::Extensions;

/// How long a line is not asked after it had none. Doubled for each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Lines that had no slot.
#[derive(Debug, Default)]
struct Pauses(Mutex<HashMap<Option<ShareName>, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    length: Duration,
}

/// Whether a line is asked now.
pub(super) fn is_asked(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) -> bool {
    let pauses = of_line.of::<Pauses>();
    let pauses = pauses.0.lock();
    pauses.get(&lender.cloned()).is_none_or(|pause| pause.until <= now)
}

/// A line has lent slots.
pub(super) fn has_lent(of_line: &Extensions, lender: Option<&ShareName>) {
    of_line.of::<Pauses>().0.lock().remove(&lender.cloned());
}

/// A line had no slot. Callers that asked it by the same reading count as one.
pub(super) fn had_no_slot(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) {
    let pauses = of_line.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let before = pauses.get(&lender.cloned()).copied();
    if before.is_some_and(|pause| pause.until > now) {
        return;
    }
    let doubled = |pause: Pause| (pause.length * 2).min(LONGEST_PAUSE);
    let length = before.map_or(FIRST_PAUSE, doubled);
    pauses.insert(lender.cloned(), Pause { until: now.after(random_wait_around(length)), length });
}

#[cfg(test)]
mod tests {
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
}
