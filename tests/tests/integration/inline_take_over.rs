//! Inline leases change hands: a holder that died loses its slot to whoever is refused, once, and one that
//! lives never does.

use std::time::Duration;

use sluice_sdk::{AcquireError, Leases, Released, RenewError, RetryReason};
use sluice_testkit::{Fault, Gate, Operation};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, refusal, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn with_slots(slots: i32) -> World {
    Kind::Inline.with_slots(SLOTS, slots).await
}

async fn held(world: &World) -> (String, usize) {
    (world.free(SLOTS).await, world.leases().await)
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_takes_over_from_a_dead_holder_in_one_write() {
    let world = with_slots(1).await;
    let dead = take(&world.client(), SLOTS).await;
    let client = world.client();
    refusal(&client, SLOTS).await;
    world.pass_lease();
    world.dynamo.meter().reset();
    let next = take(&client, SLOTS).await;
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 1);
    assert_eq!(held(&world).await, ("0".into(), 1));
    assert_eq!(dead.release().await.unwrap(), Released::LeaseGone);
    assert_eq!(held(&world).await, ("0".into(), 1));
    assert_eq!(next.release().await.unwrap(), Released::GivenBack);
    assert_eq!(held(&world).await, ("1".into(), 0));
}

#[tokio::test(start_paused = true)]
async fn one_write_takes_over_from_as_many_as_it_needs() {
    let world = with_slots(3).await.distant();
    for _ in 0..3 {
        std::mem::forget(take(&world.client(), SLOTS).await);
    }
    world.pass_lease();
    let client = world.client();
    let takers = [0, 1, 2].map(|_| {
        let client = client.clone();
        tokio::spawn(async move { take(&client, SLOTS).await })
    });
    world.dynamo.meter().reset();
    let mut grants = Vec::new();
    for taker in takers {
        grants.push(taker.await.unwrap());
    }
    assert!(world.dynamo.meter().of(Operation::UpdateItem).requests <= 2);
    assert_eq!(held(&world).await, ("0".into(), 3));
}

/// Condition: `#leases.#dead.#ends = :read_ends`.
#[tokio::test(start_paused = true)]
async fn two_that_would_take_over_from_one_holder_do_so_once() {
    let world = with_slots(1).await;
    std::mem::forget(take(&world.client(), SLOTS).await);
    world.pass_lease();
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let rivals = [0, 1].map(|_| {
        let client = world.client();
        tokio::spawn(async move { client.acquire(SLOTS).await.unwrap().granted() })
    });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(Gate::open);
    let mut winners = Vec::new();
    for rival in rivals {
        winners.extend(rival.await.unwrap());
    }
    assert_eq!((winners.len(), held(&world).await), (1, ("0".into(), 1)));
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_lease_runs_is_never_taken_over_from() {
    let world = with_slots(1).await;
    let holder = take(&world.client(), SLOTS).await;
    for passed in [Duration::ZERO, LEASE_TTL - Duration::from_secs(1), Duration::from_secs(3)] {
        world.pass(passed);
        assert_eq!(
            refusal(&world.client(), SLOTS).await.reason(),
            RetryReason::NoFreeSlot,
            "after {passed:?} more"
        );
    }
    // Two seconds after its end it has ended for every clock.
    world.pass(Duration::from_millis(1));
    let _next = take(&world.client(), SLOTS).await;
    assert_eq!(holder.release().await.unwrap(), Released::LeaseGone);
}

/// Condition: `#leases.#dead.#ends = :read_ends`.
#[tokio::test(start_paused = true)]
async fn a_renewal_under_a_take_over_keeps_the_slot() {
    let world = with_slots(1).await;
    let mut holder = take(&world.client(), SLOTS).await;
    world.pass_lease();
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let client = world.client();
    let rival = tokio::spawn(async move { refusal(&client, SLOTS).await });
    gate.reached().await;
    holder.renew().await.unwrap();
    gate.open();
    assert_eq!(rival.await.unwrap().reason(), RetryReason::NoFreeSlot);
    assert_eq!(held(&world).await, ("0".into(), 1));
    assert_eq!(holder.release().await.unwrap(), Released::GivenBack);
    assert_eq!(held(&world).await, ("1".into(), 0));
}

/// Condition: `#leases.#id.#ends <= :ends`, so that the lease exists.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_a_take_over_is_told_and_brings_nothing_back() {
    let world = with_slots(1).await;
    let mut holder = take(&world.client(), SLOTS).await;
    world.pass_lease();
    let _next = take(&world.client(), SLOTS).await;
    assert!(matches!(holder.renew().await, Err(RenewError::LeaseGone { .. })));
    assert_eq!(held(&world).await, ("0".into(), 1));
}

#[tokio::test(start_paused = true)]
async fn a_take_over_whose_reply_was_lost_counts_once() {
    let world = with_slots(2).await;
    for _ in 0..2 {
        std::mem::forget(take(&world.client(), SLOTS).await);
    }
    world.pass_lease();
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    let next = take(&world.client(), SLOTS).await;
    assert_eq!(next.release().await.unwrap(), Released::GivenBack);
    assert_eq!(held(&world).await, ("2".into(), 0), "both dead holders' slots are back, and its own");
}

/// It cannot tell whether its own release or a sweep was there; what it gave back was its own in all
/// likelihood.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_was_lost_is_told_as_done() {
    let world = with_slots(2).await;
    let client = world.client();
    let (first, _second) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    assert_eq!(first.release().await.unwrap(), Released::GivenBack);
    assert_eq!(held(&world).await, ("1".into(), 1));
}

/// Condition: `attribute_not_exists(leases)`.
#[tokio::test(start_paused = true)]
async fn the_first_leases_of_a_row_by_two_processes_are_both_there() {
    let world = with_slots(3).await;
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let takers = [0, 1].map(|_| {
        let client = world.client();
        tokio::spawn(async move { take(&client, SLOTS).await })
    });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(Gate::open);
    let mut grants = Vec::new();
    for taker in takers {
        grants.push(taker.await.unwrap());
    }
    assert_eq!(held(&world).await, ("1".into(), 2));
    for grant in grants {
        assert_eq!(grant.release().await.unwrap(), Released::GivenBack);
    }
    assert_eq!(held(&world).await, ("3".into(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_too_large_for_inline_leases_is_told_at_acquire() {
    let world = World::with_slots(SLOTS, 201).await;
    let client = world.client_with(|settings| settings.leases(Leases::Inline));
    world.dynamo.meter().reset();
    let error = client.acquire(SLOTS).await.unwrap_err();
    assert!(matches!(&error, AcquireError::TooLargeForInline { leases: 201, most: 200, .. }), "{error}");
    for part in [SLOTS, "201", "200", "SLUICE_LEASES=concurrent", "capacity"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 0);
    let _by_rows = take(&world.client(), SLOTS).await;
    world.slots(SLOTS, 200).await;
    world.pass(Duration::from_secs(61));
    let _inline = take(&world.client_with(|settings| settings.leases(Leases::Inline)), SLOTS).await;
}

/// As while a fleet changes from one kind to the other.
#[tokio::test(start_paused = true)]
async fn holders_of_both_kinds_of_lease_share_the_slots_of_a_bucket() {
    let world = World::with_slots(SLOTS, 2).await;
    let clients = [world.client(), world.client_with(|settings| settings.leases(Leases::Inline))];
    for _ in 0..3 {
        let grants = [take(&clients[0], SLOTS).await, take(&clients[1], SLOTS).await];
        for client in &clients {
            assert_eq!(refusal(client, SLOTS).await.reason(), RetryReason::NoFreeSlot);
        }
        assert_eq!(held(&world).await, ("0".into(), 2));
        for grant in grants {
            assert_eq!(grant.release().await.unwrap(), Released::GivenBack);
        }
        assert_eq!(held(&world).await, ("2".into(), 0));
        world.pass(Duration::from_secs(1));
    }
}
