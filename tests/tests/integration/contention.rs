//! Many callers at once.

use std::sync::Arc;
use std::time::Duration;

use sluice_sdk::{Client, Outcome, RetryReason};
use sluice_testkit::{EmbeddedDynamo, Fault, Operation};

use crate::world::{TABLE, World, dimension, requests, sdk_config};

/// Callers of one bucket, each acquiring `calls` times; how many were granted, and what the rest was told.
async fn storm(clients: Vec<Client>, name: &'static str, calls: usize) -> (usize, Vec<RetryReason>) {
    let callers: Vec<_> = clients
        .into_iter()
        .map(|client| {
            tokio::spawn(async move {
                let mut refused = Vec::new();
                for _ in 0..calls {
                    match client.acquire(name).await.unwrap() {
                        Outcome::Granted(grant) => drop(grant.release().await.unwrap()),
                        Outcome::RetryIn(retry) => refused.push(retry.reason()),
                    }
                }
                refused
            })
        })
        .collect();
    let mut refused = Vec::new();
    let many = callers.len() * calls;
    for caller in callers {
        refused.extend(caller.await.unwrap());
    }
    (many - refused.len(), refused)
}

/// Slow limits, fast ones that are full again within a round trip, one process and eight: over a socket, in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_with_ample_tokens_are_never_refused() {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let server = dynamo.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    for (name, capacity, window_secs) in
        [("a#minute", 100_000, 60), ("a#second", 1_000_000, 1), ("a#hour", 5_000, 3_600)]
    {
        dynamo.client(TABLE).apply_limit(&dimension(name), &requests(capacity, window_secs)).await.unwrap();
        for processes in [1, 8] {
            let mut clients = Vec::new();
            for _ in 0..processes {
                let settings = Client::builder(TABLE).endpoint_url(server.endpoint_url());
                let client = settings.connect_with(&sdk_config()).clone();
                clients.extend(std::iter::repeat_n(client, 64 / processes));
            }
            let (granted, refused) = storm(clients, name, 20).await;
            assert_eq!((granted, refused), (64 * 20, vec![]), "{name} from {processes} processes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_never_hold_more_slots_than_there_are() {
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
    let world = World::with_slots("a#concurrent", 7).await;
    let (held, peak) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(0)));
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let (client, held, peak) = (world.client(), Arc::clone(&held), Arc::clone(&peak));
            tokio::spawn(async move {
                for _ in 0..20 {
                    if let Outcome::Granted(grant) = client.acquire("a#concurrent").await.unwrap() {
                        peak.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                        tokio::task::yield_now().await;
                        held.fetch_sub(1, SeqCst);
                        grant.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(peak.load(SeqCst) <= 7, "{peak:?}");
    assert_eq!((world.free("a#concurrent").await.as_str(), world.leases().await), ("7", 0));
    let bucket = world.bucket("a#concurrent").await;
    assert!(bucket.admitted().unwrap() >= "7".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn contention_that_outlasts_the_retries_is_not_called_exhausted() {
    let world = World::with_slots("a#concurrent", 5).await;
    world.rate("a#rpm", 5, 60).await;
    let faults = world.dynamo.faults();
    faults.always(Operation::TransactWriteItems, Fault::cancelled(&["TransactionConflict", "None"]));
    faults.always(Operation::UpdateItem, Fault::conflict());
    for name in ["a#concurrent", "a#rpm"] {
        assert_eq!(crate::world::refusal(&world.client(), name).await.reason(), RetryReason::Contended, "{name}");
    }
    faults.always(Operation::UpdateItem, Fault::throttled());
    assert_eq!(crate::world::refusal(&world.client(), "a#rpm").await.reason(), RetryReason::Contended);
    faults.clear();
    assert_eq!((world.free("a#concurrent").await.as_str(), world.level("a#rpm").await.as_str()), ("5", "5"));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_passes_is_waited_out() {
    let world = World::with_slots("a#concurrent", 5).await;
    for _ in 0..2 {
        world.dynamo.faults().next(Operation::TransactWriteItems, Fault::cancelled(&["None", "TransactionConflict"]));
    }
    let before = tokio::time::Instant::now();
    let _held = crate::world::take(&world.client(), "a#concurrent").await;
    assert!(before.elapsed() <= Duration::from_millis(25 + 50), "25 ms base, doubled");
}
