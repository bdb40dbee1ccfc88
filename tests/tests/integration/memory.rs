//! What a process remembers of buckets is bounded, and what it forgets costs a read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_ops::Applied;
use sluice_sdk::core::{Amount, OnLowerLimit};
use sluice_sdk::reactions::PenalizeError;
use sluice_sdk::{AcquireError, Client, Released, Request};
use sluice_testkit::{Fault, Operation};
use tokio::time::sleep;

use crate::world::{World, dimension, requests, take};

const RPM: &str = "openai#rpm";

const TPM: &str = "acme#tpm";

const SLOTS: &str = "elevenlabs#concurrent";

fn reads(world: &World) -> u64 {
    world.dynamo.meter().of(Operation::GetItem).requests
}

async fn is_unknown(client: &Client, name: &str) -> bool {
    matches!(client.acquire(name).await, Err(AcquireError::UnknownDimension { .. }))
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_costs_a_read_a_second() {
    let world = World::embedded().await;
    let client = world.client();
    for _ in 0..3 {
        let before = reads(&world);
        for _ in 0..100 {
            assert!(is_unknown(&client, RPM).await);
            assert!(client.slot(RPM).run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await.is_err());
        }
        assert_eq!(reads(&world) - before, 1);
        world.pass(Duration::from_millis(1_001));
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_of_an_unknown_name_read_it_once() {
    let world = World::embedded().await.distant();
    let client = world.client();
    let callers = (0..50).map(|_| is_unknown(&client, RPM));
    assert!(futures_util::future::join_all(callers).await.into_iter().all(|is_unknown| is_unknown));
    assert_eq!(reads(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_this_process_makes_is_known_at_once_and_anothers_after_a_second() {
    let world = World::embedded().await;
    let (here, elsewhere) = (world.client(), world.client());
    assert!(is_unknown(&here, RPM).await && is_unknown(&elsewhere, RPM).await);
    here.ops().apply_limit(&dimension(RPM), &requests(10, 60)).await.unwrap();
    let _ = take(&here, RPM).await;
    assert!(is_unknown(&elsewhere, RPM).await, "it asked a moment ago");
    world.pass(Duration::from_millis(1_001));
    let _ = take(&elsewhere, RPM).await;
}

/// Its row is there, by the send whose reply was lost, when it is sent again.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_this_process_makes_is_known_at_once_though_the_reply_was_lost() {
    let world = World::embedded().await;
    let client = world.client();
    assert!(is_unknown(&client, RPM).await);
    world.dynamo.faults().next(Operation::PutItem, Fault::LoseReply);
    let applied = client.ops().apply_limit(&dimension(RPM), &requests(10, 60)).await.unwrap();
    assert_eq!(applied, Applied::Unchanged);
    let _ = take(&client, RPM).await;
}

/// The reading found no row, and its reply is on the way while the bucket is made.
#[tokio::test(start_paused = true)]
async fn a_late_reply_of_before_a_bucket_was_made_does_not_make_it_unknown() {
    let world = World::embedded().await;
    let client = world.client();
    world.dynamo.faults().next(Operation::GetItem, Fault::DelayReply(Duration::from_millis(900)));
    let early = tokio::spawn({
        let client = client.clone();
        async move { is_unknown(&client, RPM).await }
    });
    sleep(Duration::from_millis(100)).await;
    client.ops().apply_limit(&dimension(RPM), &requests(10, 60)).await.unwrap();
    // Who comes before that reply does not share it.
    let _ = take(&client, RPM).await;
    assert!(early.await.unwrap());
    let _ = take(&client, RPM).await;
}

/// Another process makes the bucket, and this one sees it, while the reply is on its way.
#[tokio::test(start_paused = true)]
async fn a_late_reply_without_a_row_empties_no_line() {
    let world = World::embedded().await;
    let (client, other) = (world.client(), world.client());
    // The time is known from the first reply on.
    assert!(is_unknown(&client, RPM).await);
    world.dynamo.faults().next(Operation::GetItem, Fault::DelayReply(Duration::from_millis(500)));
    let late = tokio::spawn({
        let client = client.clone();
        async move { client.penalize(SLOTS, 0.5).await }
    });
    sleep(Duration::from_millis(100)).await;
    world.slots(SLOTS, 1).await;
    let held = take(&other, SLOTS).await;
    let waits = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .slot(SLOTS)
                .max_wait(Duration::from_secs(30))
                .run(async |_| Ok::<_, sluice_sdk::LimitError>(()))
                .await
        }
    });
    let late = late.await.unwrap();
    assert!(
        matches!(late, Err(PenalizeError::Concurrency(_))),
        "the row that another reply showed counts: {late:?}"
    );
    sleep(Duration::from_secs(2)).await;
    held.release().await.unwrap();
    waits.await.unwrap().unwrap();
}

/// Its first question is dated by a clock that the reply corrects.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_another_makes_is_known_after_a_second_also_to_a_clock_that_was_ahead() {
    let world = World::embedded().await;
    let client = world.client_with(|settings| settings.clock(world.dynamo.clock().off_by(10_000_000)));
    assert!(client.penalize(RPM, 0.5).await.is_err());
    world.pass(Duration::from_secs(5));
    world.rate(RPM, 10, 60).await;
    world.pass(Duration::from_millis(4_500));
    let _ = take(&client, RPM).await;
}

/// The process stands still while the reply is on its way, and another makes the bucket meanwhile.
#[tokio::test(start_paused = true)]
async fn a_reply_of_long_ago_does_not_make_a_bucket_unknown() {
    let world = World::embedded().await;
    let client = world.client();
    world.dynamo.faults().next(Operation::GetItem, Fault::DelayReply(Duration::from_millis(100)));
    let early = tokio::spawn({
        let client = client.clone();
        async move { is_unknown(&client, RPM).await }
    });
    sleep(Duration::from_millis(50)).await;
    world.client().ops().apply_limit(&dimension(RPM), &requests(10, 60)).await.unwrap();
    world.pass(Duration::from_secs(4));
    assert!(early.await.unwrap());
    let _ = take(&client, RPM).await;
}

/// Those who judge by a reading that is young.
#[tokio::test(start_paused = true)]
async fn many_who_want_a_young_reading_of_a_bucket_that_is_gone_read_it_once() {
    for name in [RPM, SLOTS] {
        let world = World::with_rate(RPM, 10, 60).await.distant();
        world.slots(SLOTS, 1).await;
        let client = world.client();
        take(&client, name).await.release().await.unwrap();
        world.client().ops().remove_bucket(&dimension(name)).await.unwrap();
        world.pass(Duration::from_secs(2));
        let before = reads(&world);
        let callers = (0..50).map(|_| client.admit(name, 1, None).into_future());
        futures_util::future::join_all(callers).await;
        let used = reads(&world) - before;
        assert!((1..=2).contains(&used), "{name}: {used} reads, with the load row");
    }
}

/// Of a bucket that nobody has read yet: one of them asks at a time, and all hear how that failed.
#[tokio::test(start_paused = true)]
async fn an_outage_is_asked_about_an_unknown_bucket_by_one_caller_at_a_time() {
    let world = World::with_rate(RPM, 1_000, 60).await;
    let client = world.client();
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    world.dynamo.faults().draw(move |call| {
        let is_read = call.operation == Operation::GetItem;
        counted.fetch_add(u64::from(is_read), Ordering::SeqCst);
        is_read.then_some(Fault::Hang)
    });
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .slot(RPM)
                    .timeout(Duration::from_secs(60))
                    .run(async |_| Ok::<_, sluice_sdk::LimitError>(()))
                    .await
            })
        })
        .collect();
    sleep(Duration::from_secs(20)).await;
    world.dynamo.faults().clear();
    // Three attempts, and then a probe every 250 to 500 ms, and not one of each caller.
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent <= 3 + 70, "{sent} reads in 20 s");
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_forgotten_comes_back_by_one_read() {
    let world = World::embedded().await;
    for name in ["a#rpm", "b#rpm", "c#rpm", "d#rpm"] {
        world.rate(name, 100, 60).await;
    }
    let client = world.client_with(|settings| settings.max_buckets(1));
    let _ = take(&client, "a#rpm").await;
    for name in ["b#rpm", "c#rpm", "d#rpm"] {
        let _ = take(&client, name).await;
    }
    let before = reads(&world);
    for _ in 0..5 {
        let _ = take(&client, "a#rpm").await;
    }
    assert_eq!(reads(&world) - before, 1);
}

/// The grant keeps its bucket in memory, and both kinds of lease go back through it.
#[tokio::test(start_paused = true)]
async fn a_grant_outlives_any_number_of_other_names() {
    for kind in [crate::kind::Kind::Rows, crate::kind::Kind::Inline] {
        let world = World::embedded().await.with(kind);
        world.slots("elevenlabs#concurrent", 1).await;
        let client = world.client_with(|settings| settings.max_buckets(1));
        let held = take(&client, "elevenlabs#concurrent").await;
        for n in 0..200 {
            assert!(is_unknown(&client, &format!("vendor{n}#rpm")).await);
        }
        assert_eq!(held.release().await.unwrap(), Released::GivenBack);
        let _ = take(&client, "elevenlabs#concurrent").await.release().await.unwrap();
    }
}

/// The reply to a transaction shows no row, so it tells nothing of what others gave back.
#[tokio::test(start_paused = true)]
async fn what_another_gives_back_is_seen_within_a_second_beside_transactions_too() {
    let world = World::embedded().await;
    world.tokens(TPM, 1_000, 1_000_000).await;
    world.slots(SLOTS, 100).await;
    let (here, elsewhere) = (world.client(), world.client());
    let asks = |tokens| Request::from(TPM).cost(TPM, tokens);
    let mut theirs = elsewhere.acquire(asks(600)).await.unwrap().granted().unwrap();
    for _ in 0..4 {
        let both = here.acquire(Request::from([TPM, SLOTS]).cost(TPM, 90)).await.unwrap();
        assert!(both.granted().is_some());
        if world.whole_level(TPM).await == "310" {
            theirs.settle(TPM, 1).await.unwrap();
        }
        world.pass(Duration::from_millis(400));
    }
    assert_eq!(world.whole_level(TPM).await, "639");
    let granted = here.acquire(asks(500)).await.unwrap().granted();
    assert!(granted.is_some(), "they gave back 1.6 s ago");
}

/// What an operator sets beside the limits changes nothing that is known of the bucket.
#[tokio::test(start_paused = true)]
async fn what_is_done_about_lower_limits_takes_no_stock_away() {
    let world = World::with_rate(RPM, 100, 60).await;
    let client = world.client_with(|settings| settings.prefetch([RPM]));
    for _ in 0..20 {
        drop(take(&client, RPM).await);
    }
    let before = world.dynamo.meter().of(Operation::UpdateItem).requests;
    let adopt = OnLowerLimit::Adopt { at_least: Amount::from_tokens(1) };
    assert!(client.ops().on_lower_limit(&dimension(RPM), adopt).await.unwrap());
    let reads = reads(&world);
    drop(take(&client, RPM).await);
    let writes = world.dynamo.meter().of(Operation::UpdateItem).requests - before;
    assert!(writes <= 2, "its own, and a lot at most: {writes}");
    assert_eq!(self::reads(&world), reads, "the bucket is known");
}
