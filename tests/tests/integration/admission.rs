//! Whether a request is worth taking on: what is shed, what never is, and what that costs.

use std::time::Duration;

use sluice_core::{Load, Timestamp};
use sluice_ops::SweepOptions;
use sluice_sdk::admission::{Admission, AdmissionMode, ShedReason};
use sluice_sdk::{Client, Leases, Outcome};
use tokio::time::sleep;

use crate::kind::Kind;
use crate::world::{World, begin, dimension, number, settle, take, text};

mod down;
mod overload;
mod trouble;

const SLOTS: &str = "elevenlabs#concurrent";
const RPM: &str = "openai#rpm";
const SLO: Option<Duration> = Some(Duration::from_secs(5));

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Writes what a sweep would have measured now: so many slots taken and granted, and what departs a second.
async fn measured(world: &World, rate: &str, taken: i32, admitted: i32, pending_since: Option<Timestamp>) {
    let (taken, admitted) = (taken.to_string(), admitted.to_string());
    let now = world.dynamo.clock().now().to_string();
    let since = pending_since.unwrap_or_default().to_string();
    let fields = [
        ("pending", taken.as_str()),
        ("taken", taken.as_str()),
        ("admitted", admitted.as_str()),
        ("drain_rate", rate),
        ("measured_at", now.as_str()),
        ("sequence", "7"),
        ("pending_since", since.as_str()),
    ];
    let row = fields.iter().map(|(name, value)| ((*name).to_owned(), number(value)));
    let key = ("vendor_dimension".to_owned(), text(&Load::key(&dimension(SLOTS))));
    world.put(row.chain([key]).collect()).await;
}

/// Holds slots as another process would, for ever.
async fn hold(world: &World, slots: usize) {
    let client = world.client();
    for _ in 0..slots {
        std::mem::forget(take(&client, SLOTS).await);
    }
}

/// The second answer of two: of a vendor that counts as down the first may let a request through, to see.
async fn reason(client: &Client) -> Option<ShedReason> {
    let _ = client.admit(SLOTS, 1, SLO).await.unwrap();
    client.admit(SLOTS, 1, SLO).await.unwrap().shed().map(|shed| shed.reason())
}

async fn wait(client: &Client, backlog: i32) -> Option<Duration> {
    match client.admit(SLOTS, 1, None).backlog(backlog).await.unwrap() {
        Admission::Admitted(admitted) => admitted.wait(),
        Admission::Shed(shed) => panic!("{shed:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_be_done_too_late_is_shed_and_told_when_to_come_back() {
    let world = World::with_slots(SLOTS, 4).await;
    hold(&world, 4).await;
    measured(&world, "0.5", 4, 4, None).await;
    let client = world.client();
    let mut waits = Vec::new();
    for _ in 0..50 {
        let answer = client.admit(SLOTS, 1, SLO).await.unwrap();
        let shed = answer.shed().expect("shed");
        // Four that are held and the request, at one in two seconds; five of the ten are over.
        assert_eq!((shed.reason(), shed.wait()), (ShedReason::OverSlo, secs(10)));
        assert!(
            (secs(5)..=Duration::from_millis(6_500)).contains(&shed.retry_after()),
            "{:?}",
            shed.retry_after()
        );
        waits.push(shed.retry_after());
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 25, "those who are shed together come back together: {waits:?}");
    let in_time = client.admit(SLOTS, 1, Some(secs(10))).await.unwrap();
    assert!(in_time.is_admitted());
}

#[tokio::test(start_paused = true)]
async fn without_an_slo_nobody_is_ever_shed() {
    let world = World::with_slots(SLOTS, 1).await;
    hold(&world, 1).await;
    measured(&world, "0.001", 1, 1, None).await;
    let client = world.client();
    let _ = client.admit(SLOTS, 1, None).await.unwrap();
    for _ in 0..20 {
        sleep(secs(15)).await;
        assert!(client.admit(SLOTS, 1, None).backlog(1_000).await.unwrap().is_admitted());
    }
    assert_eq!(
        reason(&client).await,
        Some(ShedReason::UpstreamDown),
        "nothing has departed for five minutes"
    );
    assert!(client.admit(SLOTS, 1, None).await.unwrap().is_admitted());
    world.rate(RPM, 1, 60).await;
    assert!(client.admit(RPM, 1, None).backlog(1_000).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shed_after_a_day_without_work() {
    let world = World::with_slots(SLOTS, 4).await;
    let (client, sweeper) = (world.client(), world.client());
    // Work, measured by real sweeps: two held for five seconds each.
    for _ in 0..3 {
        let _ = sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
        for _ in 0..20 {
            let held = (take(&client, SLOTS).await, take(&client, SLOTS).await);
            sleep(secs(5)).await;
            let _ = sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
            let _ = (held.0.release().await.unwrap(), held.1.release().await.unwrap());
        }
    }
    assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
    for _ in 0..24 {
        sleep(secs(3_600)).await;
        let _ = sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
    }
    assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
    // And with all slots taken a moment ago, the rate of yesterday says that it is done in time.
    let _held = [
        take(&sweeper, SLOTS).await,
        take(&sweeper, SLOTS).await,
        take(&sweeper, SLOTS).await,
        take(&sweeper, SLOTS).await,
    ];
    sleep(secs(1)).await;
    let answer = client.admit(SLOTS, 1, Some(secs(20))).await.unwrap();
    assert!(answer.is_admitted(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_pending_counts_once() {
    for kind in [Kind::Rows, Kind::Inline] {
        // Not over a socket, where a caller in line that is not polled would be waited for.
        let world = World::embedded().await.with(kind);
        world.slots(SLOTS, 4).await;
        let client = world.client();
        // One lease with a row, one inline, two of this process.
        std::mem::forget(
            take(&world.client_with(|settings| settings.leases(Leases::Concurrent)), SLOTS).await,
        );
        std::mem::forget(take(&world.client_with(|settings| settings.leases(Leases::Inline)), SLOTS).await);
        let _held = [take(&client, SLOTS).await, take(&client, SLOTS).await];
        measured(&world, "1", 4, 4, None).await;
        sleep(secs(2)).await;
        assert_eq!(wait(&client, 0).await, Some(secs(4 + 1)));
        assert_eq!(wait(&client, 3).await, Some(secs(4 + 3 + 1)), "its own queue");
        let slot = || client.slot(SLOTS).run(async |_| Ok::<_, sluice_sdk::LimitError>(()));
        let in_line = (begin(slot()).await, begin(slot()).await);
        settle().await;
        assert_eq!(wait(&client, 3).await, Some(secs(4 + 2 + 3 + 1)), "those in line");
        drop(in_line);
        settle().await;
        assert_eq!(wait(&client, 3).await, Some(secs(4 + 3 + 1)), "who left waits no more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_after_low_demand_is_taken_on_while_slots_are_free() {
    let world = World::with_slots(SLOTS, 10).await;
    hold(&world, 2).await;
    // What came was little, and so it departed slowly.
    measured(&world, "0.01", 2, 2, None).await;
    let client = world.client();
    assert_eq!(wait(&client, 7).await, Some(Duration::ZERO));
    assert!(client.admit(SLOTS, 1, SLO).backlog(7).await.unwrap().is_admitted());
    let answer = client.admit(SLOTS, 1, SLO).backlog(8).await.unwrap();
    assert_eq!(answer.shed().map(|shed| shed.reason()), Some(ShedReason::OverSlo));
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_nobody_has_measured_sheds_nobody() {
    let world = World::with_slots(SLOTS, 1).await;
    hold(&world, 1).await;
    let client = world.client();
    let Admission::Admitted(admitted) = client.admit(SLOTS, 1, SLO).backlog(1_000).await.unwrap() else {
        panic!("shed")
    };
    assert_eq!((admitted.wait(), admitted.would_shed()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_rate_buckets_wait_is_the_booked_start() {
    let world = World::embedded().await;
    world.rate(RPM, 60, 60).await;
    let client = world.client();
    take(&client, RPM).await.release().await.unwrap();
    for backlog in [0, 20, 58, 59, 75] {
        let told = match client.admit(RPM, 1, None).backlog(backlog).await.unwrap() {
            Admission::Admitted(admitted) => admitted.wait().unwrap(),
            Admission::Shed(shed) => panic!("{shed:?}"),
        };
        let waited = secs(u64::try_from(backlog + 1 - 59).unwrap_or(0));
        assert_eq!(told, waited, "{backlog} before it");
    }
    // Booked by another process: the line is where its bookings leave it.
    let other = world.client();
    let all = other.acquire(sluice_sdk::Request::from(RPM).cost(RPM, 59)).await.unwrap().granted().unwrap();
    let queued = begin(other.slot(RPM).cost(RPM, 3).run(async |_| Ok::<_, sluice_sdk::LimitError>(()))).await;
    settle().await;
    sleep(Duration::from_millis(1_001)).await;
    let Admission::Shed(shed) = client.admit(RPM, 1, Some(secs(1))).await.unwrap() else {
        panic!("admitted")
    };
    let began = world.dynamo.clock().now();
    let start = client
        .slot(RPM)
        .timeout(secs(60))
        .run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.start_at()))
        .await
        .unwrap();
    assert_eq!((shed.reason(), start.since(began)), (ShedReason::OverSlo, shed.wait()));
    drop((all, queued));
    client.cool_down(RPM, secs(90)).await.unwrap();
    let Admission::Shed(shed) = client.admit(RPM, 1, Some(secs(30))).await.unwrap() else {
        panic!("admitted")
    };
    assert!(shed.wait() > secs(89), "{:?}", shed.wait());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_vendor_asked_for_is_waited_for_with_slots_free() {
    let world = World::with_slots(SLOTS, 4).await;
    let client = world.client();
    client.cool_down(SLOTS, secs(30)).await.unwrap();
    assert_eq!(reason(&client).await, Some(ShedReason::OverSlo));
    assert!(client.admit(SLOTS, 1, Some(secs(40))).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_sheds_nobody_and_tells_what_it_would() {
    let world = World::with_slots(SLOTS, 1).await;
    hold(&world, 1).await;
    measured(&world, "0.01", 1, 1, None).await;
    let client = world.client_with(|settings| settings.admission(AdmissionMode::Shadow));
    let Admission::Admitted(admitted) = client.admit(SLOTS, 1, SLO).await.unwrap() else { panic!("shed") };
    assert_eq!(admitted.wait(), Some(secs(200)));
    assert_eq!(admitted.would_shed().map(|shed| shed.reason()), Some(ShedReason::OverSlo));
    let Admission::Admitted(admitted) = client.admit(SLOTS, 1, None).await.unwrap() else { panic!("shed") };
    assert_eq!(admitted.would_shed(), None);
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_asks_for_nothing() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    hold(&world, 1).await;
    let client = world.client_with(|settings| settings.admission(AdmissionMode::Off));
    world.dynamo.meter().reset();
    assert!(client.admit(SLOTS, 1, Some(Duration::ZERO)).backlog(9).await.unwrap().is_admitted());
    sleep(secs(60)).await;
    assert_eq!(world.dynamo.meter().total().requests, 0);
}
