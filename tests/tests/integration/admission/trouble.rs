//! What admission costs, what trouble of the table does to it, and how it gets on again where everyone is
//! shed.

use std::time::Duration;

use sluice_sdk::AcquireError;
use sluice_sdk::admission::{Admission, ShedReason};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use super::{SLO, SLOTS, hold, measured, reason, secs};
use crate::world::{LEASE_TTL, World};

#[tokio::test(start_paused = true)]
async fn questions_of_a_second_share_one_read_and_the_background_ends_by_itself() {
    let world = World::embedded().await.distant();
    world.slots(SLOTS, 4).await;
    hold(&world, 1).await;
    let client = world.client();
    let requests = || world.dynamo.meter().total().requests;
    world.dynamo.meter().reset();
    let asked: Vec<_> = (0..50)
        .map(|_| {
            tokio::spawn({
                let client = client.clone();
                async move { client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted() }
            })
        })
        .collect();
    for asked in asked {
        assert!(asked.await.unwrap());
    }
    assert_eq!((requests(), world.dynamo.meter().of(Operation::BatchGetItem).requests), (1, 1));
    sleep(secs(310)).await;
    assert!((20..=22).contains(&requests()), "{}", requests());
    world.dynamo.meter().reset();
    sleep(secs(600)).await;
    assert_eq!(requests(), 0, "nobody asks any more");
    // It begins again, and ends with the client.
    assert!(client.admit(SLOTS, 1, None).await.unwrap().is_admitted());
    sleep(secs(40)).await;
    assert!(requests() >= 3);
    drop(client);
    world.dynamo.meter().reset();
    sleep(secs(60)).await;
    assert_eq!(requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_table_sheds_nobody() {
    let faults = [
        Fault::LoseRequest,
        Fault::throttled(),
        Fault::service("AccessDeniedException", 400, serde_json::json!({ "message": "no" })),
    ];
    for fault in faults {
        let world = World::with_slots(SLOTS, 1).await;
        hold(&world, 1).await;
        measured(&world, "0.01", 1, 1, None).await;
        let client = world.client();
        assert_eq!(reason(&client).await, Some(ShedReason::OverSlo));
        sleep(secs(2)).await;
        for operation in [Operation::BatchGetItem, Operation::GetItem] {
            world.dynamo.faults().always(operation, fault.clone());
        }
        let Admission::Admitted(admitted) = client.admit(SLOTS, 1, SLO).await.unwrap() else {
            panic!("{fault:?}")
        };
        assert_eq!(admitted.wait(), None);
        world.dynamo.faults().clear();
        // It is not asked again at once.
        sleep(secs(2)).await;
        assert_eq!(reason(&client).await, Some(ShedReason::OverSlo));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_makes_no_sense_is_an_error() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    assert!(matches!(client.admit("nonsense", 1, None).await, Err(AcquireError::Request(_))));
    assert!(matches!(client.admit(SLOTS, 0, None).await, Err(AcquireError::Request(_))));
    assert!(matches!(client.admit(SLOTS, 1, None).backlog(-1).await, Err(AcquireError::Request(_))));
    assert!(matches!(client.admit(SLOTS, 3, None).await, Err(AcquireError::NeverSatisfiable { .. })));
    assert!(matches!(
        client.admit("some#concurrent", 1, None).await,
        Err(AcquireError::UnknownDimension { .. })
    ));
    assert!(client.admit(SLOTS, 1, None).backlog(0).await.unwrap().is_admitted());
}

/// Reads that hang, and nobody waits for more than one of them.
#[tokio::test(start_paused = true)]
async fn a_table_that_hangs_holds_up_a_caller_for_an_attempt_and_the_next_not_at_all() {
    let world = World::with_slots(SLOTS, 1).await;
    hold(&world, 1).await;
    let client = world.client();
    assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
    sleep(secs(2)).await;
    for operation in [Operation::BatchGetItem, Operation::GetItem] {
        world.dynamo.faults().always(operation, Fault::Delay(secs(3_600)));
    }
    let began = Instant::now();
    assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
    assert!(began.elapsed() <= Duration::from_millis(1_001), "{:?}", began.elapsed());
    let again = Instant::now();
    assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
    assert_eq!(again.elapsed(), Duration::ZERO);
}

/// Every slot is held by a process that is gone. Who is shed never asks for a slot, so that nobody is
/// refused; no sweep runs.
#[tokio::test(start_paused = true)]
async fn where_everyone_is_shed_a_crashed_holders_slots_come_back_all_the_same() {
    let world = World::with_slots(SLOTS, 3).await;
    hold(&world, 3).await;
    measured(&world, "0.01", 3, 3, None).await;
    let (client, began) = (world.client(), Instant::now());
    loop {
        match client.admit(SLOTS, 1, SLO).await.unwrap() {
            Admission::Admitted(_) => break,
            Admission::Shed(shed) => sleep(shed.retry_after().min(secs(5))).await,
        }
        assert!(began.elapsed() <= LEASE_TTL + secs(15 + 5), "{:?}", world.free(SLOTS).await);
    }
    assert_eq!(world.free(SLOTS).await, "3");
}
