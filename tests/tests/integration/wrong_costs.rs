//! Lease rows whose cost is not what they took: an edit by hand, or another client.

use std::time::Duration;

use sluice_core::schema::COST;
use sluice_sdk::{Grant, Released};
use sluice_testkit::{Fault, Operation};
use tokio::time::sleep;

use crate::recount::{SLOTS, known_to_sweeps, sweep};
use crate::world::{World, number, take};

/// Four slots: two are held for hours, and one by a lease that then says that it holds `says`.
async fn with_wrong(says: &str) -> (World, Grant, [Grant; 2]) {
    let world = known_to_sweeps(4).await;
    let wrong = take(&world.client(), SLOTS).await;
    let key = world.client().ops().leases().await.unwrap()[0].key.clone();
    let others = world.client_with(|settings| settings.lease_ttl(Duration::from_secs(36_000)));
    let others = [take(&others, SLOTS).await, take(&others, SLOTS).await];
    let mut row = world.row(&key).await.unwrap();
    row.insert(COST.to_owned(), number(says));
    world.put(row).await;
    (world, wrong, others)
}

#[tokio::test(start_paused = true)]
async fn a_holder_gives_back_what_it_took_whatever_its_lease_row_says() {
    for says in ["2", "3", "100"] {
        let (world, wrong, _others) = with_wrong(says).await;
        assert_eq!(wrong.release().await.unwrap(), Released::GivenBack);
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 2), "{says}");
    }
}

/// The reply to its take is lost, the row is edited before it asks again, and DynamoDB does not know its
/// token any more.
#[tokio::test(start_paused = true)]
async fn a_holder_that_finds_its_lease_in_the_table_gives_back_what_it_took() {
    for says in ["2", "100"] {
        let world = known_to_sweeps(4).await;
        let client = world.client();
        let _other = take(&client, SLOTS).await;
        for fault in [Fault::DelayReply(Duration::from_secs(2)), Fault::NewToken] {
            world.dynamo.faults().next(Operation::TransactWriteItems, fault);
        }
        let taking = tokio::spawn(async move { take(&client, SLOTS).await });
        sleep(Duration::from_millis(500)).await;
        for lease in world.client().ops().leases().await.unwrap() {
            let mut row = world.row(&lease.key).await.unwrap();
            row.insert(COST.to_owned(), number(says));
            world.put(row).await;
        }
        assert_eq!(taking.await.unwrap().release().await.unwrap(), Released::GivenBack);
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 1), "{says}");
    }
}

/// What others hold stands in their rows, and no condition of one transaction sums them up.
#[tokio::test(start_paused = true)]
async fn slots_that_an_ended_lease_row_gave_back_too_many_are_taken_away_by_two_sweeps() {
    for says in ["2", "3", "100"] {
        let (world, wrong, others) = with_wrong(says).await;
        std::mem::forget(wrong);
        assert_eq!(sweep(&world).await.expired, 1, "{says}");
        let (free, most) = (world.free(SLOTS).await, if says == "2" { "3" } else { "4" });
        assert_eq!(free, most, "{says}: what the row says, as far as there is room");
        sweep(&world).await;
        sweep(&world).await;
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 2), "{says}");
        for other in others {
            assert_eq!(other.release().await.unwrap(), Released::GivenBack);
        }
        assert_eq!(world.free(SLOTS).await, "4", "{says}");
    }
}
