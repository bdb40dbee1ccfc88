//! What a line borrows of others: which line is asked, and how soon again after it had nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Bucket, Cost, ShareName, Timestamp};

use crate::lane::entry::Entry;

/// How long a line is not asked after a write found too little there. Doubled for each time in succession: a longer
/// time leaves more of an idle line unused, a shorter one costs more failed writes beside a busy one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Lines that had less than a reading said.
#[derive(Debug, Default)]
struct Pauses(Mutex<HashMap<Option<ShareName>, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    next: Duration,
}

/// The line that most likely lends `cost` now, as the bucket is seen from it, with what a borrower leaves there.
pub(super) fn lender(
    entry: &Entry,
    bucket: &Bucket,
    cost: Cost,
    now: Timestamp,
) -> Option<(Bucket, sluice_core::Amount)> {
    if !bucket.has_shares() {
        return None;
    }
    let pauses = entry.extensions.of::<Pauses>();
    let pauses = pauses.0.lock();
    let is_asked = |lender: &Bucket| pauses.get(&lender.share().cloned()).is_none_or(|pause| pause.until <= now);
    bucket.lenders(cost, now).into_iter().find(|(lender, _)| is_asked(lender))
}

/// A line had too little.
pub(super) fn had_too_little(entry: &Entry, lender: Option<&ShareName>, now: Timestamp) {
    let pauses = entry.extensions.of::<Pauses>();
    let mut pauses = pauses.0.lock();
    let pause = pauses.entry(lender.cloned()).or_insert(Pause { until: now, next: FIRST_PAUSE });
    *pause = Pause { until: now.after(pause.next), next: (pause.next * 2).min(LONGEST_PAUSE) };
}

/// A line lent.
pub(super) fn lent(entry: &Entry, lender: Option<&ShareName>) {
    let pauses: Arc<Pauses> = entry.extensions.of::<Pauses>();
    pauses.0.lock().remove(&lender.cloned());
}
