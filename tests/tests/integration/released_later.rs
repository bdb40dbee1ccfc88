//! A release that meets conflicts for longer than its caller waits goes on until it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluice_sdk::{Client, ReleaseError};
use sluice_testkit::Operation;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, take};

const SLOTS: &str = "elevenlabs#concurrent";

/// A caller whose release met a conflict in each try, and has its answer.
struct GivenUp {
    world: World,
    client: Client,
    meets_conflicts: Arc<AtomicBool>,
    /// Transactions since.
    sent: Arc<AtomicU64>,
}

impl GivenUp {
    async fn new() -> Self {
        Self::after_renewals(0).await
    }

    /// A caller that held its slot for so many eighths of its lease, renewing it.
    async fn after_renewals(eighths: u32) -> Self {
        let world = Kind::Rows.with_slots(SLOTS, 5).await;
        let client = world.client_with(|settings| settings.renew_leases(eighths > 0));
        let held = take(&client, SLOTS).await;
        for _ in 0..eighths {
            sleep(LEASE_TTL / 8).await;
        }
        let (meets_conflicts, sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let (conflicts, count) = (Arc::clone(&meets_conflicts), Arc::clone(&sent));
        world.dynamo.faults().draw(move |call| {
            let is_transaction = call.operation == Operation::TransactWriteItems;
            count.fetch_add(u64::from(is_transaction), Ordering::SeqCst);
            (is_transaction && conflicts.load(Ordering::SeqCst)).then(|| Kind::Rows.conflict())
        });
        let began = Instant::now();
        let released = held.release().await;
        assert!(matches!(released, Err(ReleaseError::Contended { .. })), "{released:?}");
        assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
        assert_eq!(world.free(SLOTS).await, "4");
        sent.store(0, Ordering::SeqCst);
        Self { world, client, meets_conflicts, sent }
    }

    async fn sent_in(&self, time: Duration) -> u64 {
        let before = self.sent.load(Ordering::SeqCst);
        sleep(time).await;
        self.sent.load(Ordering::SeqCst) - before
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_only_met_conflicts_is_done_a_second_after_they_end() {
    let given_up = GivenUp::new().await;
    assert!(given_up.sent_in(Duration::from_secs(20)).await > 0);
    given_up.meets_conflicts.store(false, Ordering::SeqCst);
    assert_eq!(given_up.sent_in(Duration::from_millis(1_001)).await, 1);
    assert_eq!((given_up.world.free(SLOTS).await.as_str(), given_up.world.leases().await), ("5", 0));
    assert_eq!(given_up.sent_in(LEASE_TTL).await, 0, "it is done");
}

/// A call took longer than the lease that it began with.
#[tokio::test(start_paused = true)]
async fn a_release_goes_on_after_the_first_end_of_a_lease_that_was_renewed() {
    let given_up = GivenUp::after_renewals(12).await;
    given_up.meets_conflicts.store(false, Ordering::SeqCst);
    assert_eq!(given_up.sent_in(Duration::from_millis(1_001)).await, 1);
    assert_eq!((given_up.world.free(SLOTS).await.as_str(), given_up.world.leases().await), ("5", 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_until_its_lease_ends_and_no_longer() {
    let given_up = GivenUp::new().await;
    assert!(given_up.sent_in(Duration::from_secs(10)).await > 0);
    given_up.world.pass_lease();
    // What is under way ends.
    sleep(Duration::from_secs(6)).await;
    assert_eq!(given_up.sent_in(Duration::from_secs(10)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_client_ends_its_releases() {
    let given_up = GivenUp::new().await;
    let began = Instant::now();
    given_up.client.close(Duration::from_secs(10)).await;
    assert!(began.elapsed() < Duration::from_secs(1), "in the pause: {:?}", began.elapsed());
    assert_eq!(given_up.sent_in(Duration::from_secs(10)).await, 0);
}
