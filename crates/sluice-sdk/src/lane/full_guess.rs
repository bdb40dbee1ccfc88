//! Whether a line of a bucket with shares is full when a reading says so.
//!
//! A reading that is older than the line takes to fill says that the line is full. If others keep it from that,
//! a write that requires a full line fails each time. So a process notes what its last failed write found. A
//! wrong guess costs one failed write: the condition of the write carries the safety.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_core::{Bucket, Form, ShareName, Timestamp};

use crate::extensions::Extensions;

/// Lines that others keep from being full.
#[derive(Debug, Default)]
struct Spent(Mutex<HashMap<Option<ShareName>, bool>>);

/// Whether others most likely spent of this line when a reading says that it is full.
pub(super) fn expects_spent(of_line: &Extensions, line: &Bucket) -> bool {
    let is_spent = |spent: &Spent| spent.0.lock().get(&line.share().cloned()).copied();
    line.has_shares() && is_spent(&of_line.of::<Spent>()).unwrap_or(false)
}

/// A write of this form failed, and the line is as `line` sees it.
pub(super) fn found(of_line: &Extensions, line: &Bucket, form: Form, now: Timestamp) {
    let is_full = line.level(now) >= line.limit().capacity();
    if line.has_shares() && is_full != (form == Form::Full) {
        of_line.of::<Spent>().0.lock().insert(line.share().cloned(), !is_full);
    }
}
