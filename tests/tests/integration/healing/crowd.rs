//! How many processes want slots of a bucket, as they count themselves in its load row.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use sluice_core::NOTE_EVERY;
use sluice_core::schema::{CROWD, CROWD_BEFORE, CROWD_PERIOD, Field, Row};

use super::*;

struct Item(HashMap<String, AttributeValue>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        Some(match self.0.get(name)? {
            AttributeValue::N(number) => Field::Number(number),
            AttributeValue::S(text) => Field::Text(text),
            _ => Field::Other,
        })
    }
}

/// As every process reads it in the reply to its note.
async fn crowd(world: &World) -> u32 {
    let row = world.row(&Load::key(&dimension(SLOTS))).await.unwrap();
    Load::read(&dimension(SLOTS), &Item(row)).unwrap().crowd(world.dynamo.clock().now())
}

/// With one slot, which somebody holds.
async fn full() -> World {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    std::mem::forget(
        take(&world.client_with(|settings| settings.lease_ttl(Duration::from_secs(3_600))), SLOTS).await,
    );
    world
}

#[tokio::test(start_paused = true)]
async fn processes_that_wait_and_those_that_are_refused_count_themselves() {
    let world = full().await;
    let waiting: Vec<Client> = (0..3).map(|_| world.client()).collect();
    let mut slots = Vec::new();
    for (at, client) in waiting.iter().enumerate() {
        let slot = client.slot(SLOTS).timeout(Duration::from_secs(600));
        slots.push(begin(slot.run(async |_| Ok::<_, LimitError>(()))).await);
        settle().await;
        assert_eq!(crowd(&world).await, u32::try_from(at + 1).unwrap(), "at once");
    }
    let refused = world.client();
    refusal(&refused, SLOTS).await;
    settle().await;
    assert_eq!(crowd(&world).await, 4);
}

#[tokio::test(start_paused = true)]
async fn processes_that_begin_a_period_at_once_all_count() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = full().await.with(kind);
        let clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
        // Each write waits for all of the others to be under way.
        world.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(5))));
        let all = clients.iter().map(|client| async move {
            refusal(client, SLOTS).await;
            sleep(Duration::from_secs(1)).await;
        });
        join_all(all).await;
        world.dynamo.faults().clear();
        assert_eq!(crowd(&world).await, 4, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_left_is_out_of_the_crowd_after_two_periods() {
    let world = full().await;
    let (stays, leaves) = (world.client(), world.client());
    refusal(&leaves, SLOTS).await;
    refusal(&stays, SLOTS).await;
    settle().await;
    assert_eq!(crowd(&world).await, 2);
    drop(leaves);
    for _ in 0..40 {
        sleep(NOTE_EVERY / 16).await;
        refusal(&stays, SLOTS).await;
    }
    assert_eq!(crowd(&world).await, 1);
    drop(stays);
    sleep(NOTE_EVERY * 4).await;
    assert_eq!(crowd(&world).await, 0, "nobody asks any more");
}

/// Nothing can be added to what is no number, and a period that is far ahead would never end.
#[tokio::test(start_paused = true)]
async fn a_spoiled_crowd_is_begun_anew() {
    for (name, value) in [
        (CROWD_PERIOD, text("now")),
        (CROWD_PERIOD, number("8.5")),
        (CROWD_PERIOD, number("999999999")),
        (CROWD, text("many")),
        (CROWD_BEFORE, text("few")),
        (REFUSED, text("all")),
    ] {
        let world = full().await;
        let first = world.client();
        refusal(&first, SLOTS).await;
        settle().await;
        let key = Load::key(&dimension(SLOTS));
        let mut row = world.row(&key).await.unwrap();
        row.insert(name.into(), value.clone());
        world.put(row).await;
        let second = world.client();
        refusal(&second, SLOTS).await;
        settle().await;
        let noted = crowd(&world).await;
        assert!(noted == 1 || noted == 2, "{name} was {value:?}: {noted}");
        assert!(world.row(&key).await.unwrap()[REFUSED].as_n().is_ok(), "{name} was {value:?}");
    }
}

/// The note of a process counts it, and the refusals of its callers, whatever becomes of the first reply.
#[tokio::test(start_paused = true)]
async fn a_note_whose_reply_was_lost_is_sent_again() {
    let world = full().await;
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    let client = world.client();
    refusal(&client, SLOTS).await;
    sleep(Duration::from_secs(1)).await;
    assert!((1..=2).contains(&crowd(&world).await));
}
