//! How long a process lets others go first at a line of a bucket with shares.
//!
//! All processes that wait for the same tokens know the instant at which the next are there: a borrower, a
//! caller that was refused, and one that wants to book as far ahead as it is willing to wait. If they all
//! came then, one would have the tokens, and the writes of the others would fail. So a process whose writes
//! failed comes later by a random time: the more often they failed, the later.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{ShareName, Timestamp};
use sluice_table::random_wait_up_to;

use crate::extensions::Extensions;

/// The longest time after the first failure. Half as long again after each failure, and a tenth shorter after
/// each success: so one write in five fails where many compete, however many they are.
const FIRST: Duration = Duration::from_millis(20);
/// A larger value saves writes where very many compete, and leaves more of an idle line unused.
const LONGEST: Duration = Duration::from_secs(1);

/// What a process has seen of its rivals at the lines of a bucket.
#[derive(Debug, Default)]
struct Rivals(Mutex<HashMap<Option<ShareName>, Way>>);

/// How long the process lets others go first, and the longest time that it could have been.
///
/// It ends. Somebody may take each token before so many are there, and a process that lets others go first
/// for ever would get nothing.
#[derive(Clone, Copy, Debug)]
struct Way {
    time: Duration,
    until: Timestamp,
    longest: Duration,
}

/// How long the callers of a line let others go first at `line`, which is theirs or one that lends.
pub(super) fn way_at(of_line: &Extensions, line: Option<&ShareName>, now: Timestamp) -> Duration {
    let rivals = of_line.of::<Rivals>();
    let ways = rivals.0.lock();
    // A clock that was set back makes no way longer.
    let goes_on = |way: &&Way| now < way.until && way.until.since(now) <= way.time * 2;
    ways.get(&line.cloned()).filter(goes_on).map_or(Duration::ZERO, |way| way.time)
}

/// A write failed: others had taken the tokens for which it was sent.
pub(super) fn lost(of_line: &Extensions, line: Option<&ShareName>, now: Timestamp) {
    change(of_line, line, now, |longest| (longest * 3 / 2).clamp(FIRST, LONGEST));
}

/// A write was applied.
pub(super) fn won(of_line: &Extensions, line: Option<&ShareName>, now: Timestamp) {
    change(of_line, line, now, |longest| longest * 9 / 10);
}

fn change(
    of_line: &Extensions,
    line: Option<&ShareName>,
    now: Timestamp,
    change: impl FnOnce(Duration) -> Duration,
) {
    let rivals = of_line.of::<Rivals>();
    let mut ways = rivals.0.lock();
    let before = ways.get(&line.cloned()).map_or(Duration::ZERO, |way| way.longest);
    let longest = change(before);
    match longest < FIRST / 4 {
        true => drop(ways.remove(&line.cloned())),
        false => {
            let time = random_wait_up_to(longest);
            let until = now.after(time * 2);
            ways.insert(line.cloned(), Way { time, until, longest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn others_go_first_for_longer_after_each_failure_and_for_less_after_each_success() {
        let of_line = Extensions::default();
        let search = ShareName::new("search").unwrap();
        let (line, longest) = (Some(&search), |line: Option<&ShareName>| {
            let rivals = of_line.of::<Rivals>();
            let ways = rivals.0.lock();
            ways.get(&line.cloned()).map(|way| way.longest)
        });
        assert_eq!(way_at(&of_line, line, NOW), Duration::ZERO);
        won(&of_line, line, NOW);
        assert_eq!(longest(line), None, "nothing is kept of a line without rivals");
        lost(&of_line, line, NOW);
        assert_eq!(longest(line), Some(FIRST));
        assert_eq!(longest(None), None, "each line has its own");
        (0..20).for_each(|_| lost(&of_line, line, NOW));
        assert_eq!(longest(line), Some(LONGEST));
        let ways: Vec<_> = (0..50)
            .map(|_| {
                lost(&of_line, line, NOW);
                way_at(&of_line, line, NOW)
            })
            .collect();
        assert!(ways.iter().all(|way| *way <= LONGEST) && ways.iter().any(|way| *way != ways[0]));
        let later = NOW.after(LONGEST * 2);
        assert_eq!(way_at(&of_line, line, later), Duration::ZERO, "others do not go first for ever");
        (0..60).for_each(|_| won(&of_line, line, NOW));
        assert_eq!((longest(line), way_at(&of_line, line, NOW)), (None, Duration::ZERO));
    }
}
