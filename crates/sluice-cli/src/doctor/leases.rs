//! Leases that no sweep came for, and those that cannot be read.

use std::time::Duration;

use sluice_sdk::LeaseRow;
use sluice_sdk::core::Timestamp;

use super::finding::{Check, Finding};

/// A lease that ended so long ago was missed by two sweeps of the five-minute rule.
const OVERDUE: Duration = Duration::from_secs(11 * 60);

pub(super) fn examine(rows: &[LeaseRow], table: &str, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let overdue = |row: &&LeaseRow| row.lease.as_ref().is_ok_and(|lease| now.since(lease.ends()) > OVERDUE);
    let count = rows.iter().filter(overdue).count();
    if count > 0 {
        let minutes = OVERDUE.as_secs() / 60;
        let leases = if count == 1 { "1 lease" } else { &format!("{count} leases") };
        let what = format!("{leases} ended over {minutes} minutes ago and no sweep came");
        let todo = "see that the reconciler runs (its alarms, its rule), or run `sluice reconcile`";
        findings.push(Finding::problem(Check::Leases, table, what, todo));
    }
    for (row, fault) in rows.iter().filter_map(|row| row.lease.as_ref().err().map(|fault| (row, fault))) {
        let what = format!("the lease cannot be read, and what it holds is not given back: {fault}");
        let todo = "mend the attribute, or remove the row; the recount finds its slot";
        findings.push(Finding::problem(Check::Rows, &row.key, what, todo));
    }
    findings
}
