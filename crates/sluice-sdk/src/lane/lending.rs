//! What a line borrows of others: which line is asked, and, for slots, how soon again after it had nothing.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Claim, Cost, RatePlanner, ShareName, Timestamp};
use sluice_table::random_wait_around;

use crate::extensions::Extensions;
use crate::lane::rivals;

/// How long a line of slots is not asked after it had too little. Doubled for each failure, until it lends. A
/// longer time leaves more of an idle line unused, a shorter one costs more failed writes beside a busy one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Lines of slots that had less than a reading said.
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
    let claim = Claim { cost, patience: Duration::ZERO };
    let lends = |lent: &(Bucket, Amount)| borrowing(of_line, lent, now).refusal(claim, now).is_none();
    bucket.lenders(cost, now).into_iter().find(lends)
}

/// Plans what is borrowed of a line that [`lender`] returned.
pub(super) fn borrowing<'a>(
    of_line: &Extensions,
    lent: &'a (Bucket, Amount),
    now: Timestamp,
) -> RatePlanner<'a> {
    RatePlanner::borrowing(lent).giving_way(rivals::way_at(of_line, lent.0.share(), now))
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

/// A line of slots had too little.
pub(super) fn had_too_little(of_line: &Extensions, lender: Option<&ShareName>, now: Timestamp) {
    let pauses = of_line.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let before = pauses.get(&lender.cloned()).map(|pause| pause.length);
    let length = before.map_or(FIRST_PAUSE, |before| (before * 2).min(LONGEST_PAUSE));
    pauses.insert(lender.cloned(), Pause::from(now, length));
}
