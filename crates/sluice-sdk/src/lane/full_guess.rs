//! Whether a line of a bucket with shares is full when a reading says so.
//!
//! A reading that is older than the time in which the line fills says that the line is full. If others keep
//! spending, that is wrong, and each write that requires a full line fails. So a process notes what its last
//! failed write showed. A wrong guess costs one failed write: the condition of the write carries the safety.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_core::{Bucket, Form, ShareName, Timestamp};

use crate::extensions::Extensions;

/// For each line: whether its last failed write showed that others keep it from being full (`true`), or that
/// it is full (`false`).
#[derive(Debug, Default)]
struct Spent(Mutex<HashMap<Option<ShareName>, bool>>);

/// Whether others have most likely spent from this line since a reading that says that it is full.
pub(super) fn expects_spent(of_line: &Extensions, line: &Bucket) -> bool {
    let is_spent = |spent: &Spent| spent.0.lock().get(&line.share().cloned()).copied();
    line.has_shares() && is_spent(&of_line.of::<Spent>()).unwrap_or(false)
}

/// Notes a failed write of this form. Its reply showed `line`.
pub(super) fn note_failed_write(of_line: &Extensions, line: &Bucket, form: Form, now: Timestamp) {
    let is_full = line.is_full(now);
    if line.has_shares() && is_full != (form == Form::Full) {
        of_line.of::<Spent>().0.lock().insert(line.share().cloned(), !is_full);
    }
}
