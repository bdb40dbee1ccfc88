//! No slot of a live holder goes to another, whatever a machine believes of the time.

use sluice_ops::SweepOptions;
use sluice_sdk::Leases;
use sluice_testkit::{Fault, Operation};

use super::*;
use crate::world::settle;

const SLOTS: &str = "elevenlabs#concurrent";

/// How long a holder holds: several lease times.
const HELD_FOR: Duration = Duration::from_secs(150);

fn offsets() -> [i64; 6] {
    [3 * SECOND, 70 * SECOND, 240 * SECOND, 24 * HOUR, -70 * SECOND, -24 * HOUR]
}

fn off_by(world: &World, off: i64, leases: Leases) -> Client {
    let machine = Machine::default();
    machine.set_clock_by(off);
    machine.client(world, |settings| settings.leases(leases))
}

/// Holds the only slot, which is renewed; true if it kept it.
fn holder(client: Client) -> tokio::task::JoinHandle<bool> {
    tokio::spawn(async move {
        let held = client.slot(SLOTS).run(async |slot| {
            sleep(HELD_FOR).await;
            Ok::<_, sluice_sdk::LimitError>(!slot.is_lease_lost())
        });
        held.await.unwrap()
    })
}

/// Asks for the slot, and sweeps, as long as it is held.
async fn intrudes(client: &Client) {
    let began = Instant::now();
    while began.elapsed() < HELD_FOR - Duration::from_secs(2) {
        let outcome = client.acquire(SLOTS).await.unwrap();
        assert!(outcome.granted().is_none(), "granted after {:?}", began.elapsed());
        client.ops().sweep(SweepOptions::default()).await.unwrap();
        sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_slot_is_never_given_to_another_by_a_clock_that_is_wrong() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        for off in offsets() {
            let world = World::embedded().await.distant();
            world.slots(SLOTS, 1).await;
            let holder = holder(world.client_with(|settings| settings.leases(leases)));
            sleep(Duration::from_secs(1)).await;
            intrudes(&off_by(&world, off, leases)).await;
            assert!(holder.await.unwrap(), "{leases:?}, off by {off}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_clock_is_wrong_keeps_its_slot() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        for off in offsets() {
            let world = World::embedded().await.distant();
            world.slots(SLOTS, 1).await;
            let holder = holder(off_by(&world, off, leases));
            sleep(Duration::from_secs(1)).await;
            intrudes(&world.client_with(|settings| settings.leases(leases))).await;
            assert!(holder.await.unwrap(), "{leases:?}, off by {off}");
        }
    }
}

/// A clock that is set forward and back while it asks, sweeps and holds.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_again_and_again_frees_no_live_slot_and_loses_none() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        let world = World::embedded().await.distant();
        world.slots(SLOTS, 1).await;
        let (holds, asks) = (Machine::default(), Machine::default());
        let holder = holder(holds.client(&world, |settings| settings.leases(leases)));
        sleep(Duration::from_secs(1)).await;
        let asking = asks.client(&world, |settings| settings.leases(leases));
        let setting = tokio::spawn(async move {
            for jump in [HOUR, -2 * HOUR, 70 * SECOND, -SECOND, 24 * HOUR, -24 * HOUR].into_iter().cycle() {
                sleep(Duration::from_millis(3_370)).await;
                holds.set_clock_by(-jump);
                asks.set_clock_by(jump);
            }
        });
        intrudes(&asking).await;
        assert!(holder.await.unwrap(), "{leases:?}");
        setting.abort();
    }
}

/// The machine is stopped while the write of a take is under way: its reply comes after the lease has ended.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_while_its_machine_was_stopped_is_not_granted() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        let world = World::embedded().await;
        world.slots(SLOTS, 2).await;
        let machine = Machine::default();
        let client = machine.client(&world, |settings| settings.leases(leases));
        client.acquire(SLOTS).await.unwrap().granted().unwrap().release().await.unwrap();
        let operation =
            if leases == Leases::Inline { Operation::UpdateItem } else { Operation::TransactWriteItems };
        world.dynamo.faults().next(operation, Fault::DelayReply(Duration::from_millis(200)));
        let taking = tokio::spawn(async move { client.acquire(SLOTS).await.unwrap().granted() });
        sleep(Duration::from_millis(100)).await;
        machine.stop(&world, Duration::from_secs(600));
        let grant = taking.await.unwrap().expect("granted anew");
        settle().await;
        assert_eq!(world.leases().await, 1, "{leases:?}");
        let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!(report.restored, 0, "{leases:?}: the lease that was granted had ended");
        grant.release().await.unwrap();
    }
}

/// A process that resumes from a snapshot finds the time long past; its next lease must live.
#[tokio::test(start_paused = true)]
async fn a_process_that_resumes_from_a_snapshot_writes_no_lease_that_has_ended() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        let machine = Machine::default();
        let client = machine.client(&world, |settings| settings.leases(leases));
        client.acquire(SLOTS).await.unwrap().granted().unwrap().release().await.unwrap();
        // Its clock still shows the time of the snapshot.
        world.pass(Duration::from_secs(1));
        machine.set_clock_by(-HOUR);
        let grant = client.acquire(SLOTS).await.unwrap().granted().unwrap();
        let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!(report.restored, 0, "{leases:?}: the lease had ended when it was written");
        grant.release().await.unwrap();
    }
}
