//! A bucket without shares is written as it was before there were shares: the same bytes, and the same units.
//!
//! `unshared/requests.txt` and `unshared/slots.txt` have each request as it was sent when buckets had no
//! shares: update, condition, names and values. One condition has come since, with the order of those that
//! wait (ADR 10): a take with a lease row requires that nobody waits (`#waited_until`). An operator's change
//! of a limit of slots is not here: since then it asks that the bucket has no shares, so that it cannot undo
//! them.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sluice_core::Amount;
use sluice_testkit::Operation;

use crate::kind::Kind;
use crate::world::{World, refusal, take};

const WRITTEN: &str = include_str!("unshared/requests.txt");

const SLOTS_WRITTEN: &str = include_str!("unshared/slots.txt");

/// One request as text: its parts in a fixed order, since a map has none.
fn text(body: &[u8]) -> String {
    let request: Value = serde_json::from_slice(body).unwrap();
    let items = request["TransactItems"].as_array();
    let writes = items.into_iter().flatten().flat_map(|item| item.as_object().unwrap());
    let writes: String = writes.map(|(kind, write)| format!("{kind}\n{}", text_of(write))).collect();
    writes + &text_of(&request)
}

fn text_of(request: &Value) -> String {
    let mut text = String::new();
    for part in ["Key", "Item", "UpdateExpression", "ConditionExpression", "ReturnValues"] {
        if !request[part].is_null() {
            writeln!(text, "{part} {}", request[part]).unwrap();
        }
    }
    for part in ["ExpressionAttributeNames", "ExpressionAttributeValues"] {
        let mut entries: Vec<_> = request[part].as_object().into_iter().flatten().collect();
        entries.sort_by_key(|(name, _)| *name);
        entries.iter().for_each(|(name, value)| writeln!(text, "  {name} {value}").unwrap());
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_bucket_without_shares_is_written_in_the_same_bytes_and_units_as_ever() {
    let world = World::embedded().await.lowered_without_a_bound();
    world.rate("openai#rpm", 10, 60).await;
    let client = world.client();
    let sent = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&sent);
    world.dynamo.faults().watch(move |answered| {
        if answered.call.operation == Operation::UpdateItem && answered.status == 200 {
            seen.lock().unwrap().push_str(&text(answered.call.body));
        }
    });
    let meter = world.dynamo.meter();
    let mut units = String::new();
    let mut done = |what: &str| {
        let usage = meter.reset();
        writeln!(units, "{what}: {} requests, {} write units", usage.requests, usage.write_units).unwrap();
        sent.lock().unwrap().push_str(&format!("= {what}\n"));
    };
    meter.reset();
    let mut first = take(&client, "openai#rpm").await;
    done("take from a full bucket, first in its process");
    let second = take(&client, "openai#rpm").await;
    done("take");
    second.release().await.unwrap();
    done("release");
    first.settle("openai#rpm", Amount::from_micros(500_000)).await.unwrap();
    done("settle of less");
    first.settle("openai#rpm", Amount::from_tokens(2)).await.unwrap();
    done("settle of more");
    let third = take(&client, "openai#rpm").await;
    let headers = [("x-ratelimit-remaining-requests".to_owned(), "3".to_owned())].to_vec();
    done("take");
    client.observe("openai#rpm", &headers, Some(&third)).await.unwrap();
    done("observe");
    client.penalize("openai#rpm", 0.5).await.unwrap();
    done("penalize");
    client.refill("openai#rpm", Some(Amount::from_tokens(1))).await.unwrap();
    done("refill");
    let _ = take(&client, "openai#rpm").await;
    done("take");
    let _ = refusal(&client, "openai#rpm").await;
    done("refusal");
    client.cool_down("openai#rpm", Duration::from_secs(1)).await.unwrap();
    done("cool-down");
    world.pass(Duration::from_secs(120));
    let _ = take(&client, "openai#rpm").await;
    done("take from a full bucket");
    let text = format!("{}\n{units}", sent.lock().unwrap());
    assert_eq!(text, WRITTEN, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_slot_without_shares_is_taken_and_given_back_in_the_bytes_and_units_of_before() {
    let mut all = String::new();
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::embedded().await.with(kind);
        world.slots("elevenlabs#concurrent", 5).await;
        let client =
            world.client_with(|settings| settings.caller("tester").lease_ids(|| "of-the-lease".to_owned()));
        let sent = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&sent);
        world.dynamo.faults().watch(move |answered| {
            if answered.call.operation == kind.write() {
                assert_eq!(answered.status, 200);
                seen.lock().unwrap().push_str(&text(answered.call.body));
            }
        });
        let meter = world.dynamo.meter();
        for take_of in ["first in its process", "second"] {
            meter.reset();
            let grant = take(&client, "elevenlabs#concurrent").await;
            let taken = meter.reset();
            grant.release().await.unwrap();
            let released = meter.reset();
            writeln!(
                all,
                "= {kind:?}, {take_of}: take {} requests, {} write units; release {}, {}\n{}",
                taken.requests,
                taken.write_units,
                released.requests,
                released.write_units,
                std::mem::take(&mut *sent.lock().unwrap())
            )
            .unwrap();
        }
    }
    assert_eq!(all, SLOTS_WRITTEN, "{all}");
}
