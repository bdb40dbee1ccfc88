//! Findings about the table itself: whether it exists, and has the key, the TTL and the backups that the
//! schema relies on.

use sluice_sdk::core::schema::{KEY, PURGE_AT, TTL};
use sluice_table::{Probe, Provisioned, TableDescription};

use super::Place;
use super::answer::or_cannot_tell;
use super::finding::{Check, Finding};

/// Every finding about the table.
pub(super) async fn examine(probe: Probe<'_>, place: Place) -> Vec<Finding> {
    let table = probe.table();
    let (described, ttl, backups) = tokio::join!(probe.description(), probe.ttl(), probe.has_backups());
    let mut findings = Vec::new();
    match or_cannot_tell(described, Check::Table, table, "DescribeTable") {
        Ok(described) => {
            if let Some(described) = described {
                findings.push(of_state(table, &described));
                findings.push(of_billing(table, described.provisioned));
                findings.push(of_key(table, &described));
                findings.extend(of_replicas(table, &described.replicas));
                findings.push(of_protection(table, &described).at_most_a_note_if(place.is_sandbox));
            }
        }
        Err(finding) => findings.push(finding),
    }
    findings.push(match or_cannot_tell(ttl, Check::Ttl, table, "DescribeTimeToLive") {
        Ok(attribute) => of_ttl(table, attribute.as_deref()),
        Err(finding) => finding,
    });
    findings.push(match or_cannot_tell(backups, Check::Backups, table, "DescribeContinuousBackups") {
        Ok(has_backups) => of_backups(table, has_backups).at_most_a_note_if(place.is_sandbox),
        Err(finding) => finding,
    });
    findings
}

fn of_state(table: &str, described: &TableDescription) -> Finding {
    match described.status.as_deref() {
        Some("ACTIVE") => Finding::fine(Check::Table, table, "active"),
        Some("UPDATING") => Finding::note(
            Check::Table,
            table,
            "being changed (UPDATING)",
            "nothing: the table answers meanwhile",
        ),
        status => {
            let status = status.unwrap_or("unknown");
            let todo =
                "nobody can acquire: check the table's state in the console or in the account's events";
            Finding::problem(Check::Table, table, format!("not active: {status}"), todo)
        }
    }
}

/// Below this many provisioned write units a second, callers wait for the table itself: a grant of a slot
/// takes four units.
const LITTLE: i64 = 100;

fn of_billing(table: &str, provisioned: Option<Provisioned>) -> Finding {
    let Some(Provisioned { write_units: writes, read_units: reads }) = provisioned else {
        return Finding::fine(Check::Table, table, "billed on demand");
    };
    let what =
        format!("provisioned, {writes} write and {reads} read units a second for all buckets together");
    let todo =
        "set the table to on demand (PAY_PER_REQUEST), as Terraform does: throttled writes delay grants";
    if writes < LITTLE {
        Finding::problem(Check::Table, table, what, todo)
    } else {
        Finding::note(Check::Table, table, what, todo)
    }
}

fn of_key(table: &str, described: &TableDescription) -> Finding {
    let (partition, sort) = (described.partition_key.as_deref(), described.sort_key.as_deref());
    let kind = described.key_type.as_deref();
    if (partition, sort, kind) == (Some(KEY), None, Some("S")) {
        return Finding::fine(Check::Key, table, format!("partition key {KEY} (string), no sort key"));
    }
    let partition = partition.unwrap_or("none");
    let kind = kind.map_or(String::new(), |kind| format!(" ({kind})"));
    let sort = sort.map_or(String::new(), |sort| format!(", sort key {sort}"));
    let todo = format!(
        "a key cannot be changed: create another table with the key {KEY} (S) alone, and set SLUICE_TABLE_NAME to its name"
    );
    Finding::problem(Check::Key, table, format!("the partition key is {partition}{kind}{sort}"), todo)
}

/// Replicas copy rows after they were written, and the last write wins: a condition sees its own Region
/// alone.
fn of_replicas(table: &str, replicas: &[String]) -> Option<Finding> {
    let todo = "remove the replicas, or let no client and no reconciler use them: in two Regions, one limit is granted twice, and slots \
                are lost and minted (docs/operations.md, \"After a disaster\")";
    let what = || format!("a global table, with replicas in {}", replicas.join(", "));
    (!replicas.is_empty()).then(|| Finding::problem(Check::Table, table, what(), todo))
}

fn of_protection(table: &str, described: &TableDescription) -> Finding {
    if described.is_protected {
        return Finding::fine(Check::Protection, table, "protected from deletion");
    }
    let todo =
        "turn deletion protection on (deletion_protection = true in Terraform); a sandbox may do without";
    Finding::problem(Check::Protection, table, "not protected from deletion", todo)
}

fn of_ttl(table: &str, attribute: Option<&str>) -> Finding {
    match attribute {
        Some(TTL) => Finding::danger(
            Check::Ttl,
            table,
            format!(
                "TTL IS ON THE ATTRIBUTE {TTL}: DynamoDB deletes leases when they end, and with each lease the only trace of a slot that a \
                 crashed caller held; the slot is then lost until two sweeps have recounted its bucket"
            ),
            format!(
                "turn TTL off now (aws dynamodb update-time-to-live), then on for {PURGE_AT}, which Terraform sets; DynamoDB may \
                 take an hour between the two"
            ),
        ),
        Some(PURGE_AT) => {
            Finding::fine(Check::Ttl, table, format!("TTL on {PURGE_AT}, seven days after a lease's end"))
        }
        Some(other) => Finding::problem(
            Check::Ttl,
            table,
            format!(
                "TTL is on the attribute {other}, which no row of Sluice has: DynamoDB never deletes rows that are not needed any more"
            ),
            format!("set TTL to {PURGE_AT}, as Terraform does"),
        ),
        None => Finding::problem(
            Check::Ttl,
            table,
            "TTL is off: tickets that were redeemed and leases without a bucket stay for ever, and every sweep reads them",
            format!("turn TTL on for {PURGE_AT} (never for {TTL}), as Terraform does"),
        ),
    }
}

fn of_backups(table: &str, has_backups: bool) -> Finding {
    if has_backups {
        return Finding::fine(Check::Backups, table, "can be restored to a point in time");
    }
    let todo = "turn point-in-time recovery on, as Terraform does; the files of buckets hold limits, but only the table holds levels";
    Finding::problem(Check::Backups, table, "no continuous backups", todo)
}
