//! A role that may not heal: told once, and no hindrance to those that may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_testkit::{Call, Faults, Gate, Rights};

use super::mark::is_mark;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_role_that_may_not_heal_is_told_once_and_asks_no_more() {
    // The note; or the scan once, and notes as before.
    for (denied, notes, scanned) in [("load#", 1..=1, 0), ("Scan", 5..=10, 1)] {
        let world = World::with_slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world.pass_lease();
        let client = world.client();
        let asked = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let counted = Arc::clone(&asked);
        world.dynamo.faults().draw(move |call| {
            let (is_scan, is_note) =
                (call.operation == Operation::Scan, call.operation == Operation::UpdateItem);
            let is_load = call.body.windows(5).any(|part| part == b"load#");
            counted.0.fetch_add(u64::from(is_note && is_load && !is_of_a_mark(call)), Ordering::SeqCst);
            counted.1.fetch_add(u64::from(is_scan), Ordering::SeqCst);
            let is_denied = if denied == "Scan" { is_scan } else { is_load && is_note };
            is_denied
                .then(|| Fault::service("AccessDeniedException", 400, serde_json::json!({ "message": "no" })))
        });
        for _ in 0..5 {
            refusal(&client, SLOTS).await;
            sleep(HEAL_EVERY * 2).await;
        }
        let (noted, scans) = (asked.0.load(Ordering::SeqCst), asked.1.load(Ordering::SeqCst));
        assert!(notes.contains(&noted) && scans <= scanned, "{denied}: {noted} notes, {scans} scans");
    }
}

/// What another policy allows: all but the scan.
fn without_scan() -> Faults {
    let actions = ["GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"];
    let rights =
        actions.iter().fold(Rights::none(), |rights, action| rights.allow(format!("dynamodb:{action}")));
    let faults = Faults::default();
    faults.allow_only(rights);
    faults
}

/// Whether it is a mark, or the write that takes it back.
fn is_of_a_mark(call: Call<'_>) -> bool {
    is_mark(call) || is_of_an_unmark(call)
}

fn is_of_an_unmark(call: Call<'_>) -> bool {
    let unmark = b"REMOVE #healed_at";
    call.body.windows(unmark.len()).any(|part| part == unmark)
}

/// A client of that role.
fn may_not_scan(world: &World, faults: Faults) -> Client {
    let clock = world.dynamo.clock().off_by(0);
    world.dynamo.apart(faults).client_with(Client::builder(TABLE).clock(clock).leases(Leases::Concurrent))
}

/// Each new process of a fleet learns anew that it may not: were its mark to stay, one each 8 s would keep
/// all others from it.
#[tokio::test(start_paused = true)]
async fn a_role_that_may_mark_and_not_scan_leaves_its_turn_to_others() {
    for lost in [false, true] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world.pass_lease();
        let faults = without_scan();
        let writes = AtomicU64::new(0);
        faults.draw(move |call| {
            (is_of_a_mark(call) && lost)
                .then(|| writes.fetch_add(1, Ordering::SeqCst))
                .filter(|at| at % 2 == 0)?;
            Some(Fault::LoseReply)
        });
        let client = may_not_scan(&world, faults);
        refusal(&client, SLOTS).await;
        sleep(Duration::from_millis(900)).await;
        assert_eq!(world.row(HEAL_KEY).await.unwrap().get(HEALED_AT), None, "replies lost: {lost}");
        let other = world.client();
        refusal(&other, SLOTS).await;
        settle().await;
        assert_eq!(world.free(SLOTS).await, "1", "replies lost: {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_another_made_meanwhile_is_not_taken_back() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let faults = without_scan();
    let client = may_not_scan(&world, faults.clone());
    std::mem::forget(take(&client, SLOTS).await);
    let in_vain = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&in_vain);
    faults.watch(move |answered| {
        let is_refused = is_of_a_mark(answered.call) && answered.status != 200;
        counted.fetch_add(u64::from(is_refused), Ordering::SeqCst);
    });
    let gate = Gate::default();
    let unmark = gate.clone();
    faults.draw(move |call| is_of_an_unmark(call).then(|| Fault::Hold(unmark.clone())));
    refusal(&client, SLOTS).await;
    gate.reached().await;
    world.pass(HEAL_EVERY);
    let other = world.client();
    refusal(&other, SLOTS).await;
    settle().await;
    let others = world.row(HEAL_KEY).await.unwrap()[HEALED_AT].clone();
    gate.open();
    settle().await;
    assert_eq!(in_vain.load(Ordering::SeqCst), 1, "it tried to take its own back");
    assert_eq!(world.row(HEAL_KEY).await.unwrap().get(HEALED_AT), Some(&others));
}
