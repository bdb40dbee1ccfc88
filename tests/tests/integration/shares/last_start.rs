//! Callers of two processes that compete for the last starts within their wait.

use std::time::Duration;

use sluice_sdk::{Client, LimitError, Outcome, Request};
use tokio::task::JoinSet;

use super::busy::{CHANGING, shared_by};
use super::{RPM, apply, name, split};
use crate::world::{TABLE, World, requests};

/// How long a cool-down lasts, and how much longer a caller waits.
const PAUSE: Duration = Duration::from_secs(5);
const MORE: Duration = Duration::from_millis(200);

/// A process that lets others book does not tell its callers that a cool-down ends later.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_the_end_of_a_cool_down_also_while_others_are_let_go_first() {
    let (dynamo, _) = shared_by(&CHANGING, 50, 7).await;
    dynamo.faults().draw(|_| None);
    let client = || dynamo.client_with(Client::builder(TABLE).share(name("search")).note_use(false));
    let clients = [client(), client()];
    let mut callers = JoinSet::new();
    for number in 0..120 {
        let client = clients[number % 2].clone();
        callers.spawn(async move {
            let slot = client.slot(RPM).max_wait(Duration::from_secs(1));
            slot.run(async |_| Ok::<_, LimitError>(())).await.is_ok()
        });
    }
    let mut booked = 0;
    while let Some(done) = callers.join_next().await {
        booked += usize::from(done.unwrap());
    }
    assert!(booked < 120, "there was a last start");
    clients[0].cool_down(RPM, PAUSE).await.unwrap();
    for client in &clients {
        let asked = client.now();
        let slot = client.slot(RPM).max_wait(PAUSE + MORE);
        let start = slot.run(async |slot| Ok::<_, LimitError>(slot.start_at())).await.unwrap();
        assert!(start.since(asked) <= PAUSE + MORE);
    }
}

/// A reading that is older than the second for which it refuses any caller still refuses those that would
/// book. A caller that does not wait is not refused by it.
#[tokio::test(start_paused = true)]
async fn a_process_that_lets_others_book_refuses_without_a_request_and_only_those_that_would_book() {
    fastrand::seed(7);
    let world = World::new().await;
    apply(&world, &split(requests(100, 1), &[("search", "0.96")])).await;
    let client = || world.client_with(|settings| settings.share(name("search")).note_use(false));
    let (one, other) = (client(), client());
    let mut callers = JoinSet::new();
    let mut booked = async |client: &Client| {
        let client = client.clone();
        callers.spawn(async move {
            // More than the common line lends.
            let slot = client.slot(Request::from(RPM).cost(RPM, 4)).max_wait(Duration::from_secs(30));
            slot.run(async |_| Ok::<_, LimitError>(())).await
        });
        // A refused caller gets its answer at once.
        tokio::time::sleep(Duration::from_millis(1)).await;
        !std::iter::from_fn(|| callers.try_join_next()).any(|caller| caller.unwrap().is_err())
    };
    assert!(booked(&one).await);
    while booked(&other).await {}
    // A call flows in each 42 ms.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(booked(&one).await, "the last start");
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    world.dynamo.meter().reset();
    for _ in 0..5 {
        assert!(!booked(&one).await, "it lets the other one book");
    }
    assert_eq!(world.dynamo.meter().reset().requests, 0);
    let at_once = Request::from(RPM).cost(RPM, 4);
    assert!(matches!(one.acquire(at_once).await.unwrap(), Outcome::RetryIn(_)));
    assert_eq!(world.dynamo.meter().reset().requests, 1);
    // The time to let others book is over: 96 calls take 4 s on average, and 6 s at most.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(booked(&one).await);
}
