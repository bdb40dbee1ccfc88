//! Refusals that come together are one trouble; and what a refusal says in addition to how long to wait.

use std::time::Duration;

use sluice_sdk::{Client, Decision, Reply, Request};

use crate::refusals::{NONE, RPM, SLOTS, TPM, blocked_until, inline, refused, slow};
use crate::world::{World, take};

const BUSY: Reply<'_, [(&str, &str); 0]> = Reply { status: 529, headers: &NONE, body: None };
const TOO_MANY_AT_ONCE: &str = r#"{"detail": {"status": "too_many_concurrent_requests"}}"#;
const EXHAUSTED: &str = r#"{"error": {"code": "insufficient_quota"}}"#;

fn requeue(secs: u32) -> Decision {
    Decision::Requeue { wait: Duration::from_secs(secs.into()), delay_seconds: secs + 1 }
}

async fn busy(client: &Client) -> Decision {
    client.on_rate_limited(RPM, BUSY).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_refusals_lowers_once_and_waits_for_one_pause() {
    let world = slow().await;
    let client = world.client();
    for _ in 0..10 {
        assert_eq!(refused(&client, RPM, &NONE, None).await, inline(1));
    }
    world.pass(Duration::from_millis(400));
    let late = refused(&client, RPM, &NONE, None).await;
    assert_eq!(
        late,
        Decision::RetryInline { wait: Duration::from_millis(600) },
        "to the end of the same pause"
    );
    assert_eq!(world.whole_level(RPM).await, "80");
    world.pass(Duration::from_millis(600));
    for _ in 0..10 {
        assert_eq!(refused(&client, RPM, &NONE, None).await, inline(2), "the pause did not help");
    }
    assert_eq!(world.whole_level(RPM).await, "40");
}

#[tokio::test(start_paused = true)]
async fn a_burst_from_a_busy_vendor_is_one_pause_of_the_fleet() {
    let world = slow().await;
    let client = world.client();
    for _ in 0..8 {
        assert_eq!(busy(&client).await, inline(1));
    }
    let until = world.dynamo.clock().now().after(Duration::from_secs(1));
    assert_eq!(blocked_until(&world, RPM).await, Some(until));
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_asks_for_a_long_wait_lowers_once() {
    let world = slow().await;
    let client = world.client();
    for _ in 0..10 {
        assert_eq!(refused(&client, RPM, &[("retry-after", "30")], None).await, requeue(30));
    }
    assert_eq!(world.whole_level(RPM).await, "30");
    world.pass(Duration::from_secs(30));
    refused(&client, RPM, &[("retry-after", "30")], None).await;
    assert_eq!(world.whole_level(RPM).await, "9");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_refusal_is_counted_apart() {
    let world = World::with_slots(SLOTS, 5).await;
    let client = world.client();
    for wait in [1, 2] {
        assert_eq!(refused(&client, SLOTS, &NONE, Some(TOO_MANY_AT_ONCE)).await, inline(wait));
        assert_eq!(refused(&client, SLOTS, &NONE, None).await, inline(wait));
        world.pass(Duration::from_secs(wait));
    }
    assert_eq!(client.on_rate_limited(SLOTS, BUSY).await.unwrap(), inline(1));
    refused(&client, SLOTS, &NONE, Some(EXHAUSTED)).await;
    assert_eq!(
        client.on_rate_limited(SLOTS, BUSY).await.unwrap(),
        requeue(60),
        "the first pause of its own kind"
    );
}

#[tokio::test(start_paused = true)]
async fn the_call_waits_until_its_own_cost_is_there() {
    let world = World::new().await;
    world.tokens(TPM, 1_000, 1_000).await;
    let client = world.client();
    let _ = client.acquire(Request::from(TPM).cost(TPM, 900)).await.unwrap();
    let silent = Reply { status: 429, headers: &NONE, body: None };
    let call = Request::from(TPM).cost(TPM, 500);
    // A hundred are left, of which 80 are kept; one comes a second.
    assert_eq!(client.on_rate_limited(call, silent).await.unwrap(), requeue(420));
}

#[tokio::test(start_paused = true)]
async fn the_call_waits_for_the_end_of_a_longer_cool_down() {
    for headers in [vec![], vec![("retry-after", "1")]] {
        for (status, body) in [(429, None), (529, None), (429, Some(TOO_MANY_AT_ONCE))] {
            let world = slow().await;
            let client = world.client();
            client.cool_down(RPM, Duration::from_secs(30)).await.unwrap();
            let reply = Reply { status, headers: &headers, body: body.map(str::as_bytes) };
            let decision = client.on_rate_limited(RPM, reply).await.unwrap();
            assert_eq!(decision, requeue(30), "{status} {headers:?} {body:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_nothing_is_no_wait() {
    for value in ["0", "0.0", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let world = slow().await;
        let client = world.client();
        let zero = [("retry-after", value)];
        assert_eq!(refused(&client, RPM, &zero, None).await, inline(1), "{value}");
        assert_eq!(world.level(RPM).await, "80");
        assert_eq!(refused(&client, RPM, &zero, Some(TOO_MANY_AT_ONCE)).await, inline(1));
        let reply = Reply { status: 529, headers: &zero, body: None };
        assert_eq!(client.on_rate_limited(RPM, reply).await.unwrap(), inline(1));
        assert!(blocked_until(&world, RPM).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn where_there_is_nothing_to_take_the_fleet_pauses() {
    let world = World::with_rate(RPM, 1, 10).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let now = world.dynamo.clock().now();
    for _ in 0..2 {
        assert_eq!(refused(&client, RPM, &NONE, None).await, requeue(10));
        assert_eq!(blocked_until(&world, RPM).await, Some(now.after(Duration::from_secs(1))));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_another_window_spares_no_bucket() {
    let left = |limit, left, reset| {
        let (limit, left) = (("x-ratelimit-limit-requests", limit), ("x-ratelimit-remaining-requests", left));
        vec![limit, left, ("x-ratelimit-reset-requests", reset)]
    };
    for (headers, level) in [
        (left("10000", "9999", "8.64s"), "800"),
        (left("10000", "9999", "6ms"), "1000"),
        // Half of what the vendor has, which may be more than the bucket's, or less.
        (left("10000", "900", "54.6s"), "800"),
        (left("600", "400", "20s"), "1000"),
        (left("0", "0", "0s"), "800"),
    ] {
        let world = World::with_rate(RPM, 1_000, 60).await;
        refused(&world.client(), RPM, &headers, None).await;
        assert_eq!(world.level(RPM).await, level, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_a_quota_that_is_used_up_is_waited_for() {
    for (reset, decision) in
        [("250ms", inline(1)), ("4s", inline(4)), ("20s", requeue(20)), ("6m0s", requeue(60))]
    {
        let world = slow().await;
        let headers = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", reset)];
        assert_eq!(refused(&world.client(), RPM, &headers, None).await, decision);
        assert_eq!(world.level(RPM).await, "80");
        let some_left = [("x-ratelimit-remaining-requests", "1"), headers[1]];
        assert_eq!(refused(&slow().await.client(), RPM, &some_left, None).await, inline(1));
    }
}
