//! A cool-down holds for the whole fleet: nobody starts in it, and nothing cuts it short.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_sdk::reactions::CoolDown;
use sluice_sdk::{AcquireError, Client, Decision, LimitError, Reply, Request, RetryReason};
use tokio::time::{Instant, sleep};

use super::{RPM, SLOTS, TPM, blocked_until, refused, slow};
use crate::kind::Kind;
use crate::world::{World, refusal, take};

const THIRTY: Duration = Duration::from_secs(30);

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
            tokio::spawn(
                async move { slot.run(async |_| Ok::<_, LimitError>(began.elapsed())).await.unwrap() },
            )
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
    assert!(
        starts.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(9)),
        "no burst after it: {starts:?}"
    );
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

/// Azure asks for a day if a request is larger than the limit:
/// <https://github.com/vanderschaarlab/climb/issues/1>.
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

/// Eight processes that book half as many calls again as the vendor allows. Calls that are in flight at the
/// first refusal cannot be helped: here there are none.
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
            callers
                .extend((0..per_sec * 3).map(|_| tokio::spawn(caller(client.clone(), Arc::clone(&vendor)))));
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
