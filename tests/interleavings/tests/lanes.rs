//! What holds in every order of tasks that was drawn. A task that is never run again is a deadlock, which the
//! checker reports with the schedule that led to it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use shuttle::rand::Rng as _;
use shuttle::sync::Arc;
use sluice_interleavings::slots::{Ask, Bucket};

/// Runs for each promise: an order of tasks is drawn for each.
const RUNS: usize = 3_000;
/// Changes of priority in a run of the second scheduler, which finds what few changes in the right places
/// take.
const DEPTH: usize = 3;

fn check(run: fn()) {
    shuttle::check_random(run, RUNS);
    shuttle::check_pct(run, RUNS, DEPTH);
}

fn on_tasks(tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    let tasks: Vec<_> = tasks.into_iter().map(shuttle::future::spawn).collect();
    shuttle::future::block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Takes a slot, and gives it back.
fn caller(bucket: &Arc<Bucket>, who: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let bucket = Arc::clone(bucket);
    Box::pin(async move {
        let granted = bucket.take(who).await;
        shuttle::future::yield_now().await;
        bucket.give(granted).await;
    })
}

/// Is polled some times, and dropped.
fn leaver(bucket: &Arc<Bucket>, who: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let bucket = Arc::clone(bucket);
    Box::pin(async move {
        let mut taking = Box::pin(bucket.take(who));
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..4) {
            let is_over =
                std::future::poll_fn(|context| Poll::Ready(taking.as_mut().poll(context).is_ready())).await;
            if is_over {
                return;
            }
            shuttle::future::yield_now().await;
        }
    })
}

#[test]
fn whoever_stays_in_line_is_answered() {
    check(|| {
        let bucket = Bucket::new(1);
        on_tasks((0..3).map(|who| caller(&bucket, who)).collect());
        assert_eq!(bucket.free(), 1);
    });
}

#[test]
fn callers_that_are_dropped_hold_nobody_up_and_lose_nothing() {
    check(|| {
        let bucket = Bucket::new(1);
        on_tasks(vec![leaver(&bucket, 0), caller(&bucket, 1), leaver(&bucket, 2), caller(&bucket, 3)]);
        // What a service grants after its caller left is free again.
        shuttle::future::block_on(async {
            let last = bucket.take(4).await;
            bucket.give(last).await;
        });
        assert_eq!(bucket.free(), 1);
    });
}

/// A pause ends by a wake-up alone here: one that is held through it is a deadlock, since it gives what the
/// other waits for.
#[test]
fn who_does_not_wait_is_not_held_through_a_pause_of_those_who_do() {
    check(|| {
        let bucket = Bucket::new(0);
        let (waits, tries) = (caller(&bucket, 0), Arc::clone(&bucket));
        let tries = Box::pin(async move {
            for _ in 0..2 {
                assert!(tries.try_take().await.is_none());
            }
            while tries.join(Ask::Give).answer().await.is_none() {}
        });
        on_tasks(vec![waits, tries]);
        assert_eq!(bucket.free(), 1);
    });
}

#[test]
fn callers_are_served_in_the_order_in_which_they_came() {
    check(|| {
        let bucket = Bucket::new(0);
        let places: Vec<_> = (0..3).map(|who| bucket.join(Ask::Take(who))).collect();
        let waiting = places.into_iter().map(|handle| {
            let bucket = Arc::clone(&bucket);
            Box::pin(async move {
                let granted = handle.answer().await.unwrap();
                bucket.give(granted).await;
            }) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        let mut tasks: Vec<_> = waiting.collect();
        let giver = Arc::clone(&bucket);
        tasks.push(Box::pin(async move { while giver.join(Ask::Give).answer().await.is_none() {} }));
        on_tasks(tasks);
        assert_eq!((bucket.order(), bucket.free()), (vec![0, 1, 2], 1));
    });
}

#[test]
fn a_runtime_that_ends_leaves_nobody_without_an_answer() {
    // Two that ask again may end each other's service for as long as a scheduler lets nobody through: the
    // random one is fair.
    let run = || {
        let bucket = Bucket::new(1);
        let mut tasks: Vec<_> = (0..3).map(|who| caller(&bucket, who)).collect();
        tasks.push(Box::pin(async {
            shuttle::future::yield_now().await;
            Bucket::runtime_ends();
        }));
        on_tasks(tasks);
        assert_eq!(bucket.free(), 1);
    };
    shuttle::check_random(run, 2 * RUNS);
}

/// The checker is worth its name.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_that_is_lost_is_found() {
    check(|| {
        let bucket = Bucket::new(1);
        Bucket::lose_wake_ups();
        on_tasks((0..3).map(|who| caller(&bucket, who)).collect());
    });
}
