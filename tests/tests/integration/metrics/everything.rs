//! A run in which everything happens, and what a recorder received of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics_util::debugging::DebugValue;
use sluice_core::{DeclaredShare, Split};
use sluice_ops::SweepOptions;
use sluice_sdk::reservations::ReservationConfig;
use sluice_sdk::{Mode, OnUnavailable, Outcome, Redeemed, Reply, Request, TokenEstimator};
use sluice_table::metric::{METRICS, MetricKind, MetricSource};
use sluice_testkit::{Fault, Operation};

use super::idle::put_load;
use super::{Listening, Recorded, counted, value};
use crate::world::{World, dimension, refusal, requests, settle, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "elevenlabs#concurrent";
const DIMENSION: (&str, &str) = ("dimension", RPM);

async fn world() -> World {
    let world = World::embedded().await;
    world.rate(RPM, 4, 60).await;
    world.tokens(TPM, 1_000, 60).await;
    world.rate("cohere#rpm", 10, 60).await;
    world.slots(SLOTS, 1).await;
    put_load(&world, SLOTS, "1", "0.5").await;
    // Two requests for search, eight for all others.
    let search = DeclaredShare {
        name: "search".parse().unwrap(),
        part: "0.2".parse().unwrap(),
        floor: None,
        background: false,
    };
    let split = Split::new(requests(10, 60), &[search]).unwrap();
    world.client().ops().apply_split(&dimension("mistral#rpm"), &split).await.unwrap();
    world
}

fn one_token() -> Request<'static> {
    Request::from(TPM).cost(TPM, 1)
}

/// Grants of every source, refusals, errors, tickets, an outage.
async fn acquire(world: &World) {
    let client = world.client();
    for _ in 0..4 {
        let _ = take(&client, RPM).await;
    }
    refusal(&client, RPM).await;
    for _ in 0..3 {
        let _ = take(&client, Request::from("mistral#rpm").share("search")).await;
    }
    client.acquire("openai#missing").await.unwrap_err();
    let _ = take(&client, Request::from("cohere#rpm").cost("cohere#rpm", 9)).await;
    let trying = world.client_with(|settings| settings.mode(Mode::Shadow));
    let (_, _) = (take(&trying, RPM).await, take(&trying, Request::from(RPM).cost(RPM, 1_000)).await);
    let _ = trying.slot(RPM).max_wait(Duration::from_secs(60)).grant().await.unwrap();
    let booked = client.acquire(Request::from(RPM).ticket_within(Duration::from_secs(30))).await.unwrap();
    let Outcome::RetryIn(retry) = booked else { panic!("there was one left") };
    world.pass(retry.wait());
    assert!(matches!(client.redeem(retry.ticket().unwrap()).await.unwrap(), Redeemed::Granted(_)));
    let busy = world.client_with(|settings| settings.prefetch([TPM]));
    for _ in 0..20 {
        let _ = take(&busy, one_token()).await;
    }
    let sharing =
        world.client_with(|settings| settings.on_unavailable(OnUnavailable::Share("0.5".parse().unwrap())));
    let _ = take(&sharing, one_token()).await;
    world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
    let _local = take(&sharing, one_token()).await;
    client.acquire(one_token()).await.unwrap_err();
    let quick = Duration::from_millis(100);
    let out = world.client_with(|settings| settings.attempt_timeout(quick).answer_within(quick));
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    out.ops().warm_up().await.unwrap_err();
    world.dynamo.faults().draw(|_| None);
}

/// Slots that wait, time out and are renewed, and leases that end under their holders.
async fn hold(world: &World) {
    let client = world.client();
    let mut held = take(&client, SLOTS).await;
    held.renew().await.unwrap();
    let late = client.slot(SLOTS).timeout(Duration::from_secs(1));
    late.run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await.unwrap_err();
    world.pass_lease();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    held.renew().await.unwrap_err();
    held.renew().await.unwrap_err();
    held.release().await.unwrap();
    let slow = client.slot(SLOTS).timeout(Duration::from_secs(1));
    let slow =
        slow.run(async |_| Ok::<_, sluice_sdk::LimitError>(tokio::time::sleep(Duration::from_secs(5)).await));
    slow.await.unwrap_err();
    world
        .dynamo
        .faults()
        .next(Operation::TransactWriteItems, Fault::cancelled(&["TransactionConflict", "None"]));
    take(&client, SLOTS).await.release().await.unwrap();
    let mut config = ReservationConfig::default();
    config.max_reservation_age = Duration::from_secs(10);
    let tracker = client.reservations(config);
    tracker.store("request-7", SLOTS, take(&client, SLOTS).await).unwrap();
    world.pass(Duration::from_secs(11));
    tracker.release_stale().await;
    let gauges = client.publish_gauges(Duration::from_secs(10));
    settle().await;
    drop(gauges);
}

/// What the vendor says.
async fn listen_to_vendor(world: &World) {
    let client = world.client();
    let mut grant = take(&client, one_token()).await;
    grant.settle(TPM, 5).await.unwrap();
    grant.settle(TPM, 2).await.unwrap();
    let lower = [("x-ratelimit-limit-tokens", "500"), ("x-ratelimit-remaining-tokens", "100")];
    client.observe(TPM, &lower, Some(&grant)).await.unwrap();
    client.observe(TPM, &[("x-acme-ratelimit-left", "5")], None).await.unwrap();
    let unreadable = Reply { status: 429, headers: &[("retry-after", "soon")], body: None };
    client.on_rate_limited(TPM, unreadable).await.unwrap();
    client.cool_down(RPM, Duration::from_secs(1)).await.unwrap();
    let _ = client.admit(RPM, 1, None).await.unwrap();
    let estimator = TokenEstimator::default();
    (0..20).for_each(|_| estimator.observe("k", 10));
    assert!(estimator.cap("k", 100).raise());
}

async fn everything() -> (Listening, World) {
    let listening = Listening::begin();
    let world = world().await;
    acquire(&world).await;
    hold(&world).await;
    listen_to_vendor(&world).await;
    (listening, world)
}

#[tokio::test(start_paused = true)]
async fn every_name_of_the_table_is_told_with_its_labels_and_no_name_outside_it() {
    let (listening, _world) = everything().await;
    let recorded = listening.recorded();
    let mut names: BTreeMap<&str, BTreeSet<Vec<&str>>> = BTreeMap::new();
    for ((name, labels), value) in &recorded {
        // Counters that alerts look at begin at zero.
        if matches!(value, DebugValue::Counter(0)) {
            continue;
        }
        assert!(is_told(value), "{name} {labels:?} was registered and never told");
        names.entry(name).or_default().insert(labels.iter().map(|(label, _)| label.as_str()).collect());
    }
    for metric in METRICS.iter().filter(|metric| metric.source() != MetricSource::Table) {
        let labels = names.remove(metric.name()).unwrap_or_else(|| panic!("{} was not told", metric.name()));
        assert_eq!(labels, BTreeSet::from([metric.labels().to_vec()]), "{}", metric.name());
        let kind =
            recorded.iter().find(|((name, _), _)| name == metric.name()).map(|(_, value)| match value {
                DebugValue::Counter(_) => MetricKind::Counter,
                DebugValue::Gauge(_) => MetricKind::Gauge,
                DebugValue::Histogram(_) => MetricKind::Histogram,
            });
        assert_eq!(kind, Some(metric.kind()), "{}", metric.name());
    }
    assert_eq!(names, BTreeMap::new(), "names outside the table");
}

/// A gauge may be zero.
fn is_told(value: &DebugValue) -> bool {
    match value {
        DebugValue::Counter(count) => *count > 0,
        DebugValue::Gauge(_) => true,
        DebugValue::Histogram(values) => !values.is_empty(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_is_counted_once() {
    let (listening, world) = everything().await;
    let recorded = listening.recorded();
    let grants = |dimension, source| {
        counted(&recorded, "sluice.grants", &[("dimension", dimension), ("source", source)])
    };
    assert_eq!((grants(RPM, "table"), grants(RPM, "ticket")), (4, 1));
    assert_eq!(grants(TPM, "local"), 1);
    assert_eq!(grants(TPM, "stock") + grants(TPM, "table"), 20 + 1 + 1);
    assert!(grants(TPM, "stock") > 0);
    let refused = |dimension, reason| {
        counted(&recorded, "sluice.refusals", &[("dimension", dimension), ("reason", reason)])
    };
    assert_eq!((refused(RPM, "exhausted"), refused(SLOTS, "no_free_slot")), (2, 1));
    let slots = &[("dimension", SLOTS)][..];
    assert_eq!(
        counted(&recorded, "sluice.lease.expired_but_alive", slots),
        1,
        "found by a renewal, another, and the release"
    );
    assert_eq!(counted(&recorded, "sluice.slot.timeouts", slots), 1);
    assert_eq!(counted(&recorded, "sluice.sweep.restored", slots), 1);
    let released =
        |outcome| counted(&recorded, "sluice.releases", &[("dimension", SLOTS), ("outcome", outcome)]);
    assert_eq!((released("given_back"), released("lease_gone")), (3, 1));
    assert_eq!(counted(&recorded, "sluice.unavailable", &[("outcome", "local")]), 1);
    assert_eq!(counted(&recorded, "sluice.unavailable", &[("outcome", "error")]), 1);
    assert_eq!(counted(&recorded, "sluice.settles", &[("dimension", TPM), ("outcome", "owed")]), 1);
    assert_eq!(counted(&recorded, "sluice.settles", &[("dimension", TPM), ("outcome", "returned")]), 1);
    assert_eq!(counted(&recorded, "sluice.cool_downs", &[DIMENSION]), 1);
    assert_eq!(
        counted(
            &recorded,
            "sluice.conflicts",
            &[("operation", "TransactWriteItems"), ("reason", "conflict")]
        ),
        1
    );
    assert_eq!(counted(&recorded, "sluice.tracker.releases", &[("outcome", "given_back")]), 1);
    assert!(durations(&recorded, "openai#missing").is_none() && durations(&recorded, "other").is_none());
    let errors = value(&recorded, "sluice.acquire.duration", &[("dimension", "other"), ("outcome", "error")]);
    assert!(
        matches!(errors, Some(DebugValue::Histogram(took)) if took.len() == 2),
        "a name that is no bucket's has no label"
    );
    drop(world);
}

fn durations<'a>(recorded: &'a Recorded, dimension: &str) -> Option<&'a DebugValue> {
    value(recorded, "sluice.acquire.duration", &[("dimension", dimension), ("outcome", "granted")])
}

/// By the engine's own word, against the meter that weighs the items.
#[tokio::test(start_paused = true)]
async fn capacity_units_are_what_the_meter_counts_but_for_false_conditions() {
    let listening = Listening::begin();
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    listening.recorded();
    world.dynamo.meter().reset();
    for _ in 0..10 {
        let _ = take(&client, RPM).await;
        take(&client, SLOTS).await.release().await.unwrap();
    }
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let recorded = listening.recorded();
    let units = |operation: &str, kind: &str| {
        counted(&recorded, "sluice.capacity_units", &[("operation", operation), ("kind", kind)])
    };
    let meter = world.dynamo.meter();
    assert_eq!(meter.failed_writes(), 0);
    for operation in [Operation::UpdateItem, Operation::TransactWriteItems] {
        let name = format!("{operation:?}");
        assert_eq!(units(&name, "write"), meter.of(operation).write_units, "{name}");
    }
    let read: f64 =
        [Operation::GetItem, Operation::BatchGetItem].iter().map(|of| meter.of(*of).read_units).sum();
    assert_eq!((units("GetItem", "read") + units("BatchGetItem", "read")) as f64, read);
}
