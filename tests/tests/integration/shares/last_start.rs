//! Callers of two processes that compete for the last start within their wait.

use std::time::Duration;

use sluice_sdk::{Client, LimitError};
use tokio::task::JoinSet;

use super::busy::{CHANGING, shared_by};
use super::{RPM, name};
use crate::world::TABLE;

/// How long a cool-down lasts, and how much longer a caller waits.
const PAUSE: Duration = Duration::from_secs(5);
const MORE: Duration = Duration::from_millis(200);

/// A process that lets others book does not tell its callers that a cool-down ends later.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_the_end_of_a_cool_down_also_while_others_are_let_go_first() {
    let (dynamo, _) = shared_by(&CHANGING, 50).await;
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
