//! Finds out which rights of the caller policy (`infra/modules/caller-policy`) this role lacks, by requests
//! that change nothing.

use sluice_sdk::core::schema::{LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX};
use sluice_table::{Probe, Probed};

use super::finding::{Check, Finding};

/// Actions on any row.
pub(super) const CALLER: [&str; 3] = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"];
/// Actions on some rows only, by the prefix of their keys.
pub(super) const ON_ROWS: [(&str, &[&str]); 2] =
    [("dynamodb:PutItem", &[LEASE_PREFIX, TICKET_PREFIX]), ("dynamodb:DeleteItem", &[LEASE_PREFIX])];
/// Actions on the table, to give back what crashed callers held.
pub(super) const HEALING: [&str; 1] = ["dynamodb:Scan"];

/// The rows that are tried: of a vendor, for a role that may use no other, or of any.
#[derive(Clone, Copy)]
struct Tried<'a> {
    vendor: Option<&'a str>,
}

impl Tried<'_> {
    /// The name of a bucket that is none: rows of it belong to nothing.
    fn bucket(self) -> String {
        format!("{}#sluice-doctor", self.vendor.unwrap_or("sluice"))
    }

    /// The rows with this prefix, as a policy names them.
    fn pattern(self, prefix: &str) -> String {
        self.vendor.map_or_else(|| format!("{prefix}*"), |vendor| format!("{prefix}{vendor}#*"))
    }
}

pub(super) async fn examine(probe: Probe<'_>, vendor: Option<&str>) -> Vec<Finding> {
    let tried = Tried { vendor };
    let of_callers = [&CALLER[..], &ON_ROWS.map(|(action, _)| action)].concat();
    let (mut callers, failures_of_callers) = lacks_and_failures(probe, tried, &of_callers).await;
    let (heals, failures_of_heals) = lacks_and_failures(probe, tried, &HEALING).await;
    let table = probe.table();
    let mut findings = Vec::new();
    if only_reads(&callers, tried) {
        findings.push(Finding::note(Check::Rights, table, ONLY_READS, TO_WRITE));
        callers.clear();
    }
    for (action, on) in &callers {
        let what = format!("this role may not {action} on {on}");
        findings.push(Finding::problem(Check::Rights, table, what, todo(action, on)));
    }
    let mut may_call = false;
    if callers.is_empty() && failures_of_callers.is_empty() && findings.is_empty() {
        // The writes of an acquire and of a release.
        let bucket = tried.bucket();
        let (taken, given) =
            (format!("{LEASE_PREFIX}{bucket}#taken"), format!("{LEASE_PREFIX}{bucket}#given"));
        let probed = probe.right_to_transact(&bucket, &taken, &given).await;
        may_call = matches!(probed, Probed::Given(()));
        findings.push(of_transactions(table, probed));
    }
    for (action, on) in &heals {
        let what = format!(
            "this role may not {action} on {on}: what crashed callers held comes back with the reconciler's next sweep, unless a \
             process with another role is sooner"
        );
        findings.push(Finding::note(Check::Rights, table, what, todo(action, on)));
    }
    // Healing needs a scan, and then the writes of any caller: marks, deletes of leases, releases of slots.
    if heals.is_empty() && failures_of_heals.is_empty() && may_call {
        findings.push(Finding::fine(
            Check::Rights,
            table,
            "this role may give back what crashed callers held",
        ));
    }
    findings.into_iter().chain(failures_of_callers).chain(failures_of_heals).collect()
}

const ONLY_READS: &str = "this role may read, and write nothing: it can acquire nothing";
const TO_WRITE: &str = "attach the policy sluice-caller-{env} if this is the role of a caller (docs/operations.md, Rights); nothing, if it is the role of \
     a person who only reads";

/// Whether the role lacks all writes of a caller, and no read: such a policy is meant so.
fn only_reads(lacks: &[(&str, String)], tried: Tried<'_>) -> bool {
    let writes =
        |action: &str| ["dynamodb:UpdateItem", "dynamodb:PutItem", "dynamodb:DeleteItem"].contains(&action);
    lacks.len() == 3 && lacks.iter().all(|(action, on)| writes(action) && *on == all_of(tried, action))
}

/// IAM has no separate right for transactions, but the policy of a VPC endpoint or of an organisation may
/// deny them.
fn of_transactions(table: &str, probed: Probed<()>) -> Finding {
    match probed {
        Probed::Given(()) => Finding::fine(Check::Rights, table, "this role may acquire, renew and release"),
        Probed::Denied => Finding::problem(
            Check::Rights,
            table,
            "this role may do each write of a transaction, but not TransactWriteItems: slots cannot be acquired",
            "look for a Deny in the role's policies or boundary, or in the policy of the organisation or the VPC endpoint",
        ),
        Probed::Unsupported(why) | Probed::Failed(why) => failed(table, "TransactWriteItems", &why),
    }
}

fn todo(action: &str, on: &str) -> String {
    format!(
        "attach the policy sluice-caller-{{env}} to roles of callers, or allow {action} on {on} (docs/operations.md, Rights); nothing, if \
         this is the role of a person who only reads"
    )
}

fn failed(table: &str, action: &str, why: &str) -> Finding {
    let todo = "run `sluice doctor` again; if the finding stays, callers get the same error";
    Finding::note(Check::Rights, table, format!("cannot tell whether this role may {action}: {why}"), todo)
}

/// The missing actions, each with the rows that it is missing on, and the probes without a result.
async fn lacks_and_failures(
    probe: Probe<'_>,
    tried: Tried<'_>,
    actions: &[&'static str],
) -> (Vec<(&'static str, String)>, Vec<Finding>) {
    let (mut lacks, mut failures) = (Vec::new(), Vec::new());
    for action in actions {
        let (mut on, mut why_not) = (Vec::new(), None);
        let all = rows_of(tried, action);
        let how_many = all.len();
        for (rows, key) in all {
            match probe.right(action, &key).await {
                Probed::Given(()) => {}
                Probed::Denied => on.push(rows),
                Probed::Unsupported(why) | Probed::Failed(why) => why_not = Some(why),
            }
        }
        failures.extend(why_not.map(|why| failed(probe.table(), action, &why)));
        if !on.is_empty() {
            let on = if on.len() == how_many { all_of(tried, action) } else { on.join(", ") };
            lacks.push((*action, on));
        }
    }
    (lacks, failures)
}

/// The rows that an action applies to, as a policy names them, each with a key to probe.
fn rows_of(tried: Tried<'_>, action: &str) -> Vec<(String, String)> {
    let bucket = tried.bucket();
    let with_prefix = |prefix: &&str| (tried.pattern(prefix), format!("{prefix}{bucket}#probe"));
    if let Some(prefixes) = only_on(action) {
        return prefixes.iter().map(with_prefix).collect();
    }
    if action == "dynamodb:Scan" {
        return vec![("the table".into(), String::new())];
    }
    let load = format!("{LOAD_PREFIX}{bucket}");
    let others = [("buckets".into(), bucket.clone()), (tried.pattern(LOAD_PREFIX), load)];
    others.into_iter().chain([LEASE_PREFIX, TICKET_PREFIX].iter().map(with_prefix)).collect()
}

/// Everything that an action applies to, for a message that the action is missing on all of it.
fn all_of(tried: Tried<'_>, action: &str) -> String {
    let Some(prefixes) = only_on(action) else { return "the table".into() };
    let rows: Vec<String> = prefixes.iter().map(|prefix| tried.pattern(prefix)).collect();
    rows.join(", ")
}

/// The key prefixes that an action applies to, if it does not apply to all rows.
fn only_on(action: &str) -> Option<&'static [&'static str]> {
    ON_ROWS.iter().find(|(one, _)| *one == action).map(|(_, prefixes)| *prefixes)
}
