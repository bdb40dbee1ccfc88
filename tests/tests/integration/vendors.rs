//! What the vendor says is left is believed where it is less, once, and in the order of the calls.

use std::time::Duration;

use sluice_core::schema::{ADOPT_AT_LEAST, KEY, VENDOR_LIMIT};
use sluice_core::{Amount, Cost, Limit, LimitType, OnLowerLimit};
use sluice_ops::Applied;
use sluice_sdk::reactions::{Observed, ObservedLevel, ObservedLimit};
use sluice_sdk::{Client, Grant};
use sluice_testkit::Operation;

use crate::world::{World, dimension, number, requests, settle, take, text};

mod limits;

const RPM: &str = "acme#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

/// 100 requests that hardly refill.
async fn slow() -> World {
    World::with_rate(RPM, 100, 1_000_000_000).await.lowered_without_a_bound()
}

/// The vendor says that so much is left: of a window that it does not name, and of one as long as the slow
/// bucket's.
fn left(tokens: i32) -> [(&'static str, String); 3] {
    [
        ("x-ratelimit-remaining-requests", tokens.to_string()),
        ("ratelimit-policy", "\"slow\";q=100;w=1000000000".to_owned()),
        ("ratelimit", format!("\"slow\";r={tokens}")),
    ]
}

/// The vendor says that its limit is 60 a minute, of which one is used.
const SIXTY: [(&str, &str); 3] = [
    ("x-ratelimit-limit-requests", "60"),
    ("x-ratelimit-remaining-requests", "59"),
    ("x-ratelimit-reset-requests", "1s"),
];

async fn observed(client: &Client, remaining: i32, grant: &Grant) -> ObservedLevel {
    client.observe(RPM, &left(remaining), Some(grant)).await.unwrap().level
}

fn lowered(tokens: i32) -> ObservedLevel {
    ObservedLevel::Lowered(Amount::from_tokens(tokens))
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_lowered_to_what_the_vendor_says_and_later_calls_count_once() {
    let world = slow().await;
    let (client, other) = (world.client(), world.client());
    let first = take(&client, RPM).await;
    // In flight when the first is answered, and not in the vendor's count yet.
    let (second, third) = (take(&client, RPM).await, take(&other, RPM).await);
    assert_eq!(observed(&client, 49, &first).await, lowered(50));
    assert_eq!(world.level(RPM).await, "47");
    let _fourth = take(&other, RPM).await;
    assert_eq!(observed(&client, 48, &second).await, ObservedLevel::Agrees);
    assert_eq!(observed(&other, 47, &third).await, ObservedLevel::Agrees);
    assert_eq!(world.level(RPM).await, "46");
    assert_eq!(observed(&other, 40, &third).await, lowered(7), "further use by others than the fleet");
    assert_eq!(world.level(RPM).await, "39");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_never_raised() {
    let world = slow().await;
    let client = world.client();
    let mut grants = Vec::new();
    for _ in 0..60 {
        grants.push(take(&client, RPM).await);
    }
    world.dynamo.meter().reset();
    for left in [41, 90, 1_000_000] {
        assert_eq!(observed(&client, left, &grants[59]).await, ObservedLevel::Agrees);
    }
    assert_eq!(world.dynamo.meter().reset().requests, 0, "where they agree nothing is sent");
    assert_eq!(world.level(RPM).await, "40");
}

#[tokio::test(start_paused = true)]
async fn a_response_without_headers_returns_no_quota_and_costs_no_request() {
    let world = slow().await;
    let client = world.client();
    let grant = take(&client, RPM).await;
    world.dynamo.meter().reset();
    let none: [(&str, &str); 0] = [];
    for headers in [none.to_vec(), vec![("content-type", "text/event-stream"), ("x-request-id", "7")]] {
        let said = client.observe(RPM, &headers, Some(&grant)).await.unwrap();
        let Observed { level, limit, unreadable, .. } = said;
        assert_eq!((level, limit, unreadable), (ObservedLevel::NotSaid, ObservedLimit::NotSaid, 0));
    }
    let said = client.observe(RPM, &left(3), None).await.unwrap();
    assert_eq!(said.level, ObservedLevel::NoGrant, "it cannot be told which calls the vendor has counted");
    assert_eq!(world.dynamo.meter().reset().requests, 0);
    assert_eq!(world.level(RPM).await, "99");
}

#[tokio::test(start_paused = true)]
async fn an_older_reply_never_overwrites_a_newer_one() {
    for older in [20, 60] {
        let world = slow().await;
        let (client, other) = (world.client(), world.client());
        let first = take(&client, RPM).await;
        let second = take(&other, RPM).await;
        assert_eq!(observed(&other, 50, &second).await, lowered(48));
        assert_eq!(observed(&client, older, &first).await, ObservedLevel::Stale, "{older}");
        assert_eq!(world.level(RPM).await, "50");
    }
}

/// The row knows nothing of replies that agreed: each process does of its own.
#[tokio::test(start_paused = true)]
async fn an_older_reply_lowers_nothing_after_a_newer_one_agreed() {
    let world = slow().await;
    let client = world.client();
    let first = take(&client, RPM).await;
    let second = take(&client, RPM).await;
    assert_eq!(observed(&client, 98, &second).await, ObservedLevel::Agrees);
    assert_eq!(observed(&client, 20, &first).await, ObservedLevel::Stale);
    assert_eq!(world.level(RPM).await, "98");
    assert_eq!(observed(&client, 90, &second).await, lowered(8), "the same call, told again");
}

#[tokio::test(start_paused = true)]
async fn replies_in_order_lower_by_what_is_new() {
    let world = slow().await;
    let (client, other) = (world.client(), world.client());
    let first = take(&client, RPM).await;
    let second = take(&other, RPM).await;
    assert_eq!(observed(&client, 51, &first).await, lowered(48));
    assert_eq!(observed(&other, 30, &second).await, lowered(20), "from 50");
    assert_eq!(world.level(RPM).await, "30");
}

#[tokio::test(start_paused = true)]
async fn a_stale_header_on_a_cold_start_says_nothing_of_a_bucket_made_anew() {
    let world = World::with_rate(RPM, 100, 60).await;
    let old = take(&world.client(), RPM).await;
    world.delete(RPM).await;
    world.pass(Duration::from_secs(61));
    world.rate(RPM, 100, 60).await;
    let cold = world.client();
    let _ = take(&cold, RPM).await;
    assert_eq!(observed(&cold, 3, &old).await, ObservedLevel::Stale);
    assert_eq!(
        observed(&world.client(), 3, &old).await,
        ObservedLevel::Stale,
        "nor in a process that knows nothing"
    );
    let without = world.client().observe(RPM, &left(3), None).await.unwrap();
    assert_eq!(without.level, ObservedLevel::NoGrant);
    assert_eq!(world.level(RPM).await, "99");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_full_since_comes_down_to_what_the_vendor_can_have_as_long_as_the_reply_is_young() {
    let world = World::with_rate(RPM, 100, 100).await;
    let client = world.client();
    let old = take(&client, RPM).await;
    world.pass(Duration::from_secs(30));
    let _ = take(&world.client(), RPM).await;
    assert_eq!(observed(&client, 3, &old).await, lowered(66), "3 and what flowed in 30 s");
    assert_eq!(world.level(RPM).await, "33");
    world.pass(Duration::from_secs(100));
    let _ = take(&world.client(), RPM).await;
    assert_eq!(observed(&client, 3, &old).await, ObservedLevel::Stale);
    assert_eq!(world.level(RPM).await, "99");
}

#[tokio::test(start_paused = true)]
async fn a_windows_turn_forgets_nothing_in_flight() {
    let world = slow().await;
    let client = world.client();
    let mut grants = Vec::new();
    for _ in 0..10 {
        grants.push(take(&client, RPM).await);
    }
    assert_eq!(observed(&client, 59, &grants[0]).await, lowered(40));
    assert_eq!(world.level(RPM).await, "50");
    // The vendor's window turns: it counts nothing of what is in flight.
    assert_eq!(observed(&client, 100, &grants[5]).await, ObservedLevel::Agrees);
    assert_eq!(world.level(RPM).await, "50");
    // Seven in flight arrive in the new window.
    assert_eq!(observed(&client, 43, &grants[9]).await, lowered(7));
    assert_eq!(world.level(RPM).await, "43");
}

/// Reckoned from the answer, the refill of a whole call would be taken away each time.
#[tokio::test(start_paused = true)]
async fn a_long_call_lowers_nothing_by_taking_long() {
    let world = World::with_rate(RPM, 100, 100).await;
    let client = world.client();
    for _ in 0..90 {
        let _ = take(&client, RPM).await;
    }
    let long = take(&client, RPM).await;
    world.pass(Duration::from_secs(30));
    assert_eq!(observed(&client, 9, &long).await, ObservedLevel::Agrees);
    assert_eq!(world.level(RPM).await, "39");
}

#[tokio::test(start_paused = true)]
async fn a_header_that_cannot_be_read_changes_nothing_and_is_counted() {
    let world = slow().await;
    let client = world.client();
    let grant = take(&client, RPM).await;
    world.dynamo.meter().reset();
    let headers = [
        ("x-ratelimit-limit-requests", "sixty"),
        ("x-ratelimit-remaining-requests", "-5"),
        ("x-ratelimit-reset-requests", "soon"),
    ];
    let said = client.observe(RPM, &headers, Some(&grant)).await.unwrap();
    assert_eq!(
        (said.level, said.limit, said.unreadable),
        (ObservedLevel::NotSaid, ObservedLimit::NotSaid, 3)
    );
    assert_eq!(world.dynamo.meter().reset().requests, 0);
    assert_eq!(world.level(RPM).await, "99");
}

#[tokio::test(start_paused = true)]
async fn many_replies_at_once_make_one_write() {
    for newest_first in [false, true] {
        let world = slow().await;
        let client = world.client();
        let mut grants = Vec::new();
        for n in 1..=20 {
            // Each says fifty less than the bucket counts.
            grants.push((take(&client, RPM).await, 50 - n));
        }
        if newest_first {
            grants.reverse();
        }
        let world = world.distant();
        world.dynamo.meter().reset();
        let observing: Vec<_> = grants
            .into_iter()
            .map(|(grant, remaining)| {
                let client = client.clone();
                tokio::spawn(async move { observed(&client, remaining, &grant).await })
            })
            .collect();
        let mut writes = 0;
        for observing in observing {
            match observing.await.unwrap() {
                ObservedLevel::Lowered(by) => {
                    assert_eq!(by.to_string().split('.').next(), Some("50"));
                    writes += 1;
                }
                ObservedLevel::Agrees | ObservedLevel::Stale => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((writes, world.dynamo.meter().of(Operation::UpdateItem).requests), (1, 1));
        assert_eq!(world.level(RPM).await.split('.').next(), Some("30"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_observes_its_own_reply() {
    let world = slow().await;
    let client = world.client();
    let level = client
        .slot(RPM)
        .run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.observe(RPM, &left(9)).await?.level));
    assert_eq!(level.await.unwrap(), lowered(90));
    settle().await;
    assert_eq!(world.level(RPM).await, "9");
}
