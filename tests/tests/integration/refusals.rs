//! What follows from a vendor's 429: for the whole fleet, and for the call.

use std::time::Duration;

use sluice_core::Timestamp;
use sluice_sdk::{Client, Decision, Reply};

use crate::world::{World, take};

mod cool_down;

pub(crate) const RPM: &str = "openai#rpm";
/// Of a vendor that counts what a call used in the end.
pub(crate) const TPM: &str = "acme#tpm";
pub(crate) const SLOTS: &str = "elevenlabs#concurrent";
const SPEECH: &str = "elevenlabs#rpm";

pub(crate) const NONE: [(&str, &str); 0] = [];

/// 100 requests that hardly refill.
pub(crate) async fn slow() -> World {
    World::with_rate(RPM, 100, 1_000_000_000).await.lowered_without_a_bound()
}

pub(crate) fn inline(secs: u64) -> Decision {
    Decision::RetryInline { wait: Duration::from_secs(secs) }
}

pub(crate) async fn refused(
    client: &Client,
    name: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Decision {
    let reply = Reply { status: 429, headers: &headers.to_vec(), body: body.map(str::as_bytes) };
    client.on_rate_limited(name, reply).await.unwrap()
}

pub(crate) async fn blocked_until(world: &World, name: &str) -> Option<Timestamp> {
    world.bucket(name).await.blocked_until()
}

#[tokio::test(start_paused = true)]
async fn a_short_retry_after_is_a_cool_down_and_waited_for_by_the_call() {
    for (headers, wait) in [
        ([("retry-after", "2")], Duration::from_secs(2)),
        ([("retry-after-ms", "2500")], Duration::from_millis(2_500)),
        ([("retry-after", "5")], Duration::from_secs(5)),
    ] {
        let world = slow().await;
        let decision = refused(&world.client(), RPM, &headers, None).await;
        assert_eq!(decision, Decision::RetryInline { wait });
        assert_eq!(blocked_until(&world, RPM).await, Some(world.dynamo.clock().now().after(wait)));
        assert_eq!(world.level(RPM).await, "100", "the pause is what the vendor asks for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_lowers_the_bucket_besides_and_requeues_the_call() {
    for (secs, delay_seconds) in [(6, 7), (30, 31), (900, 900)] {
        let world = slow().await;
        let (text, wait) = (secs.to_string(), Duration::from_secs(secs));
        let decision = refused(&world.client(), RPM, &[("retry-after", &text)], None).await;
        assert_eq!(decision, Decision::Requeue { wait, delay_seconds });
        assert_eq!(blocked_until(&world, RPM).await, Some(world.dynamo.clock().now().after(wait)));
        assert_eq!(world.level(RPM).await, "30");
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_wait_is_blamed_on_the_quota_that_was_exceeded() {
    let of_tokens = r#"{"error": {"message": "Rate limit reached on tokens per min (TPM)", "type": "tokens", "code": "rate_limit_exceeded"}}"#;
    let left = [
        ("retry-after", "20"),
        ("x-ratelimit-remaining-tokens", "1000"),
        ("x-ratelimit-remaining-requests", "0"),
    ];
    let cases = [
        (&left[..], None, true, false),
        (&left[..1], Some(of_tokens), false, true),
        (&left[..1], None, true, true),
        // A contradiction: what no bucket is to blame for is blamed on all.
        (&left, Some(of_tokens), true, true),
    ];
    for (headers, body, of_rpm, of_tpm) in cases {
        let world = World::with_rate("acme#rpm", 100, 60).await;
        world.tokens(TPM, 1_000, 60).await;
        let headers = headers.to_vec();
        let reply = Reply { status: 429, headers: &headers, body: body.map(str::as_bytes) };
        let decision = world.client().on_rate_limited(["acme#rpm", TPM], reply).await.unwrap();
        assert_eq!(decision.wait(), Some(Duration::from_secs(20)), "the call waits in any case");
        let is_blocked = async |name| blocked_until(&world, name).await.is_some();
        assert_eq!(
            (is_blocked("acme#rpm").await, is_blocked(TPM).await),
            (of_rpm, of_tpm),
            "{headers:?} {body:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_larger_than_the_limit_changes_nothing_and_is_given_up() {
    let world = slow().await;
    let too_large = r#"{"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538.", "type": "tokens", "code": "rate_limit_exceeded"}}"#;
    let decision = refused(&world.client(), RPM, &[("retry-after", "86400")], Some(too_large)).await;
    assert_eq!(decision, Decision::GiveUp);
    assert_eq!((world.level(RPM).await.as_str(), blocked_until(&world, RPM).await), ("100", None));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_vendor_says_not_to_repeat_is_given_up_and_the_fleet_hears_of_the_refusal() {
    let world = slow().await;
    let headers = [("x-should-retry", "false"), ("retry-after", "3")];
    assert_eq!(refused(&world.client(), RPM, &headers, None).await, Decision::GiveUp);
    assert!(blocked_until(&world, RPM).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_each_refusal_in_succession_lowers_and_waits_more() {
    let world = slow().await;
    let client = world.client();
    let mut seen = Vec::new();
    for pause in [0, 1, 10, 15] {
        world.pass(Duration::from_secs(pause));
        let decision = refused(&client, RPM, &NONE, None).await;
        seen.push((decision, world.level(RPM).await.split('.').next().unwrap().to_owned()));
    }
    let expected = [(inline(1), "80"), (inline(2), "40"), (inline(4), "20"), (inline(1), "16")];
    assert_eq!(seen, expected.map(|(decision, level)| (decision, level.to_owned())));
    assert_eq!(blocked_until(&world, RPM).await, None);
}

/// What the vendor refuses is more than what the bucket counts: where that leaves less than a call's worth,
/// the wait is for that.
#[tokio::test(start_paused = true)]
async fn without_a_wait_the_call_waits_until_the_lowered_bucket_has_its_worth() {
    let world = World::with_rate(RPM, 100, 1_000).await;
    let client = world.client();
    for _ in 0..100 {
        let _ = take(&client, RPM).await;
    }
    world.pass(Duration::from_secs(1));
    let decision = refused(&client, RPM, &NONE, None).await;
    let Decision::Requeue { wait, delay_seconds } = decision else { panic!("{decision:?}") };
    assert_eq!((wait.as_millis(), delay_seconds), (9_200, 10));
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_at_once_lower_and_block_nothing() {
    let world = World::with_slots(SLOTS, 5).await;
    world.rate(SPEECH, 100, 1_000_000_000).await;
    let client = world.client();
    let body = br#"{"detail": {"status": "too_many_concurrent_requests", "message": "wait"}}"#;
    let reply = Reply { status: 429, headers: &NONE, body: Some(body) };
    assert_eq!(client.on_rate_limited([SLOTS, SPEECH], reply).await.unwrap(), inline(1));
    assert_eq!(client.on_rate_limited(SLOTS, reply).await.unwrap(), inline(1));
    assert_eq!((world.free(SLOTS).await.as_str(), world.level(SPEECH).await.as_str()), ("5", "100"));
    assert_eq!((blocked_until(&world, SLOTS).await, blocked_until(&world, SPEECH).await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_busy_vendor_is_left_alone_for_longer_each_time_and_no_level_is_lowered() {
    let world = World::with_rate(SPEECH, 100, 1_000_000_000).await;
    world.slots(SLOTS, 5).await;
    let client = world.client();
    let busy = Some(r#"{"detail": {"status": "system_busy"}}"#);
    for wait in [1, 2, 4] {
        assert_eq!(refused(&client, SPEECH, &NONE, busy).await, inline(wait));
        let until = world.dynamo.clock().now().after(Duration::from_secs(wait));
        assert_eq!(blocked_until(&world, SPEECH).await, Some(until));
        world.pass(Duration::from_secs(wait));
    }
    let decision = refused(&client, SPEECH, &[("retry-after", "40")], busy).await;
    assert_eq!(decision, Decision::Requeue { wait: Duration::from_secs(40), delay_seconds: 41 });
    assert_eq!(world.level(SPEECH).await, "100");
    // A bucket of slots cools down where the call has no other.
    assert_eq!(refused(&client, SLOTS, &NONE, busy).await, inline(1));
    assert!(blocked_until(&world, SLOTS).await.is_some());
    assert_eq!(world.free(SLOTS).await, "5");
}

#[tokio::test(start_paused = true)]
async fn an_allowance_that_is_used_up_is_no_matter_of_waiting() {
    let world = slow().await;
    let exhausted = Some(r#"{"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}"#);
    let decision = refused(&world.client(), RPM, &[("retry-after", "3")], exhausted).await;
    assert_eq!((decision, decision.wait()), (Decision::GiveUp, None));
    assert_eq!(world.level(RPM).await, "100");
    // The others are kept from failing calls of their own: for a minute, whatever seconds the vendor names.
    let minute = world.dynamo.clock().now().after(Duration::from_secs(60));
    assert_eq!(blocked_until(&world, RPM).await, Some(minute));
    // Each refusal that follows doubles the pause, up to the longest that is set.
    let client = world.client();
    for pause in [60, 120, 240, 480, 900, 900] {
        refused(&client, RPM, &NONE, exhausted).await;
        assert_eq!(
            blocked_until(&world, RPM).await,
            Some(world.dynamo.clock().now().after(Duration::from_secs(pause)))
        );
        world.pass(Duration::from_secs(pause.max(60)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_spending_limit_of_one_project_stops_nobody_else() {
    let world = slow().await;
    let of_project =
        Some(r#"{"error": {"code": "project_spend_limit_exceeded", "type": "insufficient_quota"}}"#);
    assert_eq!(refused(&world.client(), RPM, &NONE, of_project).await, Decision::GiveUp);
    assert_eq!(blocked_until(&world, RPM).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_refusal_changes_nothing() {
    let world = slow().await;
    let client = world.client();
    world.dynamo.meter().reset();
    for status in [200, 400, 401, 404, 500, 502] {
        let reply = Reply { status, headers: &NONE, body: None };
        assert_eq!(client.on_rate_limited(RPM, reply).await.unwrap(), Decision::NotRefused, "{status}");
    }
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn only_what_the_vendor_says_is_used_up_is_lowered() {
    let world = World::with_rate(RPM, 100, 60).await;
    world.tokens(TPM, 1_000, 60).await;
    let client = world.client();
    let headers = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-remaining-tokens", "900")];
    let reply = Reply { status: 429, headers: &headers, body: None };
    assert_eq!(client.on_rate_limited([RPM, TPM], reply).await.unwrap(), inline(1));
    assert_eq!((world.level(RPM).await.as_str(), world.level(TPM).await.as_str()), ("80", "1000"));
    // The bucket is full again, and more than its pause and the ten seconds behind it have passed.
    world.pass(Duration::from_secs(60));
    let silent = Reply { status: 429, headers: &NONE, body: None };
    assert_eq!(client.on_rate_limited([RPM, TPM], silent).await.unwrap(), inline(1));
    assert_eq!(
        (world.level(RPM).await.as_str(), world.level(TPM).await.as_str()),
        ("80", "800"),
        "without a word, all"
    );
}
