//! What a collector sees of a program that has just begun, and what a caller in Lambda prints.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::Timestamp;
use sluice_sdk::{Client, OnUnavailable};
use sluice_table::emf::EmfRecorder;
use sluice_testkit::{Fault, Operation};

use super::{Listening, counted, value};
use crate::world::{World, dimension, refusal, take};

const RPM: &str = "openai#rpm";

/// An increase from nothing is no increase: a collector must see the zero before the first event.
#[tokio::test(start_paused = true)]
async fn counters_that_alerts_look_at_are_there_before_their_first_event() {
    let world = World::with_rate(RPM, 10, 60).await;
    let listening = Listening::begin();
    let client = world.client();
    let at_once = listening.recorded();
    for labels in [("outcome", "local"), ("outcome", "error")] {
        assert!(value(&at_once, "sluice.unavailable", &[labels]).is_some(), "{labels:?}: {at_once:?}");
    }
    assert!(value(&at_once, "sluice.heals", &[("outcome", "failed")]).is_some());

    drop(take(&client, RPM).await);
    let met = listening.recorded();
    let of_bucket = [
        ("sluice.refusals", Some(("reason", "exhausted"))),
        ("sluice.vendor.refusals", Some(("reason", "rate"))),
        ("sluice.releases", Some(("outcome", "failed"))),
        ("sluice.lease.expired_but_alive", None),
        ("sluice.cool_downs", None),
    ];
    for (name, label) in of_bucket {
        let labels: Vec<_> = [("dimension", RPM)].into_iter().chain(label).collect();
        assert!(value(&met, name, &labels).is_some(), "{name} is missing: {met:?}");
        assert_eq!(counted(&met, name, &labels), 0, "{name}");
    }
    let shed = [("dimension", RPM), ("decision", "upstream_down"), ("mode", "enforce")];
    assert!(value(&met, "sluice.admission", &shed).is_some());
    assert_eq!(counted(&met, "sluice.grants", &[("dimension", RPM), ("source", "table")]), 1);
}

/// What a function would print at the end of an invocation.
struct Printed(&'static EmfRecorder, ::metrics::LocalRecorderGuard<'static>);

impl Printed {
    fn begin() -> Self {
        let recorder: &'static EmfRecorder = Box::leak(Box::new(EmfRecorder::new("pre")));
        Self(recorder, ::metrics::set_default_local_recorder(recorder))
    }

    fn lines(&self) -> Vec<Value> {
        let _ = &self.1;
        let lines = self.0.take(Timestamp::from_secs(1_709_550_002));
        // As CloudWatch does.
        lines.iter().map(|line| serde_json::from_str(&line.to_string()).unwrap()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_callers_refusals_are_metrics_of_cloudwatch() {
    let world = World::with_rate(RPM, 1, 60).await;
    let printed = Printed::begin();
    let client = world.client();
    drop(take(&client, RPM).await);
    assert_eq!(printed.lines(), Vec::<Value>::new(), "a grant is nothing to report");
    for _ in 0..2 {
        refusal(&client, RPM).await;
    }
    let lines = printed.lines();
    let [all, bucket] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&all["Environment"], &all["Refusals"]), (&json!("pre"), &json!(2)));
    assert_eq!((&bucket["VendorDimension"], &bucket["Refusals"]), (&json!(RPM), &json!(2)));
    let declared = &all["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(
        (&declared["Namespace"], &declared["Dimensions"]),
        (&json!("Sluice"), &json!([["Environment"]]))
    );
    assert_eq!(declared["Metrics"], json!([{ "Name": "Refusals", "Unit": "Count" }]));
}

#[tokio::test(start_paused = true)]
async fn a_callers_outage_is_a_metric_of_cloudwatch() {
    let world = World::with_rate(RPM, 10, 60).await;
    let printed = Printed::begin();
    let client: Client = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    drop(take(&client, RPM).await);
    for operation in [Operation::GetItem, Operation::UpdateItem] {
        world.dynamo.faults().always(operation, Fault::LoseRequest);
    }
    drop(client.acquire(RPM).await.unwrap());
    let lines = printed.lines();
    assert_eq!(lines[0]["Unavailable"], 1, "{lines:?}");
    client.cool_down(&dimension(RPM), Duration::from_secs(1)).await.unwrap_err();
}
