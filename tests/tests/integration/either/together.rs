//! A slot together with rates: all of them or none.

use std::time::Duration;

use sluice_sdk::{Outcome, RetryReason};
use sluice_testkit::Fault;
use tokio::time::Instant;

use super::KIND;
use crate::kind::Kind;
use crate::world::{World, settle, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "openai#concurrent";

#[tokio::test(start_paused = true)]
async fn a_slot_over_rates_and_slots_uses_every_token_when_it_is_taken() {
    let world = KIND.with_rate(RPM, 1, 2).await;
    world.rate(TPM, 3, 3).await;
    world.slots(SLOTS, 4).await;
    let client = world.client();
    let began = Instant::now();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .slot([RPM, TPM, SLOTS])
                    .run(async |_| Ok::<_, sluice_sdk::LimitError>(began.elapsed()))
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut starts = Vec::new();
    for call in calls {
        starts.push(call.await.unwrap().as_secs());
    }
    starts.sort_unstable();
    assert_eq!(starts, [0, 2, 4, 6]);
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("4", 0));
    assert_eq!(world.level(TPM).await, "2", "the tokens of each call were taken at its start");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_cannot_book_its_rate_gives_its_slot_back() {
    let world = KIND.with_rate(RPM, 1, 3_600).await;
    world.slots(SLOTS, 1).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let refused = client.slot([RPM, SLOTS]).run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await;
    assert!(refused.is_err());
    settle().await;
    assert_eq!(
        (world.free(SLOTS).await.as_str(), world.leases().await, world.level(RPM).await.as_str()),
        ("1", 0, "0")
    );
}

/// A slot and 10 tokens.
async fn world() -> World {
    let world = KIND.with_rate(RPM, 10, 100_000_000).await;
    world.slots(SLOTS, 1).await;
    world
}

async fn levels(world: &World) -> (String, String, usize) {
    settle().await;
    (world.level(RPM).await, world.free(SLOTS).await, world.leases().await)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_slots_leaves_the_tokens_and_the_other_way_round() {
    let world = world().await;
    let held = take(&world.client(), SLOTS).await;
    for (dimension, reason) in [(SLOTS, RetryReason::NoFreeSlot), (RPM, RetryReason::Exhausted)] {
        let before = levels(&world).await;
        let Outcome::RetryIn(retry) = world.client().acquire([RPM, SLOTS]).await.unwrap() else {
            panic!("{dimension}")
        };
        assert_eq!((retry.dimension().as_str(), retry.reason()), (dimension, reason));
        assert_eq!(levels(&world).await, before);
        if dimension == SLOTS {
            world.add_tokens(SLOTS, "1").await;
            world.add_tokens(RPM, "-10").await;
        }
    }
    drop(held);
}

/// Whichever request of the attempt is the one that is held up.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_both_are_asked_for_leaves_nothing_taken() {
    for held_up in [0, 1] {
        let world = world().await;
        let client = world.client();
        client.acquire([RPM, SLOTS]).await.unwrap().granted().unwrap().release().await.unwrap();
        let before = levels(&world).await;
        let faults = world.dynamo.faults();
        if held_up == 1 && KIND == Kind::Inline {
            faults.next(KIND.write(), Fault::Delay(Duration::ZERO));
        }
        let gate = faults.hold_next(KIND.write());
        let asking = tokio::spawn(async move { client.acquire([RPM, SLOTS]).await.map(drop) });
        gate.reached().await;
        settle().await;
        asking.abort();
        settle().await;
        gate.open();
        assert_eq!(levels(&world).await, before, "request {held_up}");
    }
}

/// Two processes want both of two slots, in a state where each could hold one and wait for the other.
#[tokio::test(start_paused = true)]
async fn nobody_holds_a_slot_while_he_waits_for_another() {
    let world = KIND.with_slots("a#concurrent", 1).await;
    world.slots("b#concurrent", 1).await;
    let (one, two) = (world.client(), world.client());
    let (a, b) = (take(&one, "a#concurrent").await, take(&two, "b#concurrent").await);
    let both = |client: &sluice_sdk::Client| {
        let slot = client.slot(["a#concurrent", "b#concurrent"]).timeout(Duration::from_secs(60));
        tokio::spawn(async move { slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await.unwrap() })
    };
    let waiting = [both(&one), both(&two)];
    settle().await;
    a.release().await.unwrap();
    b.release().await.unwrap();
    let began = Instant::now();
    for call in waiting {
        call.await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
