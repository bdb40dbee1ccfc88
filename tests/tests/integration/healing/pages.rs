//! Pages that are lost, too much for a turn, or of buckets that cannot be given back to: the budget holds,
//! and the scan goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::schema::{HEAL_POSITION, HEAL_ROWS};
use sluice_testkit::Call;

use super::budget::{TEN_MINUTES, ask, saturated};
use super::*;

fn has(call: Call<'_>, part: &str) -> bool {
    call.body.windows(part.len()).any(|window| window == part.as_bytes())
}

/// Most rows that a scan asks for.
fn limit(call: Call<'_>) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(call.body).ok()?;
    (call.operation == Operation::Scan).then(|| body["Limit"].as_u64())?
}

/// What the healing scans of ten minutes may use: the last page is paid for after it.
fn most_of(per_minute: u32) -> f64 {
    f64::from(per_minute) * 10.0 + 129.0 * 2.0
}

/// DynamoDB reads the page, and bills it.
#[tokio::test(start_paused = true)]
async fn a_page_whose_reply_is_lost_or_late_is_paid_for() {
    for fault in [Fault::LoseReply, Fault::DelayReply(Duration::from_secs(20))] {
        for per_minute in [10, 1_500] {
            let (world, clients) = saturated(20, 2, |settings| settings.heal_budget(per_minute)).await;
            let lost = fault.clone();
            // Small pages come through: the scan goes on, and costs what it may.
            world
                .dynamo
                .faults()
                .draw(move |call| limit(call).filter(|rows| *rows > 20).map(|_| lost.clone()));
            world.dynamo.meter().reset();
            ask(&clients, TEN_MINUTES).await;
            let used = world.dynamo.meter().of(Operation::Scan).read_units;
            assert!(used <= most_of(per_minute), "{fault:?}: {used} units by {per_minute} a minute");
            assert!(used >= 100.0, "{fault:?}: {used} units by {per_minute} a minute");
        }
    }
}

/// As a function that is frozen after its refusal: nobody says what its page cost.
#[tokio::test(start_paused = true)]
async fn processes_that_end_between_a_page_and_its_progress_keep_to_the_budget() {
    for per_minute in [10, 600] {
        let (world, clients) = saturated(20, 5, |settings| settings.heal_budget(per_minute)).await;
        world.dynamo.faults().draw(|call| has(call, ":heal_rows\"").then_some(Fault::LoseRequest));
        world.dynamo.meter().reset();
        ask(&clients, TEN_MINUTES).await;
        let used = world.dynamo.meter().of(Operation::Scan).read_units;
        assert!(used <= most_of(per_minute), "{used} units by {per_minute} a minute");
        assert!(used >= 100.0, "{used} units by {per_minute} a minute");
    }
}

/// As where its reply takes longer than an attempt.
#[tokio::test(start_paused = true)]
async fn a_page_that_never_arrives_whole_is_read_in_parts() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    world.dynamo.faults().draw(|call| limit(call).filter(|rows| *rows > 100).map(|_| Fault::LoseReply));
    let client = world.client();
    // 2,500 rows, 625, 156 and 39.
    assert!(polled_until_granted(&client).await <= (HEAL_EVERY + Duration::from_secs(1)) * 4);
    // And in larger ones again.
    world.dynamo.faults().clear();
    let held = take(&client, SLOTS).await;
    for _ in 0..6 {
        refusal(&client, SLOTS).await;
        sleep(HEAL_EVERY + Duration::from_secs(1)).await;
    }
    assert_eq!(world.row(HEAL_KEY).await.unwrap()[HEAL_ROWS], number("2500"));
    held.release().await.unwrap();
}

/// Leases that have ended, each of a bucket of its own: a rate, or none at all.
fn ended_of_others(world: &World, buckets: usize) {
    let now = world.dynamo.clock().now();
    let leases = (0..buckets).map(|at| {
        let id = LeaseId::new(format!("{at}")).unwrap();
        let ended = now.before(Duration::from_secs(60));
        Lease::new(dimension(&format!("gone{at}#rpm")), &id, Cost::ONE, ended, ended, "crashed").put()
    });
    world.dynamo.load(TABLE, leases).unwrap();
}

#[tokio::test(start_paused = true)]
async fn ended_leases_that_hold_no_slots_cost_their_buckets_one_reading() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    world.rate("some#rpm", 10, 60).await;
    let rate = world.client_with(|settings| settings.leases(Leases::All));
    std::mem::forget(take(&rate, "some#rpm").await);
    world.pass_lease();
    ended_of_others(&world, 50);
    let client = world.client_with(|settings| settings.lease_ttl(TEN_MINUTES * 2));
    let _held = take(&client, SLOTS).await;
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!(world.leases().await, 1);
    world.dynamo.meter().reset();
    sleep(HEAL_EVERY).await;
    refusal(&client, SLOTS).await;
    sleep(HEAL_EVERY).await;
    let reads = world.dynamo.meter().of(Operation::GetItem).requests;
    assert!(reads <= 5, "{reads} reads");
}

/// Slow reads: 320 buckets in the time of a turn. Before the page there are others, so that it is not the
/// last.
#[tokio::test(start_paused = true)]
async fn a_page_of_more_buckets_than_a_turn_has_time_for_is_done_in_parts() {
    let world = World::embedded().await;
    world.slots(SLOTS, 20).await;
    crash(&world, 20).await;
    world.pass_lease();
    ended_of_others(&world, 3_000);
    // They cannot be deleted either, and stay in the way.
    world.dynamo.faults().draw(|call| match call.operation {
        Operation::GetItem if has(call, "gone") => Some(Fault::Delay(Duration::from_millis(100))),
        // Not the progress, whose position may be one of them.
        Operation::DeleteItem | Operation::TransactWriteItems if has(call, "gone") => {
            Some(Fault::service("ValidationException", 400, serde_json::json!({})))
        }
        _ => None,
    });
    let client = world.client_with(|settings| settings.lease_ttl(TEN_MINUTES * 2).heal_budget(10_000));
    let (began, mut held) = (Instant::now(), Vec::new());
    while held.len() < 20 {
        if let Outcome::Granted(grant) = client.acquire(SLOTS).await.unwrap() {
            held.push(grant);
        }
        sleep(Duration::from_millis(500)).await;
        // 3,000 readings of 25 ms each, and a page that is too large from time to time.
        assert!(began.elapsed() < Duration::from_secs(75 * 4), "{} of 20 slots are back", held.len());
    }
}

/// What is read of buckets counts as what is read of the table.
#[tokio::test(start_paused = true)]
async fn buckets_that_are_read_for_a_page_are_paid_for() {
    let (world, clients) = saturated(0, 2, |settings| settings.heal_budget(60)).await;
    ended_of_others(&world, 400);
    let denied = serde_json::json!({ "message": "no" });
    world.dynamo.faults().draw(move |call| {
        let is_delete = matches!(call.operation, Operation::DeleteItem | Operation::TransactWriteItems);
        (is_delete && has(call, "gone")).then(|| Fault::service("AccessDeniedException", 400, denied.clone()))
    });
    let read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&read);
    world.dynamo.faults().watch(move |answered| {
        let is_of_these = answered.call.operation == Operation::GetItem && has(answered.call, "gone");
        counted.fetch_add(u64::from(is_of_these), Ordering::SeqCst);
    });
    world.dynamo.meter().reset();
    ask(&clients, TEN_MINUTES).await;
    let read = read.load(Ordering::SeqCst);
    // 400 in each turn, and the scan.
    assert!((400..=1_000).contains(&read), "{read} readings by 60 units a minute");
}

/// A bucket of which DynamoDB refuses every write, and others.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_a_process_may_not_write_keeps_it_from_no_other() {
    for code in ["AccessDeniedException", "ValidationException"] {
        let world = World::with_slots(SLOTS, 1).await;
        world.slots("other#concurrent", 1).await;
        let holder = world.client();
        std::mem::forget(take(&holder, "other#concurrent").await);
        crash(&world, 1).await;
        world.pass_lease();
        let message = serde_json::json!({ "message": "no" });
        world.dynamo.faults().draw(move |call| {
            (call.operation == Operation::TransactWriteItems && has(call, "other#concurrent"))
                .then(|| Fault::service(code, 400, message.clone()))
        });
        let client = world.client();
        for _ in 0..3 {
            let within = HEAL_EVERY + Duration::from_secs(3);
            assert!(polled_until_granted(&client).await <= within, "{code}");
            crash(&world, 1).await;
            world.pass_lease();
        }
        assert_eq!(world.free("other#concurrent").await, "0");
        assert_eq!(world.row(HEAL_KEY).await.unwrap().get(HEAL_POSITION), None);
    }
}
