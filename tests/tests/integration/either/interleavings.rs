//! Two parties change the same slot. Whatever the order, it ends as if one had. Each test fails when the
//! condition that it names is taken out of the expression.

use std::time::Duration;

use sluice_core::{LeaseId, renew, renew_inline, schema};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_sdk::{Grant, Released, RenewError};

use super::KIND;
use crate::kind::Kind;
use crate::world::{World, number, take, text};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

/// Condition: `#ttl = :read_ends` on the delete of a sweep.
#[tokio::test(start_paused = true)]
async fn a_release_before_a_reclaim_that_had_scanned_restores_once() {
    let world = KIND.with_slots(SLOTS, 3).await;
    let client = world.client();
    let ended = take(&client, SLOTS).await;
    world.pass_lease();
    let (_second, _third) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let sweeper = world.client();
    let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await });
    gate.reached().await;
    assert_eq!(ended.release().await.unwrap(), Released::GivenBack);
    gate.open();
    let report = sweeping.await.unwrap().unwrap();
    assert_eq!((report.expired, report.restored, report.lost_races), (1, 0, 1));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 2));
}

/// Condition: `attribute_exists` on the delete of a holder.
#[tokio::test(start_paused = true)]
async fn a_late_release_restores_nothing() {
    let world = KIND.with_slots(SLOTS, 3).await;
    let client = world.client();
    let ended = take(&client, SLOTS).await;
    world.pass_lease();
    let (_second, _third) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    assert_eq!(sweep(&world).await.restored, 1);
    assert_eq!(ended.release().await.unwrap(), Released::LeaseGone);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 2));
}

/// Condition: `#ttl = :read_ends` on the delete of a sweep.
#[tokio::test(start_paused = true)]
async fn two_sweeps_over_one_lease_restore_once() {
    let world = KIND.with_slots(SLOTS, 3).await;
    let client = world.client();
    std::mem::forget(take(&client, SLOTS).await);
    world.pass_lease();
    let (_second, _third) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(KIND.write()));
    let sweeps = [0, 1].map(|_| {
        let sweeper = world.client();
        tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() })
    });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(sluice_testkit::Gate::open);
    let mut restored = 0;
    for sweep in sweeps {
        restored += sweep.await.unwrap().restored;
    }
    assert_eq!((restored, world.free(SLOTS).await.as_str(), world.leases().await), (1, "1", 2));
}

/// Condition: `#ttl = :read_ends` on the delete of a sweep.
#[tokio::test(start_paused = true)]
async fn a_renewal_between_scan_and_reclaim_keeps_the_slot() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let client = world.client();
    let mut held = take(&client, SLOTS).await;
    world.pass_lease();
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let sweeper = world.client();
    let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    held.renew().await.unwrap();
    gate.open();
    assert_eq!(sweeping.await.unwrap().lost_races, 1);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
}

/// Condition: `#ttl <= :ends` on the renewal.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_the_reclaim_is_told_and_brings_nothing_back() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let mut held = take(&world.client(), SLOTS).await;
    world.pass_lease();
    sweep(&world).await;
    for _ in 0..2 {
        assert!(matches!(held.renew().await, Err(RenewError::LeaseGone { .. })), "each time");
    }
    assert_eq!(world.leases().await, 0);
    assert_eq!(held.release().await.unwrap(), Released::LeaseGone);
    assert_eq!(world.free(SLOTS).await, "2");
}

/// Condition: `#ttl <= :ends` on the renewal.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_late_never_shortens_the_lease() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let mut held = take(&world.client(), SLOTS).await;
    let late = renewal_by_hand(&world, &held).await;
    world.pass(Duration::from_secs(30));
    held.renew().await.unwrap();
    assert!(late.send().await.is_err(), "the condition refuses the older end");
    let row = &world.client().ops().leases().await.unwrap()[0];
    assert_eq!(row.lease.as_ref().unwrap().ends(), held.lease_ends().unwrap());
}

/// The renewal of `held` as it would be sent now, by hand.
async fn renewal_by_hand(
    world: &World,
    held: &Grant,
) -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder {
    let key = world.client().ops().leases().await.unwrap()[0].key.clone();
    let ends = held.lease_ends().unwrap();
    let update = match KIND {
        Kind::Rows => renew(key, ends),
        Kind::Inline => {
            let id = key.rsplit_once('.').unwrap().1.to_owned();
            renew_inline(SLOTS.into(), &LeaseId::new(id).unwrap(), ends)
        }
    };
    let mut request = world.dynamodb().update_item().table_name(world.table());
    request = request.key(schema::KEY, text(&update.key));
    request = request.update_expression(update.statement.update.as_ref());
    request = request.condition_expression(update.statement.condition.as_ref());
    for (placeholder, name) in update.statement.names.iter() {
        request = request.expression_attribute_names(placeholder, name);
    }
    for (name, value) in update.values {
        let sluice_core::Operand::Number(value) = value else { panic!() };
        request = request.expression_attribute_values(name, number(&value));
    }
    request
}

/// Condition: `#capacity = :read_capacity` on giving back.
#[tokio::test(start_paused = true)]
async fn a_resize_between_acquire_and_release_keeps_every_slot() {
    for capacity in [1, 5] {
        let world = KIND.with_slots(SLOTS, 3).await;
        let client = world.client();
        let held = [take(&client, SLOTS).await, take(&client, SLOTS).await, take(&client, SLOTS).await];
        world.slots(SLOTS, capacity).await;
        assert_eq!(world.free(SLOTS).await, (capacity - 3).to_string());
        for held in held {
            assert_eq!(held.release().await.unwrap(), Released::GivenBack);
        }
        assert_eq!((world.free(SLOTS).await, world.leases().await), (capacity.to_string(), 0));
    }
}

/// Condition: `#capacity = :read_capacity` on giving back. Judged by the capacity of before the resize there
/// would be room.
#[tokio::test(start_paused = true)]
async fn a_release_after_a_resize_is_judged_by_the_new_capacity() {
    let world = KIND.with_slots(SLOTS, 3).await;
    let held = take(&world.client(), SLOTS).await;
    world.slots(SLOTS, 1).await;
    world.add_tokens(SLOTS, "1").await;
    assert_eq!(held.release().await.unwrap(), Released::AlreadyCapped);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

/// Condition: `T <= C - k` on giving back.
#[tokio::test(start_paused = true)]
async fn a_slot_that_another_client_restored_is_not_restored_again() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let held = take(&world.client(), SLOTS).await;
    world.add_tokens(SLOTS, "1").await;
    assert_eq!(held.release().await.unwrap(), Released::AlreadyCapped);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

/// Condition: `T >= k` on the acquire. Two processes see the same last slot.
#[tokio::test(start_paused = true)]
async fn two_processes_that_see_one_free_slot_get_it_once() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let (first, second) = (world.client(), world.client());
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let late = tokio::spawn(async move { first.acquire(SLOTS).await.unwrap().granted() });
    gate.reached().await;
    let _held = take(&second, SLOTS).await;
    gate.open();
    assert!(late.await.unwrap().is_none());
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 1));
}
