//! Replies that are lost, requests that arrive twice, conflicts that say nothing: a slot changes once, or not
//! at all.

use sluice_ops::{SweepOptions, SweepReport};
use sluice_sdk::Released;
use sluice_testkit::Fault;

use super::KIND;
use crate::kind::Kind;
use crate::world::{World, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

/// By the token that stays the same over retries; inline, by the lease that is gone.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_was_lost_is_sent_again_and_counts_once() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(KIND.write(), Fault::LoseReply);
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

/// By the token, and beyond its ten minutes by `attribute_exists` on the delete; inline, by that on the
/// lease.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_delivered_twice_counts_once() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(KIND.write(), Fault::Repeat);
    held.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

/// By the token, and by `attribute_not_exists` on the lease; inline, by the latter.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_was_lost_takes_one_slot() {
    let world = KIND.with_slots(SLOTS, 3).await;
    world.dynamo.faults().next(KIND.write(), Fault::LoseReply);
    let held = take(&world.client(), SLOTS).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    held.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
}

/// A conflict says nothing of the lease: reading it as "already at capacity" would delete the trace of a held
/// slot.
#[tokio::test(start_paused = true)]
async fn a_lease_survives_conflicts_and_throttling_of_its_reclaim() {
    let faults = match KIND {
        Kind::Rows => vec![
            Fault::cancelled(&["TransactionConflict", "None"]),
            Fault::cancelled(&["None", "TransactionConflict"]),
            Fault::cancelled(&["None", "ThrottlingError"]),
            Fault::cancelled(&["ProvisionedThroughputExceeded", "None"]),
        ],
        Kind::Inline => vec![Fault::conflict(), Fault::throttled()],
    };
    for fault in faults {
        let world = KIND.with_slots(SLOTS, 2).await;
        std::mem::forget(take(&world.client(), SLOTS).await);
        world.pass_lease();
        world.dynamo.faults().always(KIND.write(), fault.clone());
        let report = sweep(&world).await;
        assert_eq!((report.restored, report.already_capped, report.left), (0, 0, 1), "{fault:?}");
        // A plain update is sent again where all requests are, below the sweep.
        assert_eq!(report.conflicts_retried, if KIND == Kind::Rows { 5 } else { 0 });
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
        world.dynamo.faults().clear();
        world.dynamo.faults().next(KIND.write(), fault.clone());
        assert_eq!(sweep(&world).await.restored, 1, "the next sweep waits one conflict out");
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_conflicts_out() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let held = take(&world.client(), SLOTS).await;
    for _ in 0..5 {
        world.dynamo.faults().next(KIND.write(), KIND.conflict());
    }
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.free(SLOTS).await, "2");
}
