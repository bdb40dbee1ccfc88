//! Answers of DynamoDB to requests that need a special right, or that not every endpoint supports.

use sluice_table::Probed;

use super::finding::{Check, Finding};

/// The reply. If there is none, a finding that says why `check` has no result.
pub(super) fn or_cannot_tell<T>(
    probed: Probed<T>,
    check: Check,
    table: &str,
    operation: &str,
) -> Result<T, Finding> {
    let cannot_tell = |why: String, todo: &str| Finding::note(check, table, why, todo);
    match probed {
        Probed::Given(reply) => Ok(reply),
        Probed::Denied => Err(cannot_tell(
            format!("cannot tell: needs dynamodb:{operation}"),
            "run `sluice doctor` with a role that has this right, or give it to this role; callers do not need it",
        )),
        Probed::Unsupported(_) => Err(cannot_tell(
            format!("cannot tell: this endpoint has no {operation}"),
            "nothing: this is an engine for development",
        )),
        Probed::Failed(message) => Err(cannot_tell(
            format!("cannot tell: {operation} failed: {message}"),
            "run `sluice doctor` again",
        )),
    }
}
