//! After an outage, a process takes from the table what it granted by itself: once, and no more than a debt
//! may be.

use std::time::Duration;

use sluice_core::{DeclaredShare, ShareName, Split};
use sluice_sdk::{Basis, Client, Outcome, Request};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use super::RPM;
use crate::events::{lines, listen};
use crate::world::{World, dimension, requests, take};

/// Until a process has found DynamoDB again, and has charged what it granted.
const CHARGED: Duration = Duration::from_secs(2);

/// A bucket of so many calls that hardly refills, and a client that has half of it in an outage.
async fn half_of(calls: i32) -> (World, Client) {
    listen();
    let world = World::embedded().await;
    world.rate(RPM, calls, 1_000_000_000).await;
    let client = halves(&world);
    take(&client, RPM).await.release().await.unwrap();
    (world, client)
}

fn halves(world: &World) -> Client {
    world.client_with(|settings| settings.on_unavailable("share:0.5".parse().unwrap()))
}

fn is_out(world: &World, is_out: bool) {
    world.dynamo.faults().draw(move |_| is_out.then_some(Fault::Hang));
}

/// Grants that the process makes by itself, `most` at most.
async fn local(client: &Client, most: usize) -> usize {
    let mut granted = 0;
    while granted < most
        && let Outcome::Granted(grant) = client.acquire(RPM).await.unwrap()
    {
        assert_eq!(grant.basis(), Basis::LocalShare);
        granted += 1;
    }
    granted
}

/// What was logged about charges: whether something was charged, and what was spent and charged.
fn charges() -> Vec<(bool, String, Option<String>)> {
    let about = lines().into_iter().filter_map(|line| {
        let is_charged = match line["event"].as_str()? {
            "unavailable.charged" => true,
            "unavailable.not_charged" => false,
            _ => return None,
        };
        let charged = line["charged"].as_str().map(str::to_owned);
        Some((is_charged, line["spent"].as_str()?.to_owned(), charged))
    });
    about.collect()
}

fn charged(spent: &str, charged: &str) -> (bool, String, Option<String>) {
    (true, spent.to_owned(), Some(charged.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_charge_beyond_the_cap_is_cut_off() {
    let (world, client) = half_of(20).await;
    // The client has seen 19, of which half are its own. Another has used 35 at once since.
    take(&world.client(), RPM).await.settle(RPM, 35).await.unwrap();
    assert_eq!(world.whole_level(RPM).await, "-16");
    is_out(&world, true);
    assert_eq!(local(&client, 20).await, 9);
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(world.whole_level(RPM).await, "-20");
    assert_eq!(charges(), [charged("9", "4")]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_failed_is_tried_again_and_charged_once() {
    let (world, client) = half_of(100).await;
    is_out(&world, true);
    assert_eq!(local(&client, 10).await, 10);
    for _ in 0..4 {
        world.dynamo.faults().next(Operation::UpdateItem, Fault::throttled());
    }
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(world.whole_level(RPM).await, "99", "throttled in every try");
    for _ in 0..5 {
        take(&client, RPM).await.release().await.unwrap();
        sleep(CHARGED).await;
    }
    assert_eq!(world.whole_level(RPM).await, "84", "ten of the outage, and five since");
    assert_eq!(charges(), [charged("10", "10")]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_whose_reply_is_lost_is_not_charged_twice() {
    let (world, client) = half_of(100).await;
    is_out(&world, true);
    assert_eq!(local(&client, 10).await, 10);
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    is_out(&world, false);
    for _ in 0..5 {
        sleep(CHARGED).await;
        take(&client, RPM).await.release().await.unwrap();
    }
    assert_eq!(world.whole_level(RPM).await, "84", "it was applied");
    assert_eq!(charges(), [(false, "10".to_owned(), None)]);
}

/// Its calls of the outage refill: nobody is left to charge them.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_or_dropped_before_it_charged_ends_at_once_and_charges_nothing() {
    let (world, closed) = half_of(100).await;
    let dropped = halves(&world);
    take(&dropped, RPM).await.release().await.unwrap();
    is_out(&world, true);
    assert_eq!(local(&closed, 10).await + local(&dropped, 10).await, 20);
    let began = Instant::now();
    assert!(closed.close(Duration::from_secs(10)).await.is_clean());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    drop(dropped);
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!((world.whole_level(RPM).await.as_str(), charges()), ("98", vec![]));
}

/// The level of each line, in whole tokens: common, search.
async fn levels(world: &World) -> [String; 2] {
    let now = world.dynamo.clock().now();
    let lines = world.bucket(RPM).await.every_line();
    let level = |at: usize| format!("{:.0}", lines[at].level(now).to_string().parse::<f64>().unwrap());
    [level(0), level(1)]
}

/// A bucket of a hundred calls that hardly refills, half for search, and a client of search.
async fn half_for_search(policy: &str) -> (World, Client) {
    listen();
    let world = World::embedded().await;
    let name = ShareName::new("search").unwrap();
    let share =
        DeclaredShare { name: name.clone(), part: "0.5".parse().unwrap(), floor: None, background: false };
    let split = Split::new(requests(100, 1_000_000_000), &[share]).unwrap();
    world.client().ops().apply_split(&dimension(RPM), &split).await.unwrap();
    let client = world.client_with(|settings| {
        settings.share(name.clone()).on_unavailable(policy.parse().unwrap()).note_use(true)
    });
    take(&client, RPM).await.release().await.unwrap();
    (world, client)
}

#[tokio::test(start_paused = true)]
async fn an_equal_share_of_all_lines_is_charged_to_all_lines() {
    let (world, client) = half_for_search("share").await;
    for _ in 0..2 {
        // The second note of use tells how many processes there are: one.
        sleep(Duration::from_secs(61)).await;
        take(&client, RPM).await.release().await.unwrap();
    }
    assert_eq!(levels(&world).await, ["50", "47"]);
    sleep(Duration::from_secs(61)).await;
    is_out(&world, true);
    let above_its_line = client.acquire(Request::from(RPM).cost(RPM, 51)).await;
    assert!(above_its_line.is_err(), "no part of the whole has room for what the line never has");
    assert_eq!(local(&client, 49).await, 49, "more than its own line has");
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(levels(&world).await, ["25", "23"]);
    assert_eq!(charges(), [charged("49", "49")]);
}

#[tokio::test(start_paused = true)]
async fn what_a_share_granted_is_charged_to_its_line() {
    let (world, client) = half_for_search("share:0.5").await;
    assert_eq!(levels(&world).await, ["50", "49"]);
    is_out(&world, true);
    assert_eq!(local(&client, 50).await, 24, "half of what its line was seen to have");
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(levels(&world).await, ["50", "25"]);
    assert_eq!(charges(), [charged("24", "24")]);
}

#[tokio::test(start_paused = true)]
async fn the_next_outage_has_its_part_of_the_limit_that_was_seen_last() {
    let (world, client) = half_of(100).await;
    is_out(&world, true);
    assert_eq!(local(&client, 10).await, 10);
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(world.whole_level(RPM).await, "89");
    world.rate(RPM, 30, 1_000_000_000).await;
    take(&client, RPM).await.release().await.unwrap();
    is_out(&world, true);
    assert_eq!(local(&client, 50).await, 14, "half of 29");
    is_out(&world, false);
    sleep(CHARGED).await;
    assert_eq!(world.whole_level(RPM).await, "15");
    assert_eq!(charges(), [charged("10", "10"), charged("14", "14")]);
}
