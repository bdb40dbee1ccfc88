//! What each caller used of a bucket, in its load row.

use std::time::Duration;

use sluice_core::{Load, UseByCaller};
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, Request};
use sluice_testkit::{Fault, Operation};

use crate::kind::Kind;
use crate::world::{World, dimension, refusal, settle, take};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";
const MINUTE: Duration = Duration::from_secs(61);

async fn uses_of(world: &World, name: &str) -> UseByCaller {
    let client = world.client();
    let load = client.ops().load(&dimension(name)).await.unwrap();
    load.use_by_caller(world.dynamo.clock().now())
}

async fn uses(world: &World, name: &str) -> Vec<(String, String)> {
    let uses = uses_of(world, name).await.callers.into_iter();
    uses.map(|one| (one.caller, format!("{:.0}", one.used.to_string().parse::<f64>().unwrap()))).collect()
}

fn pair(caller: &str, used: &str) -> (String, String) {
    (caller.to_owned(), used.to_owned())
}

fn caller(world: &World, name: &str) -> Client {
    world.client_with(|settings| settings.caller(name).note_use(true))
}

/// A slot, held for a second.
async fn hold_a_second(world: &World, client: &Client) -> sluice_sdk::Grant {
    let held = take(client, SLOTS).await;
    world.pass(Duration::from_secs(1));
    held
}

/// A minute, for the runtime and the table.
async fn a_minute_passes(world: &World) {
    settle().await;
    world.pass(MINUTE);
    tokio::time::sleep(MINUTE).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn each_process_notes_what_it_used_with_one_write_a_minute_and_none_while_it_is_idle() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let (api, worker) = (caller(&world, "api"), caller(&world, "worker"));
    for _ in 0..30 {
        let _ = take(&api, RPM).await;
    }
    let _ = take(&worker, Request::from(RPM).cost(RPM, 12)).await;
    assert_eq!(uses(&world, RPM).await, [], "no write for a grant");
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "30"), pair("worker", "12")]);
    let meter = world.dynamo.meter();
    meter.reset();
    for _ in 0..20 {
        let _ = take(&api, RPM).await;
    }
    let for_grants = meter.reset().write_units;
    a_minute_passes(&world).await;
    let note = meter.reset();
    assert_eq!(
        (for_grants, note.requests, note.write_units),
        (20, 1, 1),
        "one write unit for a minute's use"
    );
    assert_eq!(uses(&world, RPM).await, [pair("api", "50"), pair("worker", "12")]);
    meter.reset();
    for _ in 0..10 {
        a_minute_passes(&world).await;
    }
    assert_eq!(meter.reset().requests, 0, "an idle process writes nothing");
    assert_eq!(uses(&world, RPM).await, [], "and what is old is not shown");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_changes_what_was_used() {
    let world = World::embedded().await;
    world.tokens("acme#tpm", 1_000, 1_000_000).await;
    let api = caller(&world, "api");
    let mut grant = take(&api, Request::from("acme#tpm").cost("acme#tpm", 100)).await;
    grant.settle("acme#tpm", 40).await.unwrap();
    let mut grant = take(&api, Request::from("acme#tpm").cost("acme#tpm", 100)).await;
    grant.settle("acme#tpm", 150).await.unwrap();
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, "acme#tpm").await, [pair("api", "190")]);
}

#[tokio::test(start_paused = true)]
async fn slots_count_for_the_time_for_which_they_were_held() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::embedded().await.with(kind);
        world.slots(SLOTS, 5).await;
        let api = caller(&world, "api");
        let held = [take(&api, SLOTS).await, take(&api, Request::from(SLOTS).cost(SLOTS, 2)).await];
        world.pass(Duration::from_secs(20));
        for grant in held {
            grant.release().await.unwrap();
        }
        a_minute_passes(&world).await;
        assert_eq!(
            uses(&world, SLOTS).await,
            [pair("api", "60")],
            "{kind:?}: three slots for twenty seconds"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_notes_its_use_before() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let batch = caller(&world, "batch");
    for _ in 0..7 {
        let _ = take(&batch, RPM).await;
    }
    batch.close(Duration::from_secs(10)).await;
    assert_eq!(uses(&world, RPM).await, [pair("batch", "7")]);
}

#[tokio::test(start_paused = true)]
async fn processes_that_note_at_once_lose_nothing() {
    let world = World::embedded().await.distant();
    world.rate(RPM, 1_000, 60).await;
    let clients: Vec<Client> = (0..4).map(|at| caller(&world, &format!("worker-{}", at % 2))).collect();
    for _ in 0..2 {
        for client in &clients {
            let _ = take(client, RPM).await;
        }
        a_minute_passes(&world).await;
    }
    // A note that was overtaken in every try is part of the next.
    for client in &clients {
        client.close(Duration::from_secs(10)).await;
    }
    assert_eq!(uses(&world, RPM).await, [pair("worker-0", "4"), pair("worker-1", "4")]);
}

#[tokio::test(start_paused = true)]
async fn a_note_that_was_planned_before_another_does_not_overwrite_it() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let (api, worker) = (caller(&world, "api"), caller(&world, "worker"));
    let _ = (take(&api, RPM).await, take(&worker, Request::from(RPM).cost(RPM, 3)).await);
    // The first try finds no entry, the second writes all entries that the reply showed: none.
    let [first, second] = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let closing = tokio::spawn(async move { api.close(Duration::from_secs(60)).await });
    first.reached().await;
    first.open();
    second.reached().await;
    worker.close(Duration::from_secs(60)).await;
    second.open();
    closing.await.unwrap();
    assert_eq!(uses(&world, RPM).await, [pair("worker", "3"), pair("api", "1")]);
}

#[tokio::test(start_paused = true)]
async fn however_many_callers_there_are_the_row_costs_one_unit() {
    let world = World::embedded().await;
    world.slots(SLOTS, 100).await;
    // The notes of healing and what a sweep measures stand beside it.
    let full = world.client();
    let all = || Request::from(SLOTS).cost(SLOTS, 100);
    let held = take(&full, all()).await;
    refusal(&full, all()).await;
    settle().await;
    full.ops().sweep(SweepOptions::default()).await.unwrap();
    held.release().await.unwrap();
    for at in 0..40 {
        let client = caller(&world, &format!("ontopix-service-number-{at}"));
        hold_a_second(&world, &client).await.release().await.unwrap();
        let _ = client.close(Duration::from_secs(1)).await;
    }
    let meter = world.dynamo.meter();
    meter.reset();
    let client = caller(&world, "the-last");
    hold_a_second(&world, &client).await.release().await.unwrap();
    meter.reset();
    let _ = client.close(Duration::from_secs(1)).await;
    let note = meter.reset();
    assert_eq!((note.requests, note.write_units), (2, 2), "the first adds to an entry that is not there");
    let names: Vec<_> = uses(&world, SLOTS).await.into_iter().map(|(name, _)| name).collect();
    assert!(names.len() > 10 && names.contains(&"other".to_owned()), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_note_that_fails_is_part_of_the_next_and_one_that_is_denied_is_the_last() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let api = caller(&world, "api");
    let _ = take(&api, RPM).await;
    world.dynamo.faults().always(Operation::UpdateItem, Fault::throttled());
    a_minute_passes(&world).await;
    world.dynamo.faults().clear();
    let _ = take(&api, RPM).await;
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "2")]);
    let _ = take(&api, RPM).await;
    let denied = Fault::service("AccessDeniedException", 400, serde_json::json!({"message": "no right"}));
    world.dynamo.faults().next(Operation::UpdateItem, denied);
    a_minute_passes(&world).await;
    let _ = take(&api, RPM).await;
    world.dynamo.meter().reset();
    a_minute_passes(&world).await;
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

/// A function whose invocations have a runtime each.
#[test]
fn a_runtime_that_ends_before_the_note_takes_no_use_with_it() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let first = runtime();
    let (world, api) = first.block_on(async {
        let world = World::embedded().await;
        world.rate(RPM, 1_000, 60).await;
        let api = caller(&world, "api");
        let _ = take(&api, RPM).await;
        (world, api)
    });
    drop(first);
    runtime().block_on(async {
        let _ = take(&api, RPM).await;
        a_minute_passes(&world).await;
        assert_eq!(uses(&world, RPM).await, [pair("api", "2")]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_set_so_notes_nothing() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let quiet = world.client_with(|settings| settings.caller("quiet").note_use(false));
    let _ = take(&quiet, RPM).await;
    a_minute_passes(&world).await;
    quiet.close(Duration::from_secs(1)).await;
    assert!(world.row(&Load::key(&dimension(RPM))).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_note_that_hangs_when_the_client_is_closed_cuts_nothing_off() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let api = caller(&world, "api");
    let _ = take(&api, RPM).await;
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    assert!(!api.close(Duration::from_secs(5)).await.cut_off);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_made_used_nothing() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let api = caller(&world, "api");
    let _made = take(&api, Request::from(RPM).cost(RPM, 3)).await;
    take(&api, Request::from(RPM).cost(RPM, 12)).await.cancel().await;
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "3")]);
    // Also if it was noted meanwhile.
    let held = take(&api, Request::from(RPM).cost(RPM, 12)).await;
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "15")]);
    held.cancel().await;
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "3")]);
}

/// A Lambda that is thawed after an hour has used nothing within the last minutes.
#[tokio::test(start_paused = true)]
async fn what_was_used_before_a_freeze_is_not_noted_after_it() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let api = caller(&world, "api");
    let _before = take(&api, Request::from(RPM).cost(RPM, 12)).await;
    settle().await;
    world.pass(Duration::from_secs(3_600));
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, []);
    let _after = take(&api, Request::from(RPM).cost(RPM, 5)).await;
    a_minute_passes(&world).await;
    assert_eq!(uses(&world, RPM).await, [pair("api", "5")]);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_grants_are_cut_off_at_its_end_notes_its_use_too() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    world.slots(SLOTS, 2).await;
    let api = caller(&world, "api");
    let _held = [take(&api, SLOTS).await, take(&api, Request::from(RPM).cost(RPM, 7)).await];
    assert!(api.close(Duration::from_secs(10)).await.cut_off);
    assert_eq!(uses(&world, RPM).await, [pair("api", "7")]);
}
