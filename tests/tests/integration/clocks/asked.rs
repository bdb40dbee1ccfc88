//! How a process asks for the time that it does not know.

use std::sync::atomic::AtomicBool;

use sluice_core::SweepLog;
use sluice_core::schema::SWEEPS_KEY;
use sluice_ops::SweepOptions;
use sluice_sdk::{Basis, OnUnavailable};
use sluice_testkit::{Fault, Operation};
use tokio::task::JoinSet;

use super::*;
use crate::load::Item;
use crate::world::{begin, take};

/// So many buckets that a client has taken from, whose machine's clock is then set: it does not know the
/// time.
async fn with_clock_set(buckets: usize) -> (World, Client, Vec<String>) {
    let (world, machine) = (World::embedded().await, Machine::default());
    let names: Vec<String> = (0..buckets).map(|at| format!("openai#rpm{at}")).collect();
    for name in &names {
        rate(&world, name, 60, "1").await;
    }
    // The callers wait here for each other, for longer than they usually wait for an answer.
    let client = machine.client(&world, |settings| settings.answer_within(Duration::from_secs(60)));
    for name in &names {
        drop(take(&client, name).await);
    }
    machine.set_clock_by(HOUR);
    (world, client, names)
}

/// A time server was wrong, and the clocks of all machines are set at once: each caller would read the table.
#[tokio::test(start_paused = true)]
async fn callers_that_find_the_clock_set_share_one_read() {
    let (world, client, names) = with_clock_set(20).await;
    let slow =
        |operation| (operation == Operation::GetItem).then_some(Fault::DelayReply(Duration::from_millis(20)));
    world.dynamo.faults().draw(move |call| slow(call.operation));
    world.dynamo.meter().reset();
    let mut callers = JoinSet::new();
    for name in names {
        let client = client.clone();
        callers.spawn(async move { take(&client, &name).await });
    }
    assert_eq!(callers.join_all().await.len(), 20);
    assert_eq!(world.dynamo.meter().of(Operation::GetItem).requests, 1);
}

/// The one that reads may leave. Those who wait for its read do not wait for ever.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_it_asks_for_the_time_keeps_nobody() {
    let (world, client, _) = with_clock_set(2).await;
    let (is_first, hangs) = (AtomicBool::new(true), Fault::Hang);
    world.dynamo.faults().draw(move |call| {
        let is_read = call.operation == Operation::GetItem;
        (is_read && is_first.swap(false, Ordering::SeqCst)).then(|| hangs.clone())
    });
    let leaves = client.clone();
    let leaves = tokio::spawn(async move { leaves.cool_down("openai#rpm0", Duration::from_secs(1)).await });
    sleep(Duration::from_millis(100)).await;
    leaves.abort();
    let began = Instant::now();
    drop(take(&client, "openai#rpm1").await);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// The one that reads may be polled no more, and not dropped either: a future that its program keeps and does
/// not drive.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_polled_while_it_asks_for_the_time_keeps_nobody_longer_than_a_request() {
    let (world, client, _) = with_clock_set(2).await;
    world.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(5))));
    let _kept = begin(client.acquire("openai#rpm0")).await;
    let began = Instant::now();
    drop(take(&client, "openai#rpm1").await);
    assert!(began.elapsed() < Duration::from_millis(4_300), "{:?}", began.elapsed());
}

/// Each of them waits in vain for the same reader, and they share the next read.
#[tokio::test(start_paused = true)]
async fn all_who_waited_for_a_caller_that_is_not_polled_share_another_read() {
    let (world, client, names) = with_clock_set(20).await;
    world.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(5))));
    let _kept = begin(client.acquire("openai#rpm0")).await;
    world.dynamo.meter().reset();
    let mut callers = JoinSet::new();
    for name in names.into_iter().skip(1) {
        let client = client.clone();
        callers.spawn(async move { take(&client, &name).await });
    }
    assert_eq!(callers.join_all().await.len(), 19);
    assert_eq!(world.dynamo.meter().of(Operation::GetItem).requests, 1);
}

/// Whatever it shows: two programs set it, each to its own time. Its steady clock goes on.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_at_every_reading_keeps_nobody_from_the_table() {
    for step in [-SECOND, 400_000, -HOUR] {
        let world = World::embedded().await;
        rate(&world, "openai#rpm", 10, "1").await;
        let (time, steady, readings) =
            (world.dynamo.clock().clone(), world.dynamo.clock().clone(), AtomicI64::new(0));
        let now = move || {
            let off = step * readings.fetch_add(1, Ordering::SeqCst);
            Timestamp::from_micros(time.now().micros().saturating_add(off).max(0))
        };
        let clock = Clock::from_fn(now)
            .steady_by(move || Duration::from_micros(steady.now().micros().unsigned_abs()));
        let client =
            world.client_with(|settings| settings.clock(clock.clone()).on_unavailable(OnUnavailable::Allow));
        for call in 0..12 {
            let outcome = client.acquire("openai#rpm").await.unwrap();
            let granted = outcome.granted();
            assert_eq!(granted.is_some(), call < 10, "{step}: call {call}");
            assert!(granted.is_none_or(|grant| grant.basis() == Basis::Table), "{step}: call {call}");
        }
    }
}

/// The machine is stopped for an hour after one of the sweep's requests, whichever it is. Those of the line
/// itself are the last two.
#[tokio::test(start_paused = true)]
async fn the_line_of_a_sweep_is_of_the_tables_time() {
    for stopped_after in 1.. {
        let (world, machine) = (World::embedded().await, Machine::default());
        // Its load is written down after the sweep has asked for the time, the last but for the line.
        world.slots("openai#concurrent", 9).await;
        let client = machine.client(&world, |settings| settings);
        client.ops().sweep(SweepOptions::default()).await.unwrap();
        let _held = take(&world.client(), "openai#concurrent").await;
        let (time, stood, answers) =
            (world.dynamo.clock().clone(), Arc::clone(&machine.stood), Arc::default());
        let counted: Arc<AtomicI64> = Arc::clone(&answers);
        world.dynamo.faults().watch(move |_| {
            if counted.fetch_add(1, Ordering::SeqCst) + 1 == stopped_after {
                time.advance(Duration::from_secs(3_600));
                stood.fetch_add(HOUR, Ordering::SeqCst);
            }
        });
        let mut options = SweepOptions::default();
        options.segments = 1;
        client.ops().sweep(options).await.unwrap();
        if stopped_after > answers.load(Ordering::SeqCst) - 2 {
            assert!(stopped_after > 3, "{stopped_after}: the directory, the scan and the load at least");
            break;
        }
        let log = SweepLog::read(&Item(world.row(SWEEPS_KEY).await.unwrap()));
        let last = log.records().next().unwrap().at;
        let off = world.dynamo.clock().now().micros().abs_diff(last.micros());
        assert!(off < 2_000_000, "stopped after {stopped_after}: {last}");
    }
}
