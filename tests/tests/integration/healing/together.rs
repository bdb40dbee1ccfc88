//! One scan of the table serves all of its buckets.

use super::*;

const BUCKETS: usize = 8;

fn name(bucket: usize) -> String {
    format!("vendor{bucket}#concurrent")
}

/// Buckets of one slot, and one more.
async fn buckets(kind: Kind) -> World {
    let world = World::embedded().await.with(kind);
    for bucket in 0..BUCKETS {
        world.slots(&name(bucket), 1).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn eight_full_buckets_cost_one_scan_and_not_eight() {
    for processes in [1, BUCKETS] {
        let world = buckets(Kind::Rows).await;
        let holder = world.client_with(|settings| settings.lease_ttl(Duration::from_secs(3_600)));
        for bucket in 0..BUCKETS {
            std::mem::forget(take(&holder, &name(bucket)).await);
        }
        let clients: Vec<Client> = (0..processes).map(|_| world.client()).collect();
        world.dynamo.meter().reset();
        let (began, spacings) = (Instant::now(), 5);
        while began.elapsed() < HEAL_EVERY * spacings - Duration::from_secs(1) {
            for bucket in 0..BUCKETS {
                refusal(&clients[bucket % processes], &name(bucket)).await;
            }
            sleep(Duration::from_millis(500)).await;
        }
        let scans = scans(&world);
        assert!((1..=u64::from(spacings)).contains(&scans), "{scans} scans by {processes} processes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_scan_finds_of_other_buckets_is_given_back_too() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = buckets(kind).await;
        world.slots(SLOTS, 1).await;
        let crashed = world.client();
        for bucket in 0..BUCKETS {
            std::mem::forget(take(&crashed, &name(bucket)).await);
        }
        // Lease rows, so that the bucket that asks has the table scanned.
        let rows = world.client_with(|settings| settings.leases(Leases::Concurrent));
        std::mem::forget(take(&rows, SLOTS).await);
        world.pass_lease();
        world.dynamo.meter().reset();
        let asks = world.client_with(|settings| settings.leases(Leases::Concurrent));
        refusal(&asks, SLOTS).await;
        settle().await;
        assert_eq!(scans(&world), 1);
        for bucket in 0..BUCKETS {
            assert_eq!(world.free(&name(bucket)).await, "1", "{kind:?}, {bucket}");
        }
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0), "{kind:?}");
    }
}

/// Nobody waits for a rate bucket's lease. Left to the reconciler, it would cost a reading of its bucket with
/// every scan.
#[tokio::test(start_paused = true)]
async fn leases_that_hold_no_slot_are_deleted_too() {
    let world = World::with_slots(SLOTS, 1).await;
    world.rate("openai#rpm", 10, 60).await;
    let all = world.client_with(|settings| settings.leases(Leases::All));
    std::mem::forget(take(&all, "openai#rpm").await);
    crash(&world, 1).await;
    world.pass_lease();
    let client = world.client();
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

#[tokio::test(start_paused = true)]
async fn a_scan_wakes_those_who_wait_for_other_buckets() {
    let world = buckets(Kind::Rows).await;
    let (crashed, client) = (world.client(), world.client());
    std::mem::forget(take(&crashed, &name(0)).await);
    std::mem::forget(take(&crashed, &name(1)).await);
    world.pass_lease();
    let slot = client.slot(name(1).as_str()).timeout(Duration::from_secs(30));
    let waits = tokio::spawn(slot.run(async |_| Ok::<_, LimitError>(())));
    refusal(&client, &name(0)).await;
    let began = Instant::now();
    waits.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
