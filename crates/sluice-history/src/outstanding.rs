//! Grants that were never released. Demanded of a run that ended in order; otherwise a holder may still hold.

use crate::log::{Entry, NEVER};
use crate::verdict::Violation;

/// The grants of a bucket without a release, as one violation.
pub(crate) fn check(dimension: &str, grants: &[Entry]) -> Option<Violation> {
    let kept = || grants.iter().filter(|grant| grant.released_at == NEVER);
    let first = kept().min_by_key(|grant| grant.granted_at)?;
    Some(Violation::NotReleased {
        dimension: dimension.to_owned(),
        not_released: kept().count() as u64,
        grants: grants.len() as u64,
        first_id: first.id.to_string(),
        first_granted_at_micros: first.granted_at,
    })
}
