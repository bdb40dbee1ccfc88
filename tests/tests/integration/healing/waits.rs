//! What callers are told to wait, and when a process heals no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sluice_sdk::Clock;

use super::*;

/// What a full bucket tells to wait follows from the rate at which its slots came free.
#[tokio::test(start_paused = true)]
async fn a_full_bucket_tells_the_wait_by_its_measured_rate() {
    let world = World::with_slots(SLOTS, 4).await;
    let client = world.client();
    let _held = (
        take(&client, SLOTS).await,
        take(&client, SLOTS).await,
        take(&client, SLOTS).await,
        take(&client, SLOTS).await,
    );
    assert_eq!(refusal(&client, SLOTS).await.wait(), Duration::from_secs(1), "nothing is known yet");
    for (rate, wait) in [("0.5", 2_000), ("100", 50), ("0.001", 30_000)] {
        load_row(&world, rate, 4).await;
        sleep(HEAL_EVERY + Duration::from_secs(1)).await;
        // One refusal has the row read; the next goes by it.
        refusal(&client, SLOTS).await;
        settle().await;
        let told = refusal(&client, SLOTS).await.wait();
        assert_eq!(told.as_millis(), wait, "{rate} a second");
    }
}

/// A caller that stood in line and is refused in the end gets its wait from the rate too, and is counted
/// once. The wait of a caller that does not join the line includes those in it.
#[tokio::test(start_paused = true)]
async fn who_stands_in_line_is_counted_once() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        let client = world.client_with(|settings| settings.leases(kind.leases()));
        let _held = take(&client, SLOTS).await;
        load_row(&world, "0.5", 1).await;
        refusal(&client, SLOTS).await;
        settle().await;
        let in_line =
            client.slot(SLOTS).max_wait(Duration::from_secs(1)).run(async |_| Ok::<_, LimitError>(()));
        let (in_line, beside) = tokio::join!(in_line, async {
            sleep(Duration::from_millis(500)).await;
            refusal(&client, SLOTS).await.wait()
        });
        assert_eq!(beside, Duration::from_secs(4), "{kind:?}: two slots, one each two seconds");
        match in_line {
            Err(LimitError::Refused(retry)) => assert_eq!(retry.wait(), Duration::from_secs(2), "{kind:?}"),
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

/// A slot that gave up in line counts as wanted for as long as its caller was told to wait: what a crashed
/// holder had is there for it.
#[tokio::test(start_paused = true)]
async fn who_waited_in_vain_finds_the_slot_when_he_comes_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        let client = world.client_with(|settings| settings.leases(kind.leases()));
        std::mem::forget(take(&client, SLOTS).await);
        load_row(&world, "0.04", 1).await;
        refusal(&client, SLOTS).await;
        // The lease ends in 60 s; he is told 25 s at 45 s, and comes back at 70 s.
        sleep(Duration::from_secs(40)).await;
        let slot = client.slot(SLOTS).max_wait(Duration::from_secs(5)).run(async |_| Ok::<_, LimitError>(()));
        let Err(LimitError::Refused(retry)) = slot.await else { panic!("{kind:?}: not refused") };
        assert!(retry.wait() >= Duration::from_secs(20), "{kind:?}: {retry:?}");
        sleep(retry.wait()).await;
        if kind == Kind::Rows {
            assert_eq!(world.free(SLOTS).await, "1");
        }
        take(&client, SLOTS).await.release().await.unwrap();
    }
}

/// Whoever marked it may be gone by the next time: nobody else may then wait for twice as long.
#[tokio::test(start_paused = true)]
async fn who_lost_its_turn_tries_again_once_the_others_time_is_over() {
    let world = World::with_slots(SLOTS, 1).await;
    let crashed_at = Instant::now();
    crash(&world, 1).await;
    // A second before the lease has ended for every clock.
    sleep(Duration::from_secs(62)).await;
    let first = world.client();
    refusal(&first, SLOTS).await;
    settle().await;
    drop(first);
    polled_until_granted(&world.client()).await;
    assert!(crashed_at.elapsed() <= BACK_WITHIN, "{:?}", crashed_at.elapsed());
}

/// Writes what a sweep would have measured.
async fn load_row(world: &World, rate: &str, pending: i32) {
    let now: Timestamp = world.dynamo.clock().now();
    let (amount, now) = (Amount::from_tokens(pending).to_string(), now.to_string());
    let fields = [
        ("pending", amount.as_str()),
        ("taken", amount.as_str()),
        ("admitted", amount.as_str()),
        ("drain_rate", rate),
        ("measured_at", now.as_str()),
        ("sequence", "7"),
        ("pending_since", now.as_str()),
    ];
    let row = fields.iter().map(|(name, value)| ((*name).to_owned(), number(value)));
    let key = ("vendor_dimension".to_owned(), text(&Load::key(&dimension(SLOTS))));
    world.put(row.chain([key]).collect()).await;
}

/// Another process has just begun its turn, and the measurement of the bucket cannot be read: neither is
/// asked for more often for that.
#[tokio::test(start_paused = true)]
async fn a_load_row_that_cannot_be_read_keeps_tries_apart_all_the_same() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let _held = take(&client, SLOTS).await;
    let now = world.dynamo.clock().now().to_string();
    let key = text(&Load::key(&dimension(SLOTS)));
    let load = [("vendor_dimension", key), ("measured_at", number(&now)), ("pending", text("x"))];
    let mark = [("vendor_dimension", text(HEAL_KEY)), (HEALED_AT, number(&now))];
    world.put(load.map(|(name, value)| (name.to_owned(), value)).into()).await;
    world.put(mark.map(|(name, value)| (name.to_owned(), value)).into()).await;
    refusal(&client, SLOTS).await;
    settle().await;
    world.dynamo.meter().reset();
    sleep(HEAL_EVERY - Duration::from_secs(1)).await;
    assert_eq!(world.dynamo.meter().total().requests, 0, "one try was told that it is another's turn");
}

/// Set back by an hour, it does not take those for asking who asked an hour from now.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_keep_a_process_healing() {
    let world = World::with_slots(SLOTS, 1).await;
    let ahead = Arc::new(AtomicI64::new(3_600_000_000));
    let (clock, offset) = (world.dynamo.clock().clone(), Arc::clone(&ahead));
    let now = move || Timestamp::from_micros(clock.now().micros() + offset.load(Ordering::Relaxed));
    let client = world.client_with(|settings| settings.clock(Clock::from_fn(now.clone())));
    let _held = take(&client, SLOTS).await;
    refusal(&client, SLOTS).await;
    settle().await;
    ahead.store(0, Ordering::Relaxed);
    sleep(HEAL_EVERY * 3).await;
    world.dynamo.meter().reset();
    sleep(HEAL_EVERY * 30).await;
    assert_eq!(world.dynamo.meter().total().requests, 0, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_ends_its_healing() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let _held = take(&world.client(), SLOTS).await;
    {
        let client = world.client();
        let waiting = begin(client.slot(SLOTS).run(async |_| Ok::<_, LimitError>(()))).await;
        sleep(Duration::from_secs(1)).await;
        drop(waiting);
    }
    settle().await;
    world.dynamo.meter().reset();
    sleep(HEAL_EVERY * 3).await;
    assert_eq!(scans(&world), 0);
}
