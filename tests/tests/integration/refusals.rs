//! What follows from a vendor's 429: for the whole fleet, and for the call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_sdk::reactions::CoolDown;
use sluice_sdk::{AcquireError, Client, Decision, LimitError, Reply, Request, RetryReason};
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{World, refusal, take};

pub(crate) const RPM: &str = "openai#rpm";
/// Of a vendor that counts what a call used in the end.
pub(crate) const TPM: &str = "acme#tpm";
pub(crate) const SLOTS: &str = "elevenlabs#concurrent";
const SPEECH: &str = "elevenlabs#rpm";

pub(crate) const NONE: [(&str, &str); 0] = [];
const THIRTY: Duration = Duration::from_secs(30);

/// 100 requests that hardly refill.
pub(crate) async fn slow() -> World {
    World::with_rate(RPM, 100, 1_000_000_000).await.lowered_without_a_bound()
}

pub(crate) fn inline(secs: u64) -> Decision {
    Decision::RetryInline { wait: Duration::from_secs(secs) }
}

pub(crate) async fn refused(client: &Client, name: &str, headers: &[(&str, &str)], body: Option<&str>) -> Decision {
    let reply = Reply { status: 429, headers: &headers.to_vec(), body: body.map(str::as_bytes) };
    client.on_rate_limited(name, reply).await.unwrap()
}

pub(crate) async fn blocked_until(world: &World, name: &str) -> Option<Timestamp> {
    world.bucket(name).await.blocked_until()
}

#[tokio::test(start_paused = true)]
async fn nobody_is_granted_anything_before_a_cool_down_is_over() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = slow().await.with(kind);
        world.slots(SLOTS, 5).await;
        for name in [RPM, SLOTS] {
            let (client, other) = (world.client(), world.client());
            let _ = take(&other, name).await;
            let until = world.dynamo.clock().now().after(THIRTY);
            assert_eq!(client.cool_down(name, THIRTY).await.unwrap(), CoolDown::Set(until));
            for client in [&client, &other, &world.client()] {
                let retry = refusal(client, name).await;
                assert_eq!((retry.reason(), retry.wait()), (RetryReason::CoolingDown, THIRTY));
            }
            world.pass(THIRTY - Duration::from_millis(1));
            for client in [&client, &other, &world.client()] {
                assert_eq!(refusal(client, name).await.reason(), RetryReason::CoolingDown);
            }
            world.pass(Duration::from_millis(1));
            for client in [&client, &other, &world.client()] {
                let _ = take(client, name).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_is_never_cut_short_and_may_be_made_longer() {
    let world = slow().await;
    let (client, other) = (world.client(), world.client());
    let now = world.dynamo.clock().now();
    let until = now.after(THIRTY);
    client.cool_down(RPM, THIRTY).await.unwrap();
    let shorter = other.cool_down(RPM, Duration::from_secs(10)).await.unwrap();
    assert_eq!(shorter, CoolDown::LongerAlready(until));
    let decision = refused(&other, RPM, &[("retry-after", "1")], None).await;
    assert_eq!(decision, Decision::Requeue { wait: THIRTY, delay_seconds: 31 });
    assert_eq!(blocked_until(&world, RPM).await, Some(until));
    let longer = other.cool_down(RPM, THIRTY * 2).await.unwrap();
    assert_eq!(longer, CoolDown::Set(now.after(THIRTY * 2)));
    let unknown = client.cool_down("openai#unknown", THIRTY).await.unwrap_err();
    assert!(matches!(unknown, AcquireError::UnknownDimension { .. }));
    assert!(world.row("openai#unknown").await.is_none(), "nor is half a row made");
}

#[tokio::test(start_paused = true)]
async fn starts_that_another_process_booked_into_a_cool_down_come_after_it() {
    let world = World::with_rate(RPM, 1, 10).await;
    let (client, other) = (world.client(), world.client());
    let _ = take(&client, RPM).await;
    let began = Instant::now();
    let booked: Vec<_> = (0..3)
        .map(|_| {
            let slot = other.slot(RPM).timeout(Duration::from_secs(300));
            tokio::spawn(async move { slot.run(async |_| Ok::<_, LimitError>(began.elapsed())).await.unwrap() })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    client.cool_down(RPM, THIRTY).await.unwrap();
    let mut starts = Vec::new();
    for booked in booked {
        starts.push(booked.await.unwrap());
    }
    starts.sort_unstable();
    assert!(starts[0] >= Duration::from_secs(31), "{starts:?}");
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(9)), "no burst after it: {starts:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_before_a_cool_down_is_settled_and_released_in_it() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::with_slots(SLOTS, 2).await.with(kind);
        world.tokens(TPM, 1_000, 1_000_000_000).await;
        let client = world.client();
        let call = Request::from([SLOTS, TPM]).cost(TPM, 400);
        let mut grant = client.acquire(call).await.unwrap().granted().unwrap();
        for name in [SLOTS, TPM] {
            client.cool_down(name, THIRTY).await.unwrap();
        }
        grant.settle(TPM, 150).await.unwrap();
        grant.release().await.unwrap();
        assert_eq!((world.level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("850", "2"));
    }
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

/// Azure asks for a day if a request is larger than the limit: <https://github.com/vanderschaarlab/climb/issues/1>.
#[tokio::test(start_paused = true)]
async fn no_reply_stops_the_fleet_for_longer_than_a_setting_allows_and_the_call_hears_the_whole_wait() {
    let minutes = |count: u64| Duration::from_secs(count * 60);
    for (setting, longest) in [(None, minutes(15)), (Some(minutes(2)), minutes(2))] {
        for wait in [86_400, 604_800] {
            let world = World::with_rate(RPM, 100, 60).await;
            let client = world.client_with(|settings| match setting {
                Some(longest) => settings.longest_cool_down(longest),
                None => settings,
            });
            let decision = refused(&client, RPM, &[("retry-after", &wait.to_string())], None).await;
            assert_eq!(decision, Decision::Requeue { wait: Duration::from_secs(wait), delay_seconds: 900 });
            assert_eq!(blocked_until(&world, RPM).await, Some(world.dynamo.clock().now().after(longest)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_wait_is_blamed_on_the_quota_that_was_exceeded() {
    let of_tokens = r#"{"error": {"message": "Rate limit reached on tokens per min (TPM)", "type": "tokens", "code": "rate_limit_exceeded"}}"#;
    let left =
        [("retry-after", "20"), ("x-ratelimit-remaining-tokens", "1000"), ("x-ratelimit-remaining-requests", "0")];
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
        assert_eq!((is_blocked("acme#rpm").await, is_blocked(TPM).await), (of_rpm, of_tpm), "{headers:?} {body:?}");
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

/// What the vendor refuses is more than what the bucket counts: where that leaves less than a call's worth, the wait is for that.
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
    let of_project = Some(r#"{"error": {"code": "project_spend_limit_exceeded", "type": "insufficient_quota"}}"#);
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

/// A vendor that allows a minute's worth at once and nothing more before its window turns.
struct Vendor {
    began: Instant,
    a_minute: usize,
    served: Mutex<Vec<Duration>>,
    refused: Mutex<Vec<Duration>>,
}

impl Vendor {
    /// The seconds to wait, where it refuses.
    fn call(&self) -> Result<(), u64> {
        let at = self.began.elapsed();
        let window = at.as_secs() / 60;
        let mut served = self.served.lock().unwrap();
        if in_minute(window, &served).len() < self.a_minute {
            served.push(at);
            return Ok(());
        }
        self.refused.lock().unwrap().push(at);
        Err((window + 1) * 60 - at.as_secs())
    }
}

fn in_minute(minute: u64, calls: &[Duration]) -> Vec<Duration> {
    calls.iter().copied().filter(|at| at.as_secs() / 60 == minute).collect()
}

#[derive(Debug)]
enum CallError {
    TooMany(u64),
    Limit,
}

impl From<LimitError> for CallError {
    fn from(_: LimitError) -> Self {
        Self::Limit
    }
}

/// Books calls, and does as it is told after a refusal.
async fn caller(client: Client, vendor: Arc<Vendor>) {
    while vendor.began.elapsed() < Duration::from_secs(235) {
        let slot = client.slot(RPM).timeout(Duration::from_secs(200));
        let call = slot.run(async |_| {
            // The way there, and back.
            sleep(Duration::from_millis(40)).await;
            let answer = vendor.call();
            sleep(Duration::from_millis(40)).await;
            answer.map_err(CallError::TooMany)
        });
        if let Err(CallError::TooMany(secs)) = call.await {
            let headers = [("retry-after", secs.to_string())];
            let reply = Reply { status: 429, headers: &headers, body: None };
            let decision = client.on_rate_limited(RPM, reply).await.unwrap();
            sleep(decision.wait().unwrap()).await;
        }
    }
}

/// Eight processes that book half as many calls again as the vendor allows. Calls that are in flight at the first refusal cannot be
/// helped: here there are none.
#[tokio::test(start_paused = true)]
async fn after_the_first_429_at_most_one_more_comes_in_the_cool_down_over_all_processes() {
    for per_sec in [1, 5] {
        let world = World::with_rate(RPM, per_sec * 5, 5).await.distant();
        let a_minute = usize::try_from(per_sec * 40).unwrap();
        let (served, refused) = Default::default();
        let vendor = Arc::new(Vendor { began: Instant::now(), a_minute, served, refused });
        let mut callers = Vec::new();
        for _ in 0..8 {
            let client = world.client();
            callers.extend((0..per_sec * 3).map(|_| tokio::spawn(caller(client.clone(), Arc::clone(&vendor)))));
        }
        for caller in callers {
            caller.await.unwrap();
        }
        for minute in 0..4 {
            let refused = in_minute(minute, &vendor.refused.lock().unwrap());
            assert!((1..=2).contains(&refused.len()), "{per_sec} a second, minute {minute}: {refused:?}");
            let served = in_minute(minute, &vendor.served.lock().unwrap());
            assert_eq!(served.len(), a_minute, "what the vendor allows is used, minute {minute}");
        }
    }
}
