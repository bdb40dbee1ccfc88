//! Findings about rights: each missing right is named, with the rows that it applies to.

use std::path::Path;

use sluice_testkit::Rights;

use super::*;
use crate::doctor::rights::{CALLER, HEALING, ON_ROWS};

/// Actions that the doctor also uses, but callers do not need.
const LOOKING: [&str; 3] =
    ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups"];

/// The caller policy without one right: an action, or an action on the rows of one prefix.
fn rights_without(action: &str, prefix: Option<&str>) -> Rights {
    let is_left_out = |one: &str| one == action && prefix.is_none();
    let on_table = CALLER.iter().chain(&HEALING).chain(&LOOKING).filter(|one| !is_left_out(one));
    let rights = on_table.fold(Rights::none(), |rights, action| rights.allow(*action));
    let on_rows = ON_ROWS.iter().flat_map(|(one, prefixes)| prefixes.iter().map(|prefix| (*one, *prefix)));
    let on_rows = on_rows.filter(|(one, of)| !(is_left_out(one) || *one == action && Some(*of) == prefix));
    on_rows.fold(rights, |rights, (action, prefix)| rights.allow_on(action, format!("{prefix}*")))
}

async fn found_without(action: &str, prefix: Option<&str>) -> Vec<Finding> {
    let dynamo = healthy().await;
    dynamo.faults().allow_only(rights_without(action, prefix));
    findings(&dynamo).await
}

#[test]
fn the_rights_that_are_tried_are_those_of_the_policy() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/modules/caller-policy/main.tf");
    let policy = std::fs::read_to_string(file).unwrap();
    let list = |name: &str| -> Vec<String> {
        let list = policy.split_once(&format!("{name} = [")).unwrap().1.split_once(']').unwrap().0;
        list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(list("caller_actions"), CALLER);
    assert_eq!(list("heal_actions"), HEALING);
    let keys = |name: &str| -> Vec<String> {
        let keys =
            policy.split_once(&format!("{name} = {{")).unwrap().1.split_once("LeadingKeys\" = [").unwrap().1;
        keys.split_once(']').unwrap().0.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    for ((action, prefixes), (actions, on)) in
        ON_ROWS.iter().zip([("make_actions", "on_made"), ("remove_actions", "on_removed")])
    {
        assert_eq!(list(actions), [*action]);
        assert_eq!(keys(on), prefixes.iter().map(|prefix| format!("{prefix}*")).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_with_the_policy_lacks_nothing() {
    let found = found_without("nothing", None).await;
    assert_eq!(finding_of(&found, Check::Rights), None);
    for says in
        ["this role may acquire, renew and release", "this role may give back what crashed callers held"]
    {
        assert!(found.iter().any(|one| one.what == says), "{found:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_right_of_a_caller_that_is_taken_away_is_named() {
    for action in CALLER {
        let found = found_without(action, None).await;
        assert_finding(&found, Check::Rights, Weight::Problem, &[action, "on the table"]);
    }
    for (action, prefixes) in ON_ROWS {
        let found = found_without(action, None).await;
        let rows = prefixes.iter().map(|prefix| format!("{prefix}*")).collect::<Vec<_>>().join(", ");
        assert_finding(&found, Check::Rights, Weight::Problem, &[action, &format!("on {rows}")]);
        for prefix in prefixes.iter().copied() {
            let found = found_without(action, Some(prefix)).await;
            let (_, what) = finding_of(&found, Check::Rights).unwrap();
            assert!(what.ends_with(&format!("{action} on {prefix}*")), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_only_reads_is_told_and_has_no_problem() {
    let dynamo = healthy().await;
    let reads = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan"];
    let rights = LOOKING.iter().chain(&reads).fold(Rights::none(), |rights, action| rights.allow(*action));
    dynamo.faults().allow_only(rights);
    let found = findings(&dynamo).await;
    assert_finding(&found, Check::Rights, Weight::Note, &["may read, and write nothing"]);
    let mut of_rights = found.iter().filter(|one| one.check == Check::Rights);
    assert!(of_rights.all(|one| !one.is_problem() && !one.what.contains("may give back")), "{found:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_heal_is_told_and_has_no_problem() {
    let found = found_without("dynamodb:Scan", None).await;
    assert_finding(&found, Check::Rights, Weight::Note, &["dynamodb:Scan", "the reconciler's next sweep"]);
    assert_finding(&found, Check::Rows, Weight::Note, &["needs dynamodb:Scan"]);
}

/// A scan finds what crashed callers held; giving it back needs a caller's writes.
#[tokio::test(start_paused = true)]
async fn who_may_scan_and_not_write_is_not_said_to_give_back() {
    let gives_back = |found: &[Finding]| found.iter().any(|one| one.what.contains("may give back"));
    for action in CALLER.into_iter().chain(ON_ROWS.map(|(action, _)| action)) {
        assert!(!gives_back(&found_without(action, None).await), "without {action}");
    }
    let dynamo = healthy().await;
    let denied = serde_json::json!({ "Message": "explicit deny" });
    dynamo
        .faults()
        .always(Operation::TransactWriteItems, Fault::service("AccessDeniedException", 400, denied));
    assert!(!gives_back(&findings(&dynamo).await), "without transactions");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_look_at_the_table_is_told_what_it_takes() {
    for (action, check) in LOOKING.into_iter().zip([Check::Table, Check::Ttl, Check::Backups]) {
        let found = found_without(action, None).await;
        assert_finding(&found, check, Weight::Note, &["cannot tell: needs", action]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_no_probe_can_tell_is_not_taken_for_granted() {
    let dynamo = healthy().await;
    dynamo.faults().always(Operation::DeleteItem, Fault::throttled());
    let found = findings(&dynamo).await;
    assert_finding(
        &found,
        Check::Rights,
        Weight::Note,
        &["cannot tell", "dynamodb:DeleteItem", "throughput"],
    );
    assert!(found.iter().all(|one| !one.what.contains("may acquire")), "{found:#?}");
}

/// IAM has no right for transactions, but an endpoint's policy may deny them.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_denied_by_itself_is_told() {
    let dynamo = healthy().await;
    let denied = serde_json::json!({ "Message": "explicit deny" });
    dynamo
        .faults()
        .always(Operation::TransactWriteItems, Fault::service("AccessDeniedException", 400, denied));
    assert_finding(&findings(&dynamo).await, Check::Rights, Weight::Problem, &["not TransactWriteItems"]);
}

/// The policy of a product allows the rows of its vendors alone.
#[tokio::test(start_paused = true)]
async fn a_role_for_one_vendor_is_tried_on_its_rows() {
    let dynamo = healthy().await;
    let all = |rights: Rights, prefix: &str| {
        let actions = CALLER.iter().copied().chain(ON_ROWS.map(|(action, _)| action));
        actions.fold(rights, |rights, action| rights.allow_on(action, format!("{prefix}openai#*")))
    };
    let rights = LOOKING.iter().fold(Rights::none(), |rights, action| rights.allow(*action));
    let rights = ["", "lease#", "load#", "ticket#"].into_iter().fold(rights, all);
    dynamo.faults().allow_only(rights.allow_on("dynamodb:GetItem", "load#directory"));
    let client = dynamo.client(TABLE);
    let probe = Probe::new(client.dynamodb(), TABLE);
    let lacks = async |vendor| {
        let found = crate::doctor::rights::examine(probe, vendor).await;
        found.into_iter().filter(Finding::is_problem).map(|finding| finding.what).collect::<Vec<_>>()
    };
    assert_eq!(lacks(Some("openai")).await, Vec::<String>::new());
    let other = lacks(Some("anthropic")).await;
    assert!(
        other.iter().any(|what| what.contains("dynamodb:PutItem on lease#anthropic#*, ticket#anthropic#*")),
        "{other:?}"
    );
    assert!(!lacks(None).await.is_empty());
}
