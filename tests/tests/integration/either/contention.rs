//! Many callers of the same slots at once.

use std::sync::Arc;
use std::time::Duration;

use sluice_sdk::{Outcome, RetryReason};
use sluice_testkit::{Fault, Operation};

use super::KIND;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_never_hold_more_slots_than_there_are() {
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
    let world = KIND.with_slots("a#concurrent", 7).await;
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
    let world = KIND.with_slots("a#concurrent", 5).await;
    world.rate("a#rpm", 5, 60).await;
    let faults = world.dynamo.faults();
    faults.always(KIND.write(), KIND.conflict());
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
    let world = KIND.with_slots("a#concurrent", 5).await;
    for _ in 0..2 {
        world.dynamo.faults().next(KIND.write(), KIND.conflict());
    }
    let before = tokio::time::Instant::now();
    let _held = crate::world::take(&world.client(), "a#concurrent").await;
    assert!(before.elapsed() <= Duration::from_millis(25 + 50), "25 ms base, doubled");
}
