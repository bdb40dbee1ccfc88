//! Lines that are full by an old reading, while others keep them from that.

use std::time::Duration;

use sluice_sdk::{Client, LimitError, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{RPM, apply, name, split};
use crate::world::{World, requests, take};

/// Each process asks once a second. By its reading the line is full again, and the others keep it from that.
#[tokio::test(start_paused = true)]
async fn a_process_learns_whether_others_keep_a_line_from_being_full() {
    let world = World::new().await;
    apply(&world, &split(requests(64, 1), &[("search", "0.9375")])).await;
    let client = || world.client_with(|settings| settings.share(name("search")).note_use(false));
    let clients: Vec<Client> = (0..60).map(|_| client()).collect();
    let _ = take(&clients[0], Request::from(RPM).cost(RPM, 40)).await;
    // At 20 ms a call the line stays full: each take moves the anchor, so the next take of another process
    // fails once, whatever it expects.
    for (after_secs, gap_micros, most) in [(0, 16_667, 70), (10, 20_000, 630)] {
        world.pass(Duration::from_secs(after_secs));
        world.dynamo.meter().reset();
        for _ in 0..10 {
            for client in &clients {
                world.pass(Duration::from_micros(gap_micros));
                let _ = take(client, RPM).await;
            }
        }
        let failed = world.dynamo.meter().failed_writes();
        assert!(failed <= most, "after {after_secs} s: {failed} failed writes of 600 calls");
    }
}

/// By its last reading the own line is full. The process has found that others keep it from that, so it does
/// not book there before it has asked.
#[tokio::test(start_paused = true)]
async fn a_call_borrows_what_is_there_rather_than_book_on_a_line_that_only_seems_full() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 1), &[("search", "0.5")])).await;
    let client = || world.client_with(|settings| settings.share(name("search")).note_use(false));
    let (one, other) = (client(), client());
    let takes =
        async |client: &Client, tokens: u32| drop(take(client, Request::from(RPM).cost(RPM, tokens)).await);
    takes(&one, 1).await;
    takes(&other, 49).await;
    sleep(Duration::from_millis(1_100)).await;
    takes(&other, 40).await;
    // Its full write fails.
    takes(&one, 1).await;
    let mut bookings = JoinSet::new();
    for _ in 0..36 {
        let other = other.clone();
        bookings.spawn(async move {
            // More than the common line lends.
            let slot = other.slot(Request::from(RPM).cost(RPM, 40)).max_wait(Duration::from_secs(30));
            slot.run(async |_| Ok::<_, LimitError>(())).await
        });
    }
    sleep(Duration::from_millis(1_100)).await;
    let asked = Instant::now();
    let slot = one.slot(RPM).max_wait(Duration::from_secs(30));
    let paid_from = slot.run(async |slot| Ok::<_, LimitError>(slot.paid_from(RPM).map(str::to_owned)));
    assert_eq!(paid_from.await.unwrap().as_deref(), Some("common"));
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
}
