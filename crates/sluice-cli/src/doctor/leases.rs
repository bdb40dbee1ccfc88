//! Findings about leases that no sweep gave back, and about leases that cannot be read.

use sluice_ops::LeaseRow;
use sluice_sdk::core::{Lease, Timestamp};

use super::Place;
use super::finding::{Check, Finding};
use super::load::SANDBOX_IS_NOT_SWEPT;
use crate::output::relative;
use crate::view::{OVERDUE, has_ended, is_overdue};

pub(super) fn examine(rows: &[LeaseRow], table: &str, place: Place, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ended = rows.iter().filter_map(|row| row.lease.as_ref().ok()).filter(|lease| has_ended(lease, now));
    let (overdue, ended): (Vec<&Lease>, Vec<&Lease>) = ended.partition(|lease| is_overdue(lease, now));
    let count = overdue.len();
    if count > 0 {
        let minutes = OVERDUE.as_secs() / 60;
        let leases = if count == 1 { "1 lease" } else { &format!("{count} leases") };
        let what = format!("{leases} ended over {minutes} minutes ago, and what was held is not given back");
        let todo = match place.is_sandbox {
            true => SANDBOX_IS_NOT_SWEPT,
            false => {
                "check that the reconciler runs (its alarms, its rule), or run `sluice reconcile --once`, which says what it leaves"
            }
        };
        findings.push(Finding::problem(Check::Leases, table, what, todo));
    }
    if let Some(first) = ended.iter().map(|lease| lease.ends()).min() {
        let when = relative(first, now);
        let what = match ended.len() {
            1 => format!("1 lease ended {when}"),
            count => format!("{count} leases have ended, the first {when}"),
        };
        let todo = "nothing: a sweep, or a caller that is refused, gives back what ended leases held";
        findings.push(Finding::note(Check::Leases, table, what, todo));
    }
    for (row, fault) in rows.iter().filter_map(|row| row.lease.as_ref().err().map(|fault| (row, fault))) {
        let what = format!("the lease cannot be read, so nobody gives back what it holds: {fault}");
        let todo = "repair the attribute, or remove the row: the recount then finds its slot";
        findings.push(Finding::problem(Check::Rows, &row.key, what, todo));
    }
    findings
}
