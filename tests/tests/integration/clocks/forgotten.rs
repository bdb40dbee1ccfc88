//! What is known of a bucket may count no more by the time that the time is known.

use sluice_testkit::Operation;

use super::*;
use crate::world::{requests, settle};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

/// The time is read between the readings and the plan, and meanwhile the process sets another limit for one
/// of the buckets. A plan by the readings that are left would take from one bucket what another is asked for,
/// and leave a slot without its lease.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_forgotten_while_the_time_is_read_is_read_again() {
    for wants in [&[RPM, SLOTS][..], &[SLOTS]] {
        let world = World::embedded().await;
        world.rate(RPM, 10, 60).await;
        world.slots(SLOTS, 4).await;
        let machine = Machine::default();
        let client = machine.client(&world, |settings| settings);
        client.acquire(wants).await.unwrap().granted().unwrap().release().await.unwrap();

        machine.set_clock_by(HOUR);
        let gate = world.dynamo.faults().hold_next(Operation::GetItem);
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.acquire(wants).await }
        });
        gate.reached().await;
        client.ops().remove_bucket(&dimension(wants[0])).await.unwrap();
        let slots = Limit::concurrent(Amount::from_tokens(5), Cost::ONE).unwrap();
        let limit = if wants[0] == SLOTS { slots } else { requests(20, 60) };
        client.ops().apply_limit(&dimension(wants[0]), &limit).await.unwrap();
        gate.open();
        let held = asking.await.unwrap().unwrap().granted().expect("there is room");
        assert_eq!(world.leases().await, 1);
        assert_eq!(world.free(SLOTS).await, if wants[0] == SLOTS { "4" } else { "3" });
        held.release().await.unwrap();
        settle().await;
        assert_eq!(world.leases().await, 0);
    }
}
