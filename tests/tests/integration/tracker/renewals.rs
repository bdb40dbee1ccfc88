//! Renewals of the leases of the grants that a tracker holds.

use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_sdk::Released;
use sluice_sdk::reservations::ReservationConfig;
use sluice_testkit::{Fault, Operation};
use tokio::time::sleep;

use super::{SLOTS, hold, tracker};
use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, settle};

#[tokio::test(start_paused = true)]
async fn the_task_renews_the_leases_of_calls_that_outlast_them_until_they_are_stale() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::with_slots(SLOTS, 2).await.with(kind);
        let client = world.client();
        let (tracker, other) = (client.reservations(ReservationConfig::default()), tracker(&client, 10));
        tracker.start();
        hold(&client, &tracker, &["long"]).await;
        hold(&client, &other, &["nobody renews it"]).await;
        world.dynamo.meter().reset();
        sleep(LEASE_TTL + Duration::from_secs(10)).await;
        assert_eq!(
            world.dynamo.meter().of(Operation::UpdateItem).requests,
            2,
            "each half of its time, {kind:?}"
        );
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
        while tracker.reservation_count() == 1 {
            assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
            sleep(Duration::from_secs(15)).await;
            assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0);
        }
        settle().await;
        assert_eq!((tracker.stale_report().given_back, world.free(SLOTS).await.as_str()), (1, "2"));
        tracker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_is_found_so_once_and_a_renewal_that_fails_is_made_again() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::with_slots(SLOTS, 2).await.with(kind);
        let client = world.client();
        let tracker = client.reservations(ReservationConfig::default());
        hold(&client, &tracker, &["frozen"]).await;
        world.pass_lease();
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
        hold(&client, &tracker, &["new"]).await;
        world.dynamo.meter().reset();
        tracker.start();
        sleep(LEASE_TTL / 4).await;
        assert_eq!(world.dynamo.meter().reset().requests, 2, "a renewal, and the load row is told, {kind:?}");
        world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
        sleep(LEASE_TTL / 2).await;
        world.dynamo.faults().clear();
        sleep(LEASE_TTL / 2).await;
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0, "{kind:?}");
        let release = async |request| tracker.take(request, SLOTS).unwrap().grant.release().await.unwrap();
        assert_eq!(
            (release("frozen").await, release("new").await),
            (Released::LeaseGone, Released::GivenBack)
        );
        assert_eq!(world.free(SLOTS).await, "2");
    }
}
