//! Findings about the table itself: whether it exists, and has the key, the TTL and the backups that the
//! schema relies on.

use aws_sdk_dynamodb::types::{
    BillingMode, KeyType, PointInTimeRecoveryStatus, ScalarAttributeType, TableDescription, TableStatus,
    TimeToLiveDescription, TimeToLiveStatus,
};
use sluice_sdk::Client;
use sluice_sdk::core::schema::{KEY, PURGE_AT, TTL};

use super::Place;
use super::answer::Answer;
use super::finding::{Check, Finding};

/// Every finding about the table.
pub(super) async fn examine(client: &Client, place: Place) -> Vec<Finding> {
    let (dynamo, table) = (client.dynamodb(), client.table());
    let (described, ttl, backups) = tokio::join!(
        dynamo.describe_table().table_name(table).send(),
        dynamo.describe_time_to_live().table_name(table).send(),
        dynamo.describe_continuous_backups().table_name(table).send(),
    );
    let mut findings = Vec::new();
    match Answer::of(described).or_cannot_tell(Check::Table, table, "DescribeTable") {
        Ok(reply) => {
            if let Some(described) = reply.table() {
                findings.push(of_state(table, described));
                findings.push(of_billing(table, described));
                findings.push(of_key(table, described));
                findings.push(of_protection(table, described).at_most_a_note_if(place.is_sandbox));
            }
        }
        Err(finding) => findings.push(finding),
    }
    findings.push(match Answer::of(ttl).or_cannot_tell(Check::Ttl, table, "DescribeTimeToLive") {
        Ok(reply) => of_ttl(table, reply.time_to_live_description()),
        Err(finding) => finding,
    });
    findings.push(match Answer::of(backups).or_cannot_tell(Check::Backups, table, "DescribeContinuousBackups") {
        Ok(reply) => {
            let described = reply.continuous_backups_description();
            let recovery = described.and_then(|described| described.point_in_time_recovery_description());
            let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status());
            of_backups(table, status).at_most_a_note_if(place.is_sandbox)
        }
        Err(finding) => finding,
    });
    findings
}

fn of_state(table: &str, described: &TableDescription) -> Finding {
    match described.table_status() {
        Some(TableStatus::Active) => Finding::fine(Check::Table, table, "active"),
        Some(TableStatus::Updating) => {
            Finding::note(Check::Table, table, "being changed (UPDATING)", "nothing: the table answers meanwhile")
        }
        status => {
            let status = status.map_or("unknown", TableStatus::as_str);
            let todo = "nobody can acquire: check the table's state in the console or in the account's events";
            Finding::problem(Check::Table, table, format!("not active: {status}"), todo)
        }
    }
}

/// Below this many provisioned write units a second, callers wait for the table itself: a grant of a slot
/// takes four units.
const LITTLE: i64 = 100;

fn of_billing(table: &str, described: &TableDescription) -> Finding {
    let mode = described.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let provisioned = described.provisioned_throughput();
    let writes = provisioned.and_then(|throughput| throughput.write_capacity_units()).unwrap_or(0);
    let reads = provisioned.and_then(|throughput| throughput.read_capacity_units()).unwrap_or(0);
    // DynamoDB leaves the mode out if a table was always provisioned, and returns zeros for a table on
    // demand.
    if mode == Some(&BillingMode::PayPerRequest) || (mode.is_none() && writes == 0) {
        return Finding::fine(Check::Table, table, "billed on demand");
    }
    let what = format!("provisioned, {writes} write and {reads} read units a second for all buckets together");
    let todo = "set the table to on demand (PAY_PER_REQUEST), as Terraform does: throttled writes delay grants";
    if writes < LITTLE {
        Finding::problem(Check::Table, table, what, todo)
    } else {
        Finding::note(Check::Table, table, what, todo)
    }
}

fn of_key(table: &str, described: &TableDescription) -> Finding {
    let keys = described.key_schema();
    let name_of = |kind: KeyType| keys.iter().find(|key| *key.key_type() == kind).map(|key| key.attribute_name());
    let (partition, sort) = (name_of(KeyType::Hash), name_of(KeyType::Range));
    let attribute = described.attribute_definitions().iter().find(|one| one.attribute_name() == KEY);
    let kind = attribute.map(|attribute| attribute.attribute_type());
    if (partition, sort, kind) == (Some(KEY), None, Some(&ScalarAttributeType::S)) {
        return Finding::fine(Check::Key, table, format!("partition key {KEY} (string), no sort key"));
    }
    let partition = partition.unwrap_or("none");
    let kind = kind.map_or(String::new(), |kind| format!(" ({})", kind.as_str()));
    let sort = sort.map_or(String::new(), |sort| format!(", sort key {sort}"));
    let todo = format!(
        "a key cannot be changed: create another table with the key {KEY} (S) alone, and set SLUICE_TABLE_NAME to its name"
    );
    Finding::problem(Check::Key, table, format!("the partition key is {partition}{kind}{sort}"), todo)
}

fn of_protection(table: &str, described: &TableDescription) -> Finding {
    if described.deletion_protection_enabled() == Some(true) {
        return Finding::fine(Check::Protection, table, "protected from deletion");
    }
    let todo = "turn deletion protection on (deletion_protection = true in Terraform); a sandbox may do without";
    Finding::problem(Check::Protection, table, "not protected from deletion", todo)
}

fn of_ttl(table: &str, described: Option<&TimeToLiveDescription>) -> Finding {
    let status = described.and_then(|described| described.time_to_live_status());
    let attribute = described.and_then(|described| described.attribute_name()).unwrap_or_default();
    let is_on = matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
    match attribute {
        TTL if is_on => Finding::danger(
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
        PURGE_AT if is_on => {
            Finding::fine(Check::Ttl, table, format!("TTL on {PURGE_AT}, seven days after a lease's end"))
        }
        other if is_on => Finding::problem(
            Check::Ttl,
            table,
            format!(
                "TTL is on the attribute {other}, which no row of Sluice has: DynamoDB never deletes rows that are not needed any more"
            ),
            format!("set TTL to {PURGE_AT}, as Terraform does"),
        ),
        _ => Finding::problem(
            Check::Ttl,
            table,
            "TTL is off: tickets that were redeemed and leases without a bucket stay for ever, and every sweep reads them",
            format!("turn TTL on for {PURGE_AT} (never for {TTL}), as Terraform does"),
        ),
    }
}

fn of_backups(table: &str, status: Option<&PointInTimeRecoveryStatus>) -> Finding {
    if status == Some(&PointInTimeRecoveryStatus::Enabled) {
        return Finding::fine(Check::Backups, table, "can be restored to a point in time");
    }
    let todo = "turn point-in-time recovery on, as Terraform does; the files of buckets hold limits, but only the table holds levels";
    Finding::problem(Check::Backups, table, "no continuous backups", todo)
}
