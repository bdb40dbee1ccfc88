//! The function: what it logs and answers, and that it ends in time whatever the table does.

use std::time::Duration;

use lambda_runtime::Diagnostic;
use serde_json::{Value, json};
use sluice_core::{Dimension, Load, Timestamp};
use sluice_ops::{Observer, Ops, SweepOptions, SweepReport};
use sluice_reconciler::{ALARMS, Ended, Published, ReconcileError, Reconciler, Trigger, metrics};
use sluice_sdk::{Client, ConfigError};
use sluice_testkit::{Fault, Operation};
use tokio::time::Instant;

use crate::world::{World, take};

const SLOTS: &str = "elevenlabs#concurrent";

fn reconciler(world: &World) -> Reconciler {
    Reconciler::new(Ok(world.client().ops()), Some("sandbox".into()))
}

async fn with_ended(slots: i32) -> World {
    let world = World::with_slots(SLOTS, slots).await;
    let client = world.client();
    for _ in 0..slots {
        std::mem::forget(take(&client, SLOTS).await);
    }
    world.pass_lease();
    world
}

#[tokio::test(start_paused = true)]
async fn the_report_has_the_fields_of_the_manual() {
    let world = with_ended(3).await;
    let report = reconciler(&world).reconcile(Duration::from_secs(60)).await.unwrap();
    assert_eq!(report["event"], "reconciler.complete");
    assert_eq!(
        (&report["restored"], &report["dimensions"], &report["already_capped"]),
        (&json!(3), &json!([SLOTS]), &json!(0))
    );
    for field in [
        "rows_scanned",
        "expired",
        "lost_races",
        "conflicts_retried",
        "unparsable",
        "requests",
        "duration_ms",
    ] {
        assert!(report[field].is_u64(), "{field}: {report}");
    }
    assert_eq!((&report["drift"], &report["deadline_hit"]), (&json!({}), &json!(false)));
}

/// Every metric that a line declares has a number in it, and every dimension a text: CloudWatch drops what
/// has not.
fn check(line: &Value) {
    let declared = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(declared["Namespace"], "Sluice");
    assert!(line["_aws"]["Timestamp"].as_i64().unwrap() > 1_700_000_000_000);
    for metric in declared["Metrics"].as_array().unwrap() {
        let (name, unit) = (metric["Name"].as_str().unwrap(), &metric["Unit"]);
        assert!(line[name].is_number() && (unit == "Count" || unit == "Milliseconds"), "{name}: {line}");
    }
    for name in declared["Dimensions"][0].as_array().unwrap() {
        assert!(line[name.as_str().unwrap()].is_string(), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_are_the_report() {
    let world = with_ended(3).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    world.add_tokens(SLOTS, "-2").await;
    let client = world.client();
    std::mem::forget(take(&client, SLOTS).await);
    world.pass_lease();
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let now = Timestamp::from_secs(1_709_550_002);
    let lines: Vec<Value> = metrics("pre", Published::All, &report, Ended::Well, now).collect();
    lines.iter().for_each(check);
    let [all, of_slots] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&all["Environment"], &all["Sweeps"], &all["Restored"]),
        (&json!("pre"), &json!(1), &json!(1))
    );
    assert_eq!(
        (&all["RestoredSlots"], &all["Drift"], &all["Recounted"]),
        (&json!(1), &json!(2.0), &json!(1))
    );
    assert_eq!((&of_slots["VendorDimension"], &of_slots["Drift"]), (&json!(SLOTS), &json!(2.0)));
    assert_eq!(metrics("pre", Published::All, &report, Ended::InError, now).next().unwrap()["Sweeps"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_cannot_be_read_is_named_and_published() {
    let world = World::with_slots(SLOTS, 2).await;
    world.rate("openai#rpm", 10, 60).await;
    let mut row = world.row("openai#rpm").await.unwrap();
    row.insert("capacity".into(), crate::world::text("many"));
    world.put(row).await;
    let report = reconciler(&world).reconcile(Duration::from_secs(60)).await.unwrap();
    assert_eq!(report["unreadable_buckets"], 1);
    assert_eq!(report["unreadable"], json!({ "openai#rpm": "attribute \"capacity\" is not a number (N)" }));
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let all = metrics("pre", Published::All, &report, Ended::Well, Timestamp::from_secs(1_709_550_002))
        .next()
        .unwrap();
    assert_eq!((&all["UnreadableBuckets"], &all["Unparsable"]), (&json!(1), &json!(0)));
}

/// Zero would end an alarm that is true.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_did_not_finish_publishes_nothing_that_it_did_not_find_out() {
    let world = with_ended(3).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let now = Timestamp::from_secs(1_709_550_002);
    let of = |report, ended| metrics("pre", Published::All, report, ended, now).next().unwrap();
    let by_a_whole_scan =
        ["Unparsable", "UnreadableBuckets", "Refused", "Left", "AlreadyCapped", "RestoredSlots"];
    let by_a_recount =
        ["Drift", "LeakSuspected", "ExpiredButAlive", "CallerRefusals", "Pending", "Recounted"];

    let whole = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let line = of(&whole, Ended::Well);
    assert!(by_a_whole_scan.iter().chain(&by_a_recount).all(|name| line[name].is_number()), "{line}");

    world.dynamo.faults().always(Operation::Scan, Fault::LoseRequest);
    let failed = world.client().ops().sweep(SweepOptions::default()).await.unwrap_err().report;
    let line = of(&failed, Ended::InError);
    assert!(by_a_whole_scan.iter().chain(&by_a_recount).all(|name| line[name].is_null()), "{line}");
    assert_eq!((&line["Sweeps"], &line["SegmentsUnscanned"]), (&json!(0), &json!(16)));
    world.dynamo.faults().clear();

    world.dynamo.faults().always(Operation::BatchGetItem, Fault::throttled());
    let unmeasured = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let line = of(&unmeasured, Ended::Well);
    assert!(by_a_whole_scan.iter().all(|name| line[name] == 0), "{line}");
    assert!(by_a_recount.iter().all(|name| line[name].is_null()), "{line}");

    let none = of(&SweepReport::default(), Ended::InError);
    let names: Vec<&str> = none["_aws"]["CloudWatchMetrics"][0]["Metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["Name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Sweeps"], "a run without a request");
}

/// What a part of a scan found is true of the whole table.
#[tokio::test(start_paused = true)]
async fn what_a_sweep_found_before_it_failed_is_published() {
    let world = World::with_slots(SLOTS, 2).await;
    let mut report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    (report.is_scanned, report.is_measured, report.unreadable_buckets) = (false, false, 1);
    let now = Timestamp::from_secs(1_709_550_002);
    let line = metrics("pre", Published::All, &report, Ended::InError, now).next().unwrap();
    assert_eq!((&line["UnreadableBuckets"], &line["Unparsable"]), (&json!(1), &Value::Null));
}

#[derive(Debug)]
struct Panics;

impl Observer for Panics {
    fn measured(&self, _: &Dimension, _: &Load) {
        panic!("a fault of the program");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_of_the_run() {
    let world = with_ended(1).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let ops = world.client().ops().observed_by(std::sync::Arc::new(Panics));
    let error = Reconciler::new(Ok(ops), None).reconcile(Duration::from_secs(60)).await.unwrap_err();
    assert!(error.to_string().contains("a fault of the program"), "{error}");
    assert_eq!(Diagnostic::from(error).error_type, "Panic");
}

#[tokio::test(start_paused = true)]
async fn a_smaller_choice_of_metrics_has_those_of_the_alarms_and_no_bucket() {
    let world = with_ended(3).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    world.add_tokens(SLOTS, "-2").await;
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let now = Timestamp::from_secs(1_709_550_002);
    let lines: Vec<Value> = metrics("pre", Published::Alarms, &report, Ended::Well, now).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    check(line);
    let declared = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    let names: Vec<&str> = declared.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
    assert!(names.len() >= ALARMS.len() - 1 && names.iter().all(|name| ALARMS.contains(name)), "{names:?}");
    assert!(metrics("pre", Published::All, &report, Ended::Well, now).count() > 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_callers_are_published_once() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    for _ in 0..2 {
        client.ops().sweep(SweepOptions::default()).await.unwrap();
        world.pass(Duration::from_secs(10));
    }
    let held = take(&client, SLOTS).await;
    for _ in 0..3 {
        crate::world::refusal(&client, SLOTS).await;
    }
    client.finish_healing().await;
    world.pass(Duration::from_secs(10));
    let noted =
        world.row(&format!("load#{SLOTS}")).await.unwrap()["refused"].as_n().unwrap().parse::<u64>().unwrap();
    assert!(noted > 0);
    let now = Timestamp::from_secs(1_709_550_002);
    let mut published = Vec::new();
    for _ in 0..2 {
        let report = client.ops().sweep(SweepOptions::default()).await.unwrap();
        let line = metrics("pre", Published::All, &report, Ended::Well, now).next().unwrap();
        published.push(line["CallerRefusals"].as_u64().unwrap());
        world.pass(Duration::from_secs(10));
    }
    assert_eq!(published, [noted, 0]);
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_there_is_an_error_that_names_it() {
    let world = World::new().await;
    let elsewhere = Client::builder("ontopix-vendor-buckets-none").dynamodb(world.dynamodb());
    let error =
        Reconciler::new(Ok(elsewhere.ops()), None).reconcile(Duration::from_secs(60)).await.unwrap_err();
    let diagnostic = Diagnostic::from(error);
    assert_eq!(diagnostic.error_type, "Sweep");
    assert!(diagnostic.error_message.contains("ontopix-vendor-buckets-none"), "{}", diagnostic.error_message);
}

#[tokio::test(start_paused = true)]
async fn a_bad_variable_is_the_error_of_every_run() {
    let reconciler = Reconciler::new(Err::<Ops, _>(ConfigError::NoTable), None);
    let error = reconciler.reconcile(Duration::from_secs(60)).await.unwrap_err();
    assert!(
        matches!(&error, ReconcileError::Config(message) if message.contains("SLUICE_TABLE_NAME")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bad_longest_call_is_the_error_of_every_run() {
    let world = with_ended(1).await;
    let bad =
        ConfigError::BadValue { variable: "SLUICE_SLOWEST_CALL", value: "soon".into(), takes: "a time" };
    let reconciler = reconciler(&world).with_options(Err(bad));
    let error = reconciler.reconcile(Duration::from_secs(60)).await.unwrap_err();
    assert!(
        matches!(&error, ReconcileError::Config(message) if message.contains("SLUICE_SLOWEST_CALL")),
        "{error}"
    );
}

/// Two slots stay held and nothing departs: the rate falls to its floor, each slot once in the longest call.
#[tokio::test(start_paused = true)]
async fn the_longest_call_is_the_floor_of_the_drain_rate() {
    for (longest, floor) in [(900, "0.002222222222"), (100, "0.02")] {
        let world = World::with_slots(SLOTS, 2).await;
        let client = world.client();
        let mut options = SweepOptions::default();
        options.slowest_call = Duration::from_secs(longest);
        let reconciler = reconciler(&world).with_options(Ok(options));
        let sweep = async || drop(reconciler.reconcile(Duration::from_secs(60)).await.unwrap());
        let (mut one, other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
        sweep().await;
        world.pass(Duration::from_secs(10));
        other.release().await.unwrap();
        sweep().await;
        for _ in 0..200 {
            world.pass(Duration::from_secs(30));
            one.renew().await.unwrap();
            sweep().await;
        }
        let load = client.ops().survey().await.unwrap().loads.remove(0).load.unwrap();
        assert_eq!(load.drain_rate().map(|rate| rate.to_string()).as_deref(), Some(floor), "{load:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_function_ends_in_time_whatever_hangs() {
    for operation in [Operation::Scan, Operation::TransactWriteItems] {
        let world = with_ended(3).await;
        world.dynamo.faults().always(operation, Fault::Hang);
        let began = Instant::now();
        let report = reconciler(&world).reconcile(Duration::from_secs(2)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{operation:?}: {:?}", began.elapsed());
        assert_eq!(report["deadline_hit"], true, "{operation:?}: {report}");
        let missing = report["left"].as_u64().unwrap() + report["segments_unscanned"].as_u64().unwrap();
        assert!(missing > 0 && report["restored"] == 0, "{operation:?}: {report}");
        world.dynamo.faults().clear();
        assert_eq!(reconciler(&world).reconcile(Duration::from_secs(60)).await.unwrap()["restored"], 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_never_answers_is_an_error_however_short_the_time() {
    let world = with_ended(3).await;
    world.dynamo.faults().always(Operation::GetItem, Fault::Hang);
    let began = Instant::now();
    let error = reconciler(&world).reconcile(Duration::from_secs(2)).await.unwrap_err();
    assert!(error.to_string().contains("no answer") && began.elapsed() < Duration::from_secs(2), "{error}");
}

#[test]
fn a_rule_and_a_person_both_start_it() {
    let rule = json!({
        "version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "account": "1",
        "time": "2026-01-01T00:00:00Z", "region": "eu-central-1", "resources": [], "detail": {}
    });
    assert!(matches!(serde_json::from_value(rule).unwrap(), Trigger::Schedule(_)));
    assert!(matches!(serde_json::from_str("{}").unwrap(), Trigger::Person(_)));
    assert!(matches!(serde_json::from_str("null").unwrap(), Trigger::Person(_)));
}
