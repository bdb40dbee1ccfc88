//! Finds out which rights of the caller policy (`infra/modules/caller-policy`) this role lacks, by requests
//! that change nothing.
//!
//! Each probe of a write has a condition that no row can meet, on a key that belongs to nothing. DynamoDB
//! checks the right first, so a false condition means that the role has the right.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, Delete, KeysAndAttributes, Put, TransactWriteItem, Update};
use sluice_sdk::Client;
use sluice_sdk::core::schema::{KEY, LEASE_PREFIX, TICKET_PREFIX};

use super::finding::{Check, Finding};

/// Actions on any row.
pub(super) const CALLER: [&str; 3] = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"];
/// Actions on some rows only, by the prefix of their keys.
pub(super) const ON_ROWS: [(&str, &[&str]); 2] =
    [("dynamodb:PutItem", &[LEASE_PREFIX, TICKET_PREFIX]), ("dynamodb:DeleteItem", &[LEASE_PREFIX])];
/// Actions on the table, to give back what crashed callers held.
pub(super) const HEALING: [&str; 1] = ["dynamodb:Scan"];

/// Keys of rows that belong to nothing and have no prefix: one like a bucket's, one like a load row's.
const BUCKET: &str = "sluice#doctor";
const LOAD: &str = "load#sluice#doctor";

/// A condition that no row meets: an existing row has the key, a missing row lacks it.
const NEVER: &str = "attribute_exists(#key) AND attribute_not_exists(#key)";

/// An attribute that no row has.
const NOTHING: &str = "probed_by_doctor";

/// The result of a probe.
enum Probed {
    May,
    MayNot,
    Failed(String),
}

pub(super) async fn examine(client: &Client) -> Vec<Finding> {
    let probes = Probes { client };
    let of_callers = [&CALLER[..], &ON_ROWS.map(|(action, _)| action)].concat();
    let (callers, failures_of_callers) = probes.lacks_and_failures(&of_callers).await;
    let (heals, failures_of_heals) = probes.lacks_and_failures(&HEALING).await;
    let table = client.table();
    let mut findings = Vec::new();
    for (action, on) in &callers {
        let what = format!("this role may not {action} on {on}");
        findings.push(Finding::problem(Check::Rights, table, what, todo(action, on)));
    }
    let mut may_call = false;
    if callers.is_empty() && failures_of_callers.is_empty() {
        let probed = probes.transaction().await;
        may_call = matches!(probed, Probed::May);
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
        findings.push(Finding::fine(Check::Rights, table, "this role may give back what crashed callers held"));
    }
    findings.into_iter().chain(failures_of_callers).chain(failures_of_heals).collect()
}

/// IAM has no separate right for transactions, but the policy of a VPC endpoint or of an organisation may
/// deny them.
fn of_transactions(table: &str, probed: Probed) -> Finding {
    match probed {
        Probed::May => Finding::fine(Check::Rights, table, "this role may acquire, renew and release"),
        Probed::MayNot => Finding::problem(
            Check::Rights,
            table,
            "this role may do each write of a transaction, but not TransactWriteItems: slots cannot be acquired",
            "look for a Deny in the role's policies or boundary, or in the policy of the organisation or the VPC endpoint",
        ),
        Probed::Failed(why) => failed(table, "TransactWriteItems", &why),
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

struct Probes<'a> {
    client: &'a Client,
}

impl Probes<'_> {
    /// The missing actions, each with the rows that it is missing on, and the probes without a result.
    async fn lacks_and_failures(&self, actions: &[&'static str]) -> (Vec<(&'static str, String)>, Vec<Finding>) {
        let (mut lacks, mut failures) = (Vec::new(), Vec::new());
        for action in actions {
            let (mut on, mut why_not) = (Vec::new(), None);
            for (rows, key) in rows_of(action) {
                match self.probe(action, &key).await {
                    Probed::May => {}
                    Probed::MayNot => on.push(rows),
                    Probed::Failed(why) => why_not = Some(why),
                }
            }
            failures.extend(why_not.map(|why| failed(self.client.table(), action, &why)));
            if !on.is_empty() {
                let on = if on.len() == rows_of(action).len() { all_of(action) } else { on.join(", ") };
                lacks.push((*action, on));
            }
        }
        (lacks, failures)
    }

    async fn probe(&self, action: &str, key: &str) -> Probed {
        let (dynamo, table) = (self.client.dynamodb(), self.client.table());
        let row = || HashMap::from([(KEY.to_owned(), AttributeValue::S(key.to_owned()))]);
        match action {
            "dynamodb:GetItem" => told(dynamo.get_item().table_name(table).set_key(Some(row())).send().await),
            "dynamodb:UpdateItem" => told(
                dynamo
                    .update_item()
                    .table_name(table)
                    .set_key(Some(row()))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#key", KEY)
                    .expression_attribute_names("#probed_by_doctor", NOTHING)
                    .update_expression("REMOVE #probed_by_doctor")
                    .send()
                    .await,
            ),
            "dynamodb:PutItem" => told(
                dynamo
                    .put_item()
                    .table_name(table)
                    .set_item(Some(row()))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#key", KEY)
                    .send()
                    .await,
            ),
            "dynamodb:DeleteItem" => told(
                dynamo
                    .delete_item()
                    .table_name(table)
                    .set_key(Some(row()))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#key", KEY)
                    .send()
                    .await,
            ),
            "dynamodb:BatchGetItem" => match KeysAndAttributes::builder().keys(row()).build() {
                Ok(keys) => told(dynamo.batch_get_item().request_items(table, keys).send().await),
                Err(error) => Probed::Failed(error.to_string()),
            },
            "dynamodb:Scan" => told(dynamo.scan().table_name(table).limit(1).send().await),
            other => Probed::Failed(format!("there is no probe of {other}")),
        }
    }

    /// Probes the writes of an acquire and of a release, in one transaction that is never applied.
    async fn transaction(&self) -> Probed {
        let (dynamo, table) = (self.client.dynamodb(), self.client.table());
        let row = |key: &str| HashMap::from([(KEY.to_owned(), AttributeValue::S(key.to_owned()))]);
        let (taken, given) = (format!("{LEASE_PREFIX}{BUCKET}#taken"), format!("{LEASE_PREFIX}{BUCKET}#given"));
        let update = Update::builder().table_name(table).set_key(Some(row(BUCKET))).condition_expression(NEVER);
        let put = Put::builder().table_name(table).set_item(Some(row(&taken))).condition_expression(NEVER);
        let delete = Delete::builder().table_name(table).set_key(Some(row(&given))).condition_expression(NEVER);
        let update =
            update.expression_attribute_names("#key", KEY).expression_attribute_names("#probed_by_doctor", NOTHING);
        let update = update.update_expression("REMOVE #probed_by_doctor").build();
        let put = put.expression_attribute_names("#key", KEY).build();
        let delete = delete.expression_attribute_names("#key", KEY).build();
        let (Ok(update), Ok(put), Ok(delete)) = (update, put, delete) else {
            return Probed::Failed("the probe cannot be written".into());
        };
        let items = [
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().delete(delete).build(),
        ];
        told(dynamo.transact_write_items().set_transact_items(Some(items.into())).send().await)
    }
}

/// The rows that an action applies to, as a policy names them, each with a key to probe.
fn rows_of(action: &str) -> Vec<(String, String)> {
    let with_prefix = |prefix: &&str| (format!("{prefix}*"), format!("{prefix}{BUCKET}#probe"));
    if let Some(prefixes) = only_on(action) {
        return prefixes.iter().map(with_prefix).collect();
    }
    if action == "dynamodb:Scan" {
        return vec![("the table".into(), String::new())];
    }
    let others = [("buckets".into(), BUCKET.into()), ("load#*".into(), LOAD.into())];
    others.into_iter().chain([LEASE_PREFIX, TICKET_PREFIX].iter().map(with_prefix)).collect()
}

/// Everything that an action applies to, for a message that the action is missing on all of it.
fn all_of(action: &str) -> String {
    let Some(prefixes) = only_on(action) else { return "the table".into() };
    let rows: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}*")).collect();
    rows.join(", ")
}

/// The key prefixes that an action applies to, if it does not apply to all rows.
fn only_on(action: &str) -> Option<&'static [&'static str]> {
    ON_ROWS.iter().find(|(one, _)| *one == action).map(|(_, prefixes)| *prefixes)
}

/// A false condition means that the role has the right: a denial comes before any condition is checked.
fn told<T, E>(result: Result<T, SdkError<E>>) -> Probed
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let Err(error) = result else { return Probed::May };
    match error.code() {
        Some("ConditionalCheckFailedException" | "TransactionCanceledException") => Probed::May,
        Some("AccessDeniedException") => Probed::MayNot,
        Some(code) => Probed::Failed(format!("{code}: {}", error.message().unwrap_or("no message"))),
        None => Probed::Failed(DisplayErrorContext(&error).to_string()),
    }
}
