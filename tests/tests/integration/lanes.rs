//! Lanes of rate buckets: callers of one process that ask at the same time share one write, in their order,
//! and none of them is in another's way.

use std::time::Duration;

use sluice_sdk::{Basis, Client, OnUnavailable, Outcome, Request, RetryReason};
use sluice_testkit::{Fault, Gate, Operation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::endpoint;
use crate::world::{World, begin, settle, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
/// Longer than any request here is on its way.
const A_WHILE: Duration = Duration::from_millis(50);

/// A bucket that hardly refills, and a client that knows it: 1000 tokens are left.
async fn known() -> (World, Client) {
    let world = World::with_rate(RPM, 1_001, 100_000_000).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    world.dynamo.meter().reset();
    (world, client)
}

async fn ask(client: Client, cost: i32) -> Outcome {
    client.acquire(Request::from(RPM).cost(RPM, cost)).await.unwrap()
}

fn asks(client: &Client, cost: i32) -> JoinHandle<Outcome> {
    tokio::spawn(ask(client.clone(), cost))
}

async fn is_granted(asking: JoinHandle<Outcome>) -> bool {
    asking.await.unwrap().granted().is_some()
}

/// A caller whose write stands at a gate.
async fn held_at_its_write(world: &World, client: &Client, cost: i32) -> (JoinHandle<Outcome>, Gate) {
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let asking = asks(client, cost);
    gate.reached().await;
    (asking, gate)
}

async fn left(world: &World) -> i32 {
    settle().await;
    world.level(RPM).await.split('.').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn callers_that_meet_a_bucket_at_once_need_three_requests_at_most() {
    let world = World::embedded().await.distant();
    world.rate(RPM, 1_000, 100_000_000).await;
    let client = world.client();
    world.dynamo.meter().reset();
    let callers: Vec<_> = (0..64).map(|_| asks(&client, 1)).collect();
    for caller in callers {
        assert!(is_granted(caller).await);
    }
    let requests = world.dynamo.meter().reset().requests;
    assert!((2..=3).contains(&requests), "one read, then batches: {requests}");
    assert_eq!(left(&world).await, 936, "each was granted once");
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_back_meet_in_the_next_write() {
    let (world, client) = known().await;
    let world = world.distant();
    let callers = (0..64).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                let _ = take(&client, RPM).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let requests = world.dynamo.meter().reset().requests;
    assert!(requests <= 12, "{requests} requests for ten rounds of 64 callers");
    assert_eq!(left(&world).await, 360);
}

#[tokio::test(start_paused = true)]
async fn a_lone_caller_is_served_at_once_by_a_write_of_its_own() {
    let world = World::embedded().await;
    world.rate(RPM, 1_000, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    world.dynamo.meter().reset();
    let began = Instant::now();
    for _ in 0..100 {
        let _ = take(&client, RPM).await;
    }
    let used = world.dynamo.meter().reset();
    assert_eq!((used.requests, used.write_units, used.read_units), (100, 100, 0.0));
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing waits for a timer");
}

#[tokio::test(start_paused = true)]
async fn one_write_books_every_start_in_the_order_of_asking() {
    let world = World::with_rate(RPM, 10, 10).await;
    let client = world.client();
    assert!(matches!(ask(client.clone(), 10).await, Outcome::Granted(_)));
    let empty_at = world.dynamo.clock().now();
    world.dynamo.meter().reset();
    let world = world.distant();
    let costs = [1, 3, 2, 1, 4];
    let calls = costs.map(|cost| {
        let slot = client.slot(RPM).cost(RPM, cost).timeout(Duration::from_secs(30));
        tokio::spawn(slot.run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.start_at())))
    });
    let mut due = 0;
    for (cost, call) in costs.into_iter().zip(calls) {
        due += i64::from(cost) * 1_000_000;
        assert_eq!(call.await.unwrap().unwrap().micros_since(empty_at), due, "a call of {cost}");
    }
    let usage = world.dynamo.meter().reset();
    // Units are not told by every engine, and of one that is not in virtual time the answer to a look may
    // come too late.
    if endpoint::url().is_none() {
        assert_eq!(
            usage.write_units, 3,
            "the first comes alone, and one of more than a quarter of the capacity begins a write"
        );
        assert_eq!(usage.requests, 3 + 5, "each looks for a cool-down before its start");
    }
    assert!(usage.requests <= 3 + 5, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_grants_what_fits_and_tells_the_rest_its_wait_from_the_same_reply() {
    let world = World::with_rate(RPM, 10, 10).await;
    let client = world.client();
    assert!(matches!(ask(client.clone(), 5).await, Outcome::Granted(_)));
    world.dynamo.meter().reset();
    let mut answers = Vec::new();
    let (first, gate) = held_at_its_write(&world, &client, 3).await;
    let behind = [4, 2, 1].map(|cost| asks(&client, cost));
    settle().await;
    gate.open();
    for asking in std::iter::once(first).chain(behind) {
        answers.push(match asking.await.unwrap() {
            Outcome::Granted(_) => None,
            Outcome::RetryIn(retry) => Some((retry.reason(), retry.wait().as_micros())),
        });
    }
    let refused = |secs: u128| Some((RetryReason::Exhausted, secs * 1_000_000));
    assert_eq!(answers, [None, refused(4), None, refused(1)]);
    assert_eq!(world.dynamo.meter().reset().requests, 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_its_write_is_not_written_for() {
    let (world, client) = known().await;
    let (first, gate) = held_at_its_write(&world, &client, 1).await;
    let (gone, stays) = (asks(&client, 1), asks(&client, 1));
    settle().await;
    gone.abort();
    settle().await;
    gate.open();
    assert!(is_granted(first).await && is_granted(stays).await);
    assert_eq!(left(&world).await, 998);
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 2, "nothing was given back");
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_leaves_during_its_write_goes_to_the_next_of_the_same_cost() {
    let (world, client) = known().await;
    let (gone, gate) = held_at_its_write(&world, &client, 1).await;
    let next = asks(&client, 1);
    settle().await;
    gone.abort();
    settle().await;
    gate.open();
    assert!(is_granted(next).await);
    assert_eq!(left(&world).await, 999);
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 1, "one write was enough");
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_leaves_is_given_back_where_the_next_wants_something_else() {
    let (world, client) = known().await;
    let (gone, gate) = held_at_its_write(&world, &client, 1).await;
    let next = asks(&client, 2);
    settle().await;
    gone.abort();
    settle().await;
    gate.open();
    assert!(is_granted(next).await);
    assert_eq!(left(&world).await, 998);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_not_cut_off_with_the_caller_that_began_it() {
    let (world, client) = known().await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let [gone, second, third] = [1, 1, 1].map(|cost| asks(&client, cost));
    gate.reached().await;
    gone.abort();
    settle().await;
    gate.open();
    assert!(is_granted(second).await && is_granted(third).await);
    assert_eq!(left(&world).await, 998);
    assert_eq!(
        world.dynamo.meter().of(Operation::UpdateItem).requests,
        2,
        "all three were in one write; one came back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_with_its_answer_untaken_leaves_nothing_taken() {
    let (world, client) = known().await;
    // Room below the brim for both returns, in either order: a return cannot tell whether what came back
    // since was taken before it or after, and counts it against its own room.
    assert!(is_granted(asks(&client, 20)).await);
    let world = world.distant();
    // With a second one the lane is served on a task of its own, whether they are polled or not.
    let (asking, other) = (begin(ask(client.clone(), 3)).await, begin(ask(client.clone(), 4)).await);
    sleep(A_WHILE).await;
    assert_eq!(left(&world).await, 973, "both were granted");
    drop((asking, other));
    sleep(A_WHILE).await;
    assert_eq!(left(&world).await, 980);
}

#[tokio::test(start_paused = true)]
async fn an_outage_answers_everyone_in_line() {
    let (world, client) = known().await;
    let lenient = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    let _ = take(&lenient, RPM).await;
    world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
    let asked = |client: &Client| {
        let calls = (0..20).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(RPM).await })
        });
        calls.collect::<Vec<_>>()
    };
    let (strict, lenient) = (asked(&client), asked(&lenient));
    let answered = async {
        for call in strict {
            assert!(call.await.unwrap().is_err());
        }
        for call in lenient {
            assert_eq!(call.await.unwrap().unwrap().granted().unwrap().basis(), Basis::Unchecked);
        }
    };
    tokio::time::timeout(Duration::from_secs(10), answered).await.expect("nobody hangs");
    world.dynamo.faults().clear();
    let _ = take(&client, RPM).await;
}

/// Whichever of the two writes is answered first.
#[tokio::test(start_paused = true)]
async fn a_caller_of_two_rates_that_leaves_between_their_answers_leaves_nothing_taken() {
    for first in [0, 1] {
        let world = World::with_rate(RPM, 10, 100_000_000).await;
        world.rate(TPM, 10, 100_000_000).await;
        let client = world.client();
        let _ = client.acquire([RPM, TPM]).await.unwrap();
        let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
        let asking = tokio::spawn(async move { client.acquire([RPM, TPM]).await.map(drop) });
        for gate in &gates {
            gate.reached().await;
        }
        gates[first].open();
        settle().await;
        asking.abort();
        settle().await;
        gates[1 - first].open();
        settle().await;
        assert_eq!(
            (world.level(RPM).await.as_str(), world.level(TPM).await.as_str()),
            ("9", "9"),
            "{first} first"
        );
    }
}

#[test]
fn who_stands_in_line_behind_a_runtime_that_ends_is_served_by_another() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (ending, staying) = (runtime(), runtime());
    let (world, client) = staying.block_on(async {
        let known = known().await;
        // Who served the first has left its seat.
        settle().await;
        known
    });
    let (lost, _gate) = ending.block_on(held_at_its_write(&world, &client, 1));
    let in_line = staying.spawn(ask(client.clone(), 1));
    staying.block_on(settle());
    assert!(!in_line.is_finished());
    drop(ending);
    staying.block_on(async {
        let granted = tokio::time::timeout(Duration::from_secs(10), is_granted(in_line));
        assert!(granted.await.expect("it is served"));
        assert!(lost.await.is_err());
        assert_eq!(left(&world).await, 999);
    });
}
