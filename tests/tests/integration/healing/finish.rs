//! Programs that end after a refusal: a client that waits for what it began.

use tokio::runtime::{Builder, Runtime};

use super::*;

/// As documented.
const LONGEST: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_program_that_ends_after_its_refusal_has_healed_the_bucket() {
    for (waits, free) in [(false, "0"), (true, "1")] {
        let table = runtime();
        let world = table.block_on(async {
            let world = World::with_slots(SLOTS, 1).await;
            crash(&world, 1).await;
            world.pass_lease();
            world
        });
        let program = runtime();
        program.block_on(async {
            let client = world.client();
            refusal(&client, SLOTS).await;
            if waits {
                client.finish_healing().await;
            }
        });
        drop(program);
        assert_eq!(table.block_on(world.free(SLOTS)), free, "waits: {waits}");
    }
}

/// Callers that end at once with their runtimes, one each second: one of them has its turn every 8 s.
#[test]
fn short_lived_callers_have_a_crashed_holders_slot_back_in_time() {
    let table = runtime();
    let world = table.block_on(async {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world
    });
    let second = Duration::from_secs(1);
    let mut elapsed = Duration::ZERO;
    let asks = async || {
        let client = world.client();
        let outcome = client.acquire(SLOTS).await.unwrap();
        client.finish_healing().await;
        outcome.granted().is_some()
    };
    while !runtime().block_on(asks()) {
        world.pass(second);
        elapsed += second;
        assert!(elapsed <= BACK_WITHIN, "never granted");
    }
    assert!(elapsed >= Duration::from_secs(60), "{elapsed:?}: the lease had not ended");
}

#[tokio::test(start_paused = true)]
async fn where_no_try_is_due_it_returns_at_once_and_sends_nothing() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let (client, off) = (world.client(), world.client_with(|settings| settings.self_heal(false)));
    let began = Instant::now();
    client.finish_healing().await;
    let _held = take(&client, SLOTS).await;
    world.dynamo.meter().reset();
    client.finish_healing().await;
    assert_eq!(world.dynamo.meter().total().requests, 0, "nobody was refused");
    refusal(&off, SLOTS).await;
    refusal(&client, SLOTS).await;
    client.finish_healing().await;
    assert_eq!(scans(&world), SCANS_OF_A_HEAL);
    // The task waits for its next turn, and another client's refusal is not this one's.
    refusal(&client, SLOTS).await;
    world.dynamo.meter().reset();
    client.finish_healing().await;
    off.finish_healing().await;
    assert_eq!(world.dynamo.meter().total().requests, 0);
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_table_that_hangs_keeps_nobody_for_longer_than_the_limit() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    // The mark is written at the fourth time, after 3 s, and the scan is given up 4 s later.
    (0..3).for_each(|_| world.dynamo.faults().next(Operation::UpdateItem, Fault::Hang));
    world.dynamo.faults().always(Operation::Scan, Fault::Hang);
    let client = world.client();
    refusal(&client, SLOTS).await;
    let began = Instant::now();
    client.finish_healing().await;
    let waited = began.elapsed();
    assert!(waited >= LONGEST && waited < LONGEST + Duration::from_millis(50), "{waited:?}");
}

/// Its runtime took the task along, and nothing is left that could end.
#[test]
fn a_try_that_ended_with_its_runtime_keeps_nobody() {
    let (program, next) = (runtime(), runtime());
    let (world, client) = program.block_on(async {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world.pass_lease();
        let gate = world.dynamo.faults().hold_next(Operation::Scan);
        let client = world.client();
        refusal(&client, SLOTS).await;
        gate.reached().await;
        (world, client)
    });
    drop(program);
    next.block_on(async {
        tokio::time::pause();
        let began = Instant::now();
        client.finish_healing().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        // And the next refusal makes another task.
        world.pass(HEAL_EVERY);
        refusal(&client, SLOTS).await;
        client.finish_healing().await;
        assert_eq!(world.free(SLOTS).await, "1");
    });
}

/// A function that is frozen between two calls: the clock goes on, and its timers need not.
#[tokio::test(start_paused = true)]
async fn a_try_that_came_due_while_the_process_stood_still_is_made_with_the_next_refusal() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let client = world.client();
    crash(&world, 1).await;
    refusal(&client, SLOTS).await;
    client.finish_healing().await;
    world.pass_lease();
    let began = Instant::now();
    refusal(&client, SLOTS).await;
    client.finish_healing().await;
    assert_eq!(world.free(SLOTS).await, "1");
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
}
