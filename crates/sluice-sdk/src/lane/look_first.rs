//! Whether a read looks first, before a write that would most likely fail.
//!
//! Several processes want the same token of a share, and one has it. The writes of the others fail, and a write
//! that fails costs as much as one that succeeds: five times the read that would have shown that nothing is
//! there. So if most of the last looks of a process at a line were in vain, it reads the row first, and writes
//! only if the line has something. A call then takes one more request, but fewer failed writes stand before it.
//!
//! A read saves nothing if all look at the same instant: each sees the token before one of them takes it. So
//! such a process tells refused callers that do not wait random times within the next calls' refill.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_core::{Bucket, Cost, Reason, Refusal, ShareName};
use sluice_table::random_wait_up_to;

use crate::extensions::Extensions;
use crate::lane::entry::Entry;

/// More of the last looks than this part must have been in vain. A smaller part saves failed writes, and makes
/// more calls take a request more.
const MOST: f64 = 0.5;
/// What the last look found counts so much of the mean: about four looks are remembered.
const OF_LAST_LOOK: f64 = 0.25;
/// Refused callers come back within the time in which so many calls flow in. A larger value saves reads, and
/// callers come back later.
const CALLS_SPREAD: u32 = 2;

/// For each line: the part of the last looks that were in vain.
#[derive(Debug, Default)]
struct InVain(Mutex<HashMap<Option<ShareName>, f64>>);

/// Notes a write that took from the line or failed, or a read in its place that showed too little.
pub(super) fn note(of_line: &Extensions, line: &Bucket, was_in_vain: bool) {
    if !line.has_shares() {
        return;
    }
    let parts = of_line.of::<InVain>();
    let mut parts = parts.0.lock();
    let share = line.share().cloned();
    if was_in_vain {
        let part = parts.entry(share).or_default();
        *part += (1.0 - *part) * OF_LAST_LOOK;
    } else if let Some(part) = parts.get_mut(&share) {
        *part *= 1.0 - OF_LAST_LOOK;
    }
}

/// Whether most of the last looks at the line were in vain.
pub(super) fn is_mostly_in_vain(of_line: &Extensions, line: &Bucket) -> bool {
    let in_vain =
        |parts: &InVain| parts.0.lock().get(&line.share().cloned()).is_some_and(|part| *part > MOST);
    line.has_shares() && in_vain(&of_line.of::<InVain>())
}

/// What is told to a refused caller that does not wait. If most looks are in vain, callers come back at different
/// times, each at random. Whoever was faster has no advantage.
pub(super) fn told(entry: &Entry, refusal: Refusal, cost: Cost) -> Refusal {
    let Some(line) = entry.reading().map(|reading| reading.bucket) else { return refusal };
    if refusal.reason != Reason::Exhausted || !is_mostly_in_vain(&entry.extensions, &line) {
        return refusal;
    }
    let a_call = line.limit().refill_rate().time_for(cost.amount()).unwrap_or_default();
    let later = random_wait_up_to(a_call.saturating_mul(CALLS_SPREAD));
    Refusal { wait: refusal.wait.saturating_add(later), ..refusal }
}
