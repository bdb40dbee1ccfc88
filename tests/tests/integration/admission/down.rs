//! Whether the vendor counts as down: since when nothing departed, and what is held by nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sluice_sdk::Clock;

use super::*;

#[tokio::test(start_paused = true)]
async fn after_an_idle_hour_the_vendor_is_not_taken_for_down() {
    for asks_before in [true, false] {
        let world = World::with_slots(SLOTS, 4).await;
        let client = world.client();
        if asks_before {
            take(&client, SLOTS).await.release().await.unwrap();
            assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
        }
        sleep(secs(3_600)).await;
        measured(&world, "1", 0, i32::from(asks_before), None).await;
        hold(&world, 1).await;
        sleep(secs(1)).await;
        assert_eq!(reason(&client).await, None);
        // Only when work has been pending for the staleness time.
        sleep(secs(57)).await;
        assert_eq!(reason(&client).await, None);
        sleep(secs(3)).await;
        assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
    }
}

/// Little is asked for, and nobody looks for what a crashed holder had: its lease has ended, and its slot is
/// nobody's work.
#[tokio::test(start_paused = true)]
async fn a_crashed_holder_does_not_make_a_vendor_look_down_while_slots_are_free() {
    for (kind, heals) in
        [(Kind::Rows, true), (Kind::Rows, false), (Kind::Inline, true), (Kind::Inline, false)]
    {
        let world = World::with_slots(SLOTS, 10).await.with(kind);
        let client = world.client_with(|settings| settings.leases(kind.leases()).self_heal(heals));
        std::mem::forget(take(&client, SLOTS).await);
        assert!(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted());
        for _ in 0..3 {
            sleep(secs(150)).await;
            let answer = client.admit(SLOTS, 1, SLO).await.unwrap();
            assert!(answer.is_admitted(), "{kind:?}, healing {heals}: {answer:?}");
            settle().await;
            // An inline lease says in the bucket's row that it has ended: nothing is pending, and nobody is
            // shed at all.
            if kind == Kind::Inline {
                assert_eq!(reason(&client).await, None, "healing {heals}");
            }
        }
        assert_eq!(world.free(SLOTS).await, if heals && kind == Kind::Rows { "10" } else { "9" }, "{kind:?}");
    }
}

/// A sweep finds slots that nobody holds: they are not pending, whoever comes after.
#[tokio::test(start_paused = true)]
async fn slots_that_were_lost_are_nobodys_work() {
    let world = World::with_slots(SLOTS, 10).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let _ = client.ops().sweep(SweepOptions::default()).await.unwrap();
    held.release().await.unwrap();
    world.add_tokens(SLOTS, "-3").await;
    let _ = client.ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(reason(&client).await, None);
    sleep(secs(250)).await;
    assert_eq!(reason(&client).await, None);
    let with_backlog =
        [client.admit(SLOTS, 1, SLO).backlog(3).await, client.admit(SLOTS, 1, SLO).backlog(3).await];
    assert!(with_backlog.iter().all(|answer| answer.as_ref().unwrap().is_admitted()), "{with_backlog:?}");
    // The first that is held is work.
    let Outcome::Granted(mut held) = client.acquire(SLOTS).await.unwrap() else { panic!("refused") };
    for _ in 0..4 {
        sleep(secs(20)).await;
        held.renew().await.unwrap();
    }
    assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
}

/// No sweep has run since it saw work; the process has seen the bucket wholly free.
#[tokio::test(start_paused = true)]
async fn work_that_began_after_the_bucket_was_seen_free_counts_from_then() {
    let world = World::with_slots(SLOTS, 4).await;
    let client = world.client();
    take(&client, SLOTS).await.release().await.unwrap();
    measured(&world, "1", 1, 1, Some(world.dynamo.clock().now())).await;
    assert_eq!(reason(&client).await, None);
    sleep(secs(3_600)).await;
    hold(&world, 1).await;
    sleep(secs(1)).await;
    assert_eq!(reason(&client).await, None);
    sleep(secs(61)).await;
    assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
    // Free for a while, and taken again: the time begins anew, as the background saw it.
    let world = World::with_slots(SLOTS, 4).await;
    let (client, other) = (world.client(), world.client());
    let held = take(&other, SLOTS).await;
    assert_eq!(reason(&client).await, None);
    sleep(secs(2)).await;
    held.release().await.unwrap();
    sleep(secs(200)).await;
    hold(&world, 1).await;
    sleep(secs(2)).await;
    assert_eq!(reason(&client).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_departed_since_the_last_sweep_shows_that_the_vendor_is_well() {
    let world = World::with_slots(SLOTS, 4).await;
    hold(&world, 1).await;
    let hours_ago = world.dynamo.clock().now();
    sleep(secs(7_200)).await;
    measured(&world, "1", 1, 1, Some(hours_ago)).await;
    // Nothing has, as far as the sweep and the first reading tell.
    assert_eq!(reason(&world.client()).await, Some(ShedReason::UpstreamDown));
    // Another came and went.
    take(&world.client(), SLOTS).await.release().await.unwrap();
    let client = world.client();
    assert_eq!(reason(&client).await, None);
    sleep(secs(59)).await;
    assert_eq!(reason(&client).await, None);
    sleep(secs(2)).await;
    assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
    // Of another process again, seen by the background between two questions.
    take(&world.client(), SLOTS).await.release().await.unwrap();
    sleep(secs(20)).await;
    assert_eq!(reason(&client).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_this_process_is_a_completion_at_once() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::with_slots(SLOTS, 4).await.with(kind);
        hold(&world, 1).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        let _ = client.admit(SLOTS, 1, None).await.unwrap();
        // Their leases live on.
        sleep(secs(61)).await;
        assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
        held.release().await.unwrap();
        assert_eq!(reason(&client).await, None, "{kind:?}");
    }
}

/// Writes of clients that do not count what they grant say nothing of what departed.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_not_all_clients_count_is_given_the_benefit_of_the_doubt() {
    let world = World::with_slots(SLOTS, 4).await;
    hold(&world, 1).await;
    let client = world.client();
    let _ = client.admit(SLOTS, 1, None).await.unwrap();
    sleep(secs(70)).await;
    let request =
        world.dynamodb().update_item().table_name(world.table()).key("vendor_dimension", text(SLOTS));
    let request = request.update_expression("SET tokens = tokens - :1, version = version + :1");
    request.expression_attribute_values(":1", number("1")).send().await.unwrap();
    sleep(secs(1)).await;
    assert_eq!(reason(&client).await, None);
}

/// One slot hangs, the others are free: one request is let through in each staleness time, and its completion
/// says that the vendor is up.
#[tokio::test(start_paused = true)]
async fn a_vendor_that_counts_as_down_is_tried_once_in_each_staleness_time() {
    let world = World::with_slots(SLOTS, 10).await;
    let other = world.client();
    let Outcome::Granted(mut hanging) = other.acquire(SLOTS).await.unwrap() else { panic!("refused") };
    let client = world.client();
    let mut admitted = 0;
    for second in 0..290 {
        if second % 20 == 0 {
            hanging.renew().await.unwrap();
        }
        // Who has no SLO is admitted, and says nothing of the vendor.
        assert!(client.admit(SLOTS, 1, None).await.unwrap().is_admitted());
        admitted += u32::from(client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted() && second >= 60);
        sleep(secs(1)).await;
    }
    assert_eq!(admitted, 4, "after one, two, three and four staleness times");
    assert_eq!(reason(&client).await, Some(ShedReason::UpstreamDown));
    client.acquire(SLOTS).await.unwrap().granted().unwrap().release().await.unwrap();
    assert_eq!(reason(&client).await, None);
}

/// Set back by an hour, what was seen lies in the future: that the vendor is down is found, and tried, all
/// the same.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_hide_a_vendor_that_is_down() {
    let world = World::with_slots(SLOTS, 10).await;
    let other = world.client();
    let Outcome::Granted(mut hanging) = other.acquire(SLOTS).await.unwrap() else { panic!("refused") };
    let ahead = Arc::new(AtomicI64::new(3_600_000_000));
    let (clock, offset) = (world.dynamo.clock().clone(), Arc::clone(&ahead));
    let now = move || Timestamp::from_micros(clock.now().micros() + offset.load(Ordering::Relaxed));
    let client = world.client_with(|settings| settings.self_heal(false).clock(Clock::from_fn(now.clone())));
    let mut shed = [0, 0];
    for (times, is_back) in shed.iter_mut().zip([false, true]) {
        if is_back {
            ahead.store(0, Ordering::Relaxed);
        }
        let mut admitted = Vec::new();
        for second in 0..130 {
            if second % 20 == 0 {
                hanging.renew().await.unwrap();
            }
            match client.admit(SLOTS, 1, SLO).await.unwrap() {
                Admission::Shed(_) => *times += 1,
                Admission::Admitted(_) => admitted.push(second),
            }
            sleep(secs(1)).await;
        }
        let tried = admitted.iter().filter(|second| **second > 65).count();
        assert!((1..=2).contains(&tried), "set back {is_back}: admitted in {admitted:?}");
    }
    assert!(shed.iter().all(|times| *times > 50), "{shed:?}");
}
