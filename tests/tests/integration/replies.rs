//! One call reports a vendor's reply: what it used, what its headers say, whether it is a refusal.

use std::cell::Cell;
use std::time::Duration;

use sluice_sdk::reactions::ObservedLevel;
use sluice_sdk::{Decision, LimitError, OnUnavailable, Reply, SettleError};
use sluice_testkit::Fault;
use tokio::time::{Instant, sleep, timeout};

use crate::events::{lines_of, listen};
use crate::kind::Kind;
use crate::world::{World, settle};

const RPM: &str = "acme#rpm";
const TPM: &str = "acme#tpm";
const BOTH: [&str; 2] = [RPM, TPM];

async fn world() -> World {
    let world = World::new().await.with(Kind::Rows).lowered_without_a_bound();
    world.rate(RPM, 100, 1_000_000_000).await;
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    world
}

/// The windows of both quotas, as long as those of the buckets.
const POLICY: (&str, &str) =
    ("ratelimit-policy", r#""r";q=100;w=1000000000, "t";q=1000;w=1000000000;qu="tokens""#);

fn parts(status: u16, headers: &[(&str, &str)]) -> http::response::Parts {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

#[tokio::test(start_paused = true)]
async fn a_reply_settles_observes_and_costs_one_write() {
    let world = world().await;
    let slot = world.client().slot(BOTH).cost(TPM, 400);
    let agrees = parts(200, &[POLICY, ("ratelimit", r#""r";r=99, "t";r=600"#)]);
    let replied = slot
        .run(async |slot| {
            world.dynamo.meter().reset();
            let replied = slot.reply(&agrees, (TPM, 150)).await?;
            assert_eq!(world.dynamo.meter().reset().requests, 0, "the headers agree with the buckets");
            Ok::<_, LimitError>(replied)
        })
        .await
        .unwrap();
    assert_eq!(world.dynamo.meter().reset().requests, 1, "the settlement");
    assert_eq!(replied.decision, Decision::NotRefused);
    assert!(replied.observed.iter().all(|(_, seen)| seen.level == ObservedLevel::Agrees), "{replied:?}");
    assert_eq!((world.whole_level(RPM).await.as_str(), world.whole_level(TPM).await.as_str()), ("99", "850"));
}

#[tokio::test(start_paused = true)]
async fn a_reply_lowers_every_bucket_that_has_more_than_its_vendor() {
    let world = world().await;
    let mut grant = world.client().slot(BOTH).cost(TPM, 400).grant().await.unwrap();
    let lower = parts(200, &[POLICY, ("ratelimit", r#""r";r=40, "t";r=100"#)]);
    let replied = grant.reply(&lower, ()).await.unwrap();
    assert_eq!(replied.observed.len(), 2);
    assert_eq!((world.whole_level(RPM).await.as_str(), world.whole_level(TPM).await.as_str()), ("40", "100"));
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reported_refusal_gives_the_tokens_back_and_the_fleet_pauses() {
    let world = world().await;
    let client = world.client();
    let refused = parts(429, &[("retry-after", "3")]);
    // The closure returns the reply of a 429 as a success, and says nothing about its use.
    let status = client.slot(BOTH).cost(TPM, 400).run(async |slot| {
        let replied = slot.reply(&refused, ()).await?;
        assert_eq!(replied.decision, Decision::RetryInline { wait: Duration::from_secs(3) });
        Ok::<_, LimitError>(429)
    });
    assert_eq!(status.await.unwrap(), 429);
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "1000", "the vendor counts no tokens of a refused call");
    for bucket in BOTH {
        assert!(world.bucket(bucket).await.blocked_until().is_some(), "{bucket}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_for_a_while_is_made_again() {
    let world = world().await;
    let client = world.client();
    let (calls, began) = (Cell::new(0), Instant::now());
    let refused = parts(429, &[("retry-after", "2")]);
    let fine = parts(200, &[]);
    let call = async |slot: sluice_sdk::Slot| {
        calls.set(calls.get() + 1);
        match calls.get() {
            3 => {
                slot.reply(&fine, (TPM, 50)).await?;
                Ok::<_, LimitError>("answer")
            }
            _ => {
                slot.reply(&refused, ()).await?;
                Ok("refused")
            }
        }
    };
    let slot = client.slot(BOTH).cost(TPM, 400);
    assert_eq!(slot.clone().retry(1).run(call).await.unwrap(), "refused", "after the last try, its result");
    assert_eq!(calls.get(), 2);
    world.pass(Duration::from_secs(5));
    calls.set(0);
    assert_eq!(slot.clone().retry(5).run(call).await.unwrap(), "answer");
    assert_eq!(calls.get(), 3);
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "950");
    // A pause that would end after the time of all tries is not begun.
    calls.set(0);
    world.pass(Duration::from_secs(5));
    let began = Instant::now();
    assert_eq!(slot.timeout(Duration::from_secs(1)).retry(5).run(call).await.unwrap(), "refused");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_use_of_what_the_slot_does_not_hold_is_an_error_and_nothing_is_done() {
    let world = world().await;
    let client = world.client();
    let error = client
        .slot(RPM)
        .run(async |slot| slot.reply(Reply::new(200, &http::HeaderMap::new()), [(TPM, 10)]).await.map(drop));
    assert!(matches!(error.await.unwrap_err(), LimitError::Settle(SettleError::NotHeld(_))));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_call_that_was_granted_in_an_outage_is_a_refusal() {
    let world = world().await;
    for policy in [OnUnavailable::Allow, OnUnavailable::Share("0.5".parse().unwrap())] {
        let client = world.client_with(|settings| settings.on_unavailable(policy));
        client.slot(BOTH).cost(TPM, 1).run(async |_| Ok::<_, LimitError>(())).await.unwrap();
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let refused = parts(429, &[("retry-after", "3")]);
        let seen = client.slot(BOTH).cost(TPM, 10).run(async |slot| slot.reply(&refused, (TPM, 0)).await);
        assert_eq!(
            seen.await.unwrap().decision,
            Decision::RetryInline { wait: Duration::from_secs(3) },
            "{policy:?}"
        );
        let mut grant = client.slot(BOTH).cost(TPM, 10).grant().await.unwrap();
        let replied = grant.reply(&refused, ()).await.unwrap();
        assert_eq!(replied.decision.delay_seconds(), Some(4), "{policy:?}");
        world.dynamo.faults().draw(|_| None);
        grant.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_after_a_reported_refusal_covers_the_cost_of_the_call() {
    let world = World::new().await.with(Kind::Rows);
    // Ten tokens a second.
    world.tokens(TPM, 600, 60).await;
    let mut grant = world.client().slot(TPM).cost(TPM, 600).grant().await.unwrap();
    let decision = grant.reply(&parts(429, &[]), ()).await.unwrap().decision;
    assert!(decision.wait().unwrap() > Duration::from_secs(50), "{decision:?}");
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_call_used_is_charged_whether_or_not_its_headers_could_be_applied() {
    let world = world().await;
    let client = world.client();
    let lower = parts(200, &[POLICY, ("ratelimit", r#""t";r=100"#)]);
    let slot = client.slot(TPM).cost(TPM, 400);
    let call = slot.run(async |slot| {
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let replied = slot.reply(&lower, (TPM, 150)).await?;
        world.dynamo.faults().draw(|_| None);
        assert!(replied.observed.is_empty(), "the bucket could not be lowered: {replied:?}");
        sleep(Duration::from_secs(2)).await;
        Ok::<_, LimitError>(())
    });
    call.await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "850");
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_charged_what_its_reply_says_it_used() {
    let world = world().await;
    let mut grant = world.client().slot(TPM).cost(TPM, 400).grant().await.unwrap();
    grant.reply(&parts(429, &[("retry-after", "3")]), (TPM, 50)).await.unwrap();
    grant.release().await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "950");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_hears_no_reply_is_named_once() {
    listen();
    let world = world().await;
    let (client, silent) = (world.client(), world.client());
    let call = || client.slot(TPM).cost(TPM, 1).retry(2);
    call().run(async |slot| slot.reply(&parts(200, &[]), (TPM, 1)).await).await.unwrap();
    // A call that failed has no reply to report.
    call().run(async |_| Err::<(), _>(LimitError::Closed)).await.unwrap_err();
    for _ in 0..3 {
        silent.slot(BOTH).cost(TPM, 1).retry(2).run(async |_| Ok::<_, LimitError>(())).await.unwrap();
    }
    let lines = lines_of("retry.unreported");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["dimensions"], BOTH.join(","), "{}", lines[0]);
    assert!(lines[0]["message"].as_str().unwrap().contains("slot.reply"), "{}", lines[0]);
}

/// The body says what the headers do not.
#[tokio::test(start_paused = true)]
async fn a_whole_response_is_read_with_its_body() {
    let world = world().await;
    let mut used_up = http::Response::new(br#"{"error": {"code": "insufficient_quota"}}"#.as_slice());
    *used_up.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    let mut grant = world.client().slot(TPM).cost(TPM, 400).grant().await.unwrap();
    assert_eq!(grant.reply(&used_up, ()).await.unwrap().decision, Decision::GiveUp);
    let (parts, _) = used_up.into_parts();
    let without_body = grant.reply(&parts, ()).await.unwrap().decision;
    assert!(
        matches!(without_body, Decision::Requeue { .. }),
        "the cool-down that the body caused: {without_body:?}"
    );
}

/// A grant may be kept through a refusal: what the second call used counts.
#[tokio::test(start_paused = true)]
async fn a_call_that_follows_a_refused_one_under_its_grant_is_charged() {
    let world = world().await;
    let mut grant = world.client().slot(TPM).cost(TPM, 400).grant().await.unwrap();
    grant.reply(&parts(429, &[("retry-after", "1")]), ()).await.unwrap();
    grant.reply(&parts(200, &[]), (TPM, 300)).await.unwrap();
    grant.release().await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "700");
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_fails_after_the_vendor_has_answered_keeps_its_tokens() {
    let world = world().await;
    let client = world.client();
    let call = async |status| {
        let slot = client.slot(TPM).cost(TPM, 100);
        let failed = slot.run(async |slot| {
            slot.reply(&parts(status, &[]), ()).await?;
            Err::<(), _>(LimitError::Closed)
        });
        failed.await.unwrap_err();
        settle().await;
        world.whole_level(TPM).await
    };
    assert_eq!(call(200).await, "900", "its reply could not be parsed");
    assert_eq!(call(500).await, "900", "the vendor has failed, and counts no tokens");
}

#[tokio::test(start_paused = true)]
async fn a_use_is_recorded_before_the_headers_are_applied() {
    let world = world().await;
    let client = world.client();
    let lower = parts(200, &[POLICY, ("ratelimit", r#""t";r=100"#)]);
    let impatient = client.slot(TPM).cost(TPM, 400).run(async |slot| {
        world.dynamo.faults().draw(|_| Some(Fault::Hang));
        let reply = slot.reply(&lower, (TPM, 150));
        timeout(Duration::from_millis(300), reply).await.unwrap_err();
        world.dynamo.faults().draw(|_| None);
        Ok::<_, LimitError>(())
    });
    impatient.await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "850");
}
