//! Findings about buckets, leases, and what sweeps wrote.

use std::sync::atomic::{AtomicI64, Ordering};

use sluice_sdk::Client;
use sluice_sdk::core::schema::{SWEEPS, SWEEPS_KEY};
use sluice_sdk::core::{Load, MOST_INLINE_LEASES, SweepRecord};
use sluice_testkit::Alteration;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_is_named() {
    let dynamo = healthy().await;
    set(&dynamo, RATE, &[("tokens", AttributeValue::S("many".into()))]).await;
    assert_finding(
        &findings(&dynamo).await,
        Check::Rows,
        Weight::Problem,
        &[RATE, "cannot be read", "tokens"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_above_the_vendors_is_told() {
    let dynamo = healthy().await;
    let now = dynamo.clock().now();
    let reported =
        [("vendor_limit", number(60)), ("vendor_limit_window", number(60)), ("vendor_limit_at", number(now))];
    set(&dynamo, RATE, &reported).await;
    assert_finding(&findings(&dynamo).await, Check::Limits, Weight::Problem, &[RATE, "a limit of 60 in 60s"]);
}

#[tokio::test(start_paused = true)]
async fn leases_that_no_sweep_came_for_are_told() {
    let dynamo = healthy().await;
    let crashed = dynamo.client_with(Client::builder(TABLE).renew_leases(false));
    std::mem::forget(crashed.acquire(SLOTS).await.unwrap());
    dynamo.clock().advance(Duration::from_secs(60));
    assert_eq!(finding_of(&findings(&dynamo).await, Check::Leases), None);
    dynamo.clock().advance(Duration::from_secs(36));
    assert_finding(&findings(&dynamo).await, Check::Leases, Weight::Note, &["1 lease ended 3"]);
    dynamo.clock().advance(Duration::from_secs(11 * 60 - 36 - 10));
    assert_finding(&findings(&dynamo).await, Check::Leases, Weight::Note, &["1 lease ended 10m"]);
    dynamo.clock().advance(Duration::from_secs(13));
    assert_finding(
        &findings(&dynamo).await,
        Check::Leases,
        Weight::Problem,
        &["1 lease ended over 11 minutes ago"],
    );
}

/// Simulates a row that other processes write: the version in each reply is `a_second` higher for every
/// second.
fn written_at(dynamo: &EmbeddedDynamo, a_second: i64) {
    let began = tokio::time::Instant::now();
    let alter = move |body: &[u8]| {
        let writes = i64::try_from(began.elapsed().as_millis()).unwrap() * a_second / 1_000;
        let mut reply: serde_json::Value = serde_json::from_slice(body).unwrap();
        if reply["Item"][KEY]["S"] == RATE {
            reply["Item"]["version"]["N"] = (1_000 + writes).to_string().into();
        }
        reply.to_string().into_bytes()
    };
    dynamo.faults().always(Operation::GetItem, Fault::Alter(Alteration::new(alter)));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_near_the_ceiling_of_a_row_is_told() {
    for (writes, weight) in [(300, None), (600, Some(Weight::Note)), (900, Some(Weight::Problem))] {
        let dynamo = healthy().await;
        written_at(&dynamo, writes);
        let found = finding_of(&findings(&dynamo).await, Check::HotBuckets);
        assert_eq!(found.as_ref().map(|(weight, _)| *weight), weight);
        assert!(
            found.is_none_or(|(_, what)| what.contains(&format!("{RATE}: written at {writes} write units")))
        );
    }
}

async fn with_inline_leases(count: usize) -> EmbeddedDynamo {
    let dynamo = healthy().await;
    let ends = dynamo.clock().now().after(Duration::from_secs(60));
    let lease = AttributeValue::M([("c".into(), number(1)), ("t".into(), number(ends))].into());
    let id = AtomicI64::new(0);
    let leases = (0..count).map(|_| (format!("{:022}", id.fetch_add(1, Ordering::Relaxed)), lease.clone()));
    set(&dynamo, SLOTS, &[("capacity", number(200)), ("leases", AttributeValue::M(leases.collect()))]).await;
    dynamo
}

#[tokio::test(start_paused = true)]
async fn inline_leases_that_cost_more_than_rows_or_are_too_many_are_told() {
    assert_eq!(finding_of(&findings(&with_inline_leases(90).await).await, Check::InlineLeases), None);
    let dearer = findings(&with_inline_leases(120).await).await;
    assert_finding(&dearer, Check::InlineLeases, Weight::Note, &["120 inline leases", "costs 5 units"]);
    let too_many = findings(&with_inline_leases(MOST_INLINE_LEASES + 1).await).await;
    assert_finding(
        &too_many,
        Check::InlineLeases,
        Weight::Problem,
        &["201 inline leases", "200 are the most"],
    );
    let dynamo = with_inline_leases(2).await;
    set(&dynamo, SLOTS, &[("capacity", number(300))]).await;
    assert_finding(
        &findings(&dynamo).await,
        Check::InlineLeases,
        Weight::Problem,
        &["allows 300 calls at once"],
    );
}

fn key_of_load() -> String {
    Load::key(&Dimension::new(SLOTS).unwrap())
}

/// A table with a load row as a sweep leaves it, with slots held and nothing changing for `still`.
async fn loaded(still: Duration) -> EmbeddedDynamo {
    let dynamo = healthy().await;
    let now = dynamo.clock().now();
    let since = now.before(still);
    let row = [
        ("pending", number(2)),
        ("taken", number(2)),
        ("measured_at", number(now)),
        ("sequence", number(9)),
        ("still_since", number(since)),
    ];
    set(&dynamo, &key_of_load(), &row).await;
    dynamo
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_taken_while_nobody_is_active_are_told() {
    assert_eq!(finding_of(&findings(&loaded(Duration::from_secs(14 * 60)).await).await, Check::Load), None);
    let leaking = findings(&loaded(Duration::from_secs(15 * 60)).await).await;
    assert_finding(&leaking, Check::Load, Weight::Problem, &[SLOTS, "2 slots are taken", "15 minutes"]);
}

/// Nobody measures such a bucket any more, so its finding would never end.
#[tokio::test(start_paused = true)]
async fn what_was_measured_of_a_bucket_that_is_gone_is_not_told() {
    let dynamo = loaded(Duration::from_secs(15 * 60)).await;
    dynamo.client(TABLE).ops().remove_bucket(&Dimension::new(SLOTS).unwrap()).await.unwrap();
    let still =
        [("pending", number(2)), ("taken", number(2)), ("sequence", number(9)), ("outlived", number(3))];
    let times = [("measured_at", number(1_709_550_000)), ("still_since", number(1_709_463_600))];
    set(&dynamo, &key_of_load(), &[&still[..], &times].concat()).await;
    let findings = findings(&dynamo).await;
    assert_eq!((finding_of(&findings, Check::Load), finding_of(&findings, Check::Rows)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn holders_that_outlived_their_leases_are_told() {
    let dynamo = healthy().await;
    set(&dynamo, &key_of_load(), &[("outlived", number(3))]).await;
    assert_finding(&findings(&dynamo).await, Check::Load, Weight::Note, &["3 holders outlived"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_row_that_cannot_be_read_is_named() {
    let dynamo = healthy().await;
    set(&dynamo, &key_of_load(), &[("drain_rate", AttributeValue::S("three".into()))]).await;
    assert_finding(
        &findings(&dynamo).await,
        Check::Rows,
        Weight::Note,
        &["load#elevenlabs#concurrent", "drain_rate"],
    );
}

#[tokio::test(start_paused = true)]
async fn sweeps_that_no_longer_come_are_told() {
    let dynamo = healthy().await;
    assert_finding(&findings(&dynamo).await, Check::Sweeps, Weight::Note, &["no sweep is on record"]);
    let record = SweepRecord { at: dynamo.clock().now(), ..SweepRecord::default() };
    set(&dynamo, SWEEPS_KEY, &[(SWEEPS, AttributeValue::S(record.to_string()))]).await;
    assert_eq!(finding_of(&findings(&dynamo).await, Check::Sweeps), None);
    dynamo.clock().advance(Duration::from_secs(16 * 60));
    assert_finding(&findings(&dynamo).await, Check::Sweeps, Weight::Problem, &["the last sweep was 16m"]);
    // A sweep ran on a machine whose clock is a day ahead.
    let ahead = SweepRecord { at: dynamo.clock().now().after(Duration::from_secs(86_400)), ..record };
    set(&dynamo, SWEEPS_KEY, &[(SWEEPS, AttributeValue::S(format!("{ahead}\n{record}")))]).await;
    assert_finding(&findings(&dynamo).await, Check::Sweeps, Weight::Problem, &["the last sweep was 16m"]);
    let in_a_sandbox = found(&dynamo, Place { is_sandbox: true }).await;
    assert_finding(&in_a_sandbox, Check::Sweeps, Weight::Note, &["the last sweep was 16m"]);
    let todo = in_a_sandbox.iter().find(|one| one.check == Check::Sweeps).and_then(|one| one.todo.as_deref());
    assert!(todo.is_some_and(|todo| todo.contains("sluice reconcile --interval 10s")), "{todo:?}");
}

/// Every page names a next page, more often than the doctor reads.
fn make_large(dynamo: &EmbeddedDynamo) {
    let pages = AtomicI64::new(0);
    let alter = move |body: &[u8]| {
        let mut reply: serde_json::Value = serde_json::from_slice(body).unwrap();
        if pages.fetch_add(1, Ordering::Relaxed) < 300 {
            reply["LastEvaluatedKey"] = serde_json::json!({ KEY: { "S": "zzz#rpm" } });
        }
        reply.to_string().into_bytes()
    };
    dynamo.faults().always(Operation::Scan, Fault::Alter(Alteration::new(alter)));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_too_large_is_looked_at_in_part_and_that_is_told() {
    let dynamo = healthy().await;
    make_large(&dynamo);
    dynamo.meter().reset();
    let found = findings(&dynamo).await;
    assert_finding(&found, Check::Rows, Weight::Note, &["too large", "in 100 pages"]);
    assert_eq!(finding_of(&found, Check::Sweeps), None, "their row may stand in the rest");
    let scans = dynamo.meter().of(Operation::Scan).requests;
    assert!(scans <= 101, "one tries the right to scan: {scans}");
    let empty = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    make_large(&empty);
    assert_finding(&findings(&empty).await, Check::Rows, Weight::Note, &["too large"]);
}

/// A key that Sluice does not know.
#[tokio::test(start_paused = true)]
async fn rows_that_nobody_knows_are_told() {
    let dynamo = healthy().await;
    set(&dynamo, "no dimension", &[("x", number(1))]).await;
    assert_finding(&findings(&dynamo).await, Check::Rows, Weight::Note, &["no dimension"]);
}
