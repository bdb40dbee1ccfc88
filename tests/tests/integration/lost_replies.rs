//! Replies that are lost, requests that arrive twice, conflicts that say nothing: a slot changes once, or not
//! at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_core::CLOCK_ERROR;
use sluice_ops::SweepOptions;
use sluice_sdk::{Leases, LimitError, Released, Request};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, refusal, settle, take};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

/// Condition: `attribute_not_exists` on the lease. The retry comes after the ten minutes in which the token
/// makes both one.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_sent_again_after_its_token_ended_takes_one_slot() {
    let world = World::embedded().await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    client.acquire(SLOTS).await.unwrap().granted().unwrap().release().await.unwrap();
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::NewToken);
    let held = take(&client, SLOTS).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
}

/// Condition: `attribute_exists` on the delete of a holder; as above.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_sent_again_after_its_token_ended_restores_once() {
    let world = World::embedded().await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::NewToken);
    assert_eq!(
        held.release().await.unwrap(),
        Released::GivenBack,
        "its own earlier release went unanswered, and nothing says that anyone else was there"
    );
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
}

/// A release that is planned again is another transaction: it finds the lease gone that the first one
/// deleted. Else its holder would count as one that had outlived its lease.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_planned_again_after_a_lost_reply_is_given_back_and_counts_nobody_as_outlived() {
    let world = World::embedded().await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    world
        .dynamo
        .faults()
        .next(Operation::TransactWriteItems, Fault::cancelled(&["TransactionConflict", "None"]));
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
    let other = take(&client, SLOTS).await;
    world.pass_lease();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(other.release().await.unwrap(), Released::LeaseGone, "without a doubt it is told as ever");
}

/// The same of the lease of a rate grant, whose row alone is deleted.
#[tokio::test(start_paused = true)]
async fn a_row_whose_delete_is_sent_again_after_a_lost_reply_was_not_anyone_elses() {
    let world = World::embedded().await;
    world.rate("openai#rpm", 3, 60).await;
    let client = world.client_with(|settings| settings.leases(Leases::All));
    let held = take(&client, "openai#rpm").await;
    world.dynamo.faults().next(Operation::DeleteItem, Fault::LoseReply);
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.leases().await, 0);
}

/// The transaction was applied, and nobody heard of it for some seconds, in which the bucket was nearly full
/// again and others took their part. By the line of a later plan, all of its tokens would fit below the brim
/// still; but each transaction moves the anchor, so that nothing rests on a line that was never written.
#[tokio::test(start_paused = true)]
async fn tokens_of_a_grant_that_was_found_in_the_table_do_not_come_back() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 10).await;
    // So long that the lost replies are no outage.
    let patient = Duration::from_secs(30);
    let client = world.client_with(|settings| settings.leases(Leases::All).answer_within(patient));
    let other = world.client();
    let (began, is_taken) = (Instant::now(), AtomicBool::new(false));
    world.dynamo.faults().draw(move |call| {
        let is_lost =
            call.operation == Operation::TransactWriteItems && began.elapsed() < Duration::from_secs(4);
        is_lost.then(|| {
            if is_taken.swap(true, Ordering::SeqCst) { Fault::LoseRequest } else { Fault::LoseReply }
        })
    });
    let asking = client.clone();
    let using = tokio::spawn(async move {
        let slot = asking.slot(RPM).cost(RPM, 5).timeout(Duration::from_secs(30));
        slot.run(async |slot| slot.used(RPM, 0)).await.unwrap();
    });
    sleep(Duration::from_secs(3)).await;
    assert!(other.acquire(Request::from(RPM).cost(RPM, 3)).await.unwrap().granted().is_some());
    // The later plan goes by the row as it is now.
    client.penalize(RPM, 1.0).await.unwrap();
    using.await.unwrap();
    settle().await;
    assert_eq!(world.leases().await, 0);
    let level: f64 = world.level(RPM).await.parse().unwrap();
    let most = 10.0 - 5.0 - 3.0 + began.elapsed().as_secs_f64();
    // Both are decimals as floating-point numbers.
    assert!(level <= most + 1e-6, "{level}, at most {most}");
}

/// A reading that was on its way while the slot was taken says nothing of its lease, and neither its version
/// nor its time says so to whoever releases.
#[tokio::test(start_paused = true)]
async fn a_release_after_a_reading_from_before_its_take_gives_the_slot_back() {
    let world = World::embedded().await.with(Kind::Inline);
    world.slots(SLOTS, 2).await;
    let client = world.client();
    take(&client, SLOTS).await.release().await.unwrap();
    world.dynamo.faults().next(Operation::GetItem, Fault::DelayReply(Duration::from_millis(50)));
    let reads = {
        let client = client.clone();
        tokio::spawn(async move { client.penalize(SLOTS, 0.5).await })
    };
    sleep(Duration::from_millis(10)).await;
    let held = take(&client, SLOTS).await;
    let _ = reads.await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.free(SLOTS).await, "2");
}

/// The first send was thought lost, its retry was applied and released. The slot of the late one is out until
/// its lease ends, and nobody has it a second time.
#[tokio::test(start_paused = true)]
async fn a_late_first_send_of_an_inline_take_parks_its_slot_until_its_lease_ends_and_no_longer() {
    let world = World::embedded().await.with(Kind::Inline);
    world.slots(SLOTS, 2).await;
    let (client, others) = (world.client(), world.client_with(|settings| settings.lease_ttl(LEASE_TTL * 10)));
    let _other = take(&others, SLOTS).await;
    let late = Duration::from_secs(2);
    world.dynamo.faults().next(Operation::UpdateItem, Fault::Late(late));
    let began = Instant::now();
    let held = take(&client, SLOTS).await;
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.free(SLOTS).await, "1");
    assert!(began.elapsed() < late, "it was granted by a retry");
    sleep(late).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 2), "and here it arrives");
    for _ in 0..(LEASE_TTL.as_secs() - late.as_secs()) {
        world.pass(Duration::from_secs(1));
        for process in [&client, &others] {
            refusal(process, SLOTS).await;
        }
    }
    // What clocks may differ by, and the second that the lease's end is rounded to.
    world.pass(CLOCK_ERROR + Duration::from_secs(1));
    let _next = take(&others, SLOTS).await;
    for process in [&client, &others] {
        refusal(process, SLOTS).await;
    }
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 2));
}

/// The transaction was applied, and nobody heard of it; the next try meets another transaction. The caller
/// does not move on to an inline lease: its first lease would hold a slot that nobody uses.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_transaction_may_be_applied_does_not_move_on() {
    let world = World::embedded().await;
    world.slots(SLOTS, 2).await;
    let client = world.client_with(|settings| settings.answer_within(Duration::from_secs(30)));
    let (began, is_taken, has_met) = (Instant::now(), AtomicBool::new(false), AtomicBool::new(false));
    world.dynamo.faults().draw(move |call| match call.operation {
        Operation::TransactWriteItems if began.elapsed() < Duration::from_secs(4) => {
            Some(if is_taken.swap(true, Ordering::SeqCst) { Fault::LoseRequest } else { Fault::LoseReply })
        }
        Operation::TransactWriteItems if !has_met.swap(true, Ordering::SeqCst) => {
            Some(Fault::cancelled(&["TransactionConflict", "None"]))
        }
        _ => None,
    });
    let slot = client.slot(SLOTS).timeout(Duration::from_secs(30));
    slot.run(async |_| Ok::<_, LimitError>(())).await.unwrap();
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
}
