//! Tickets: a start that is booked here and redeemed there, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_core::Amount;
use sluice_ops::SweepOptions;
use sluice_sdk::{
    AcquireError, Client, Leases, RedeemError, Redeemed, Request, RetryIn, RetryReason, StoreError, Ticket,
};
use sluice_testkit::{Fault, Operation, Usage};

use crate::world::{World, begin, dimension, number, requests, settle, text};

mod consumer;
mod several;
mod trouble;

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const MINUTE: Duration = Duration::from_secs(60);

/// Ten calls, one a second, and all of them taken.
async fn drained() -> World {
    drain(World::with_rate(RPM, 10, 10).await).await
}

async fn drain(world: World) -> World {
    let all = world.client().acquire(Request::from(RPM).cost(RPM, 10)).await.unwrap();
    assert!(all.granted().is_some());
    world
}

fn booking() -> Request<'static> {
    Request::from(RPM).ticket_within(MINUTE)
}

async fn refused<'a>(client: &Client, request: impl Into<Request<'a>>) -> RetryIn {
    match client.acquire(request).await.unwrap() {
        sluice_sdk::Outcome::RetryIn(retry) => retry,
        sluice_sdk::Outcome::Granted(_) => panic!("it was granted"),
    }
}

/// A ticket as it comes out of a message.
async fn carried(client: &Client) -> Ticket {
    refused(client, booking()).await.ticket().expect("a ticket").to_string().parse().unwrap()
}

async fn redeem(client: &Client, ticket: &Ticket) -> Redeemed {
    client.redeem(ticket).await.unwrap()
}

async fn is_granted(client: &Client, ticket: &Ticket) -> bool {
    redeem(client, ticket).await.granted().is_some()
}

/// IAM distinguishes products by the beginning of keys: `ticket#openai#*`.
#[tokio::test(start_paused = true)]
async fn the_key_of_a_ticket_begins_with_its_vendor() {
    let world = drained().await;
    let client = world.client();
    let ticket = carried(&client).await;
    assert!(ticket.key().starts_with("ticket#openai#"), "{}", ticket.key());
    assert!(world.row(&ticket.key()).await.is_some());
}

/// Messages that carry tickets outlive the deployment of a new version.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_an_older_version_booked_is_redeemed() {
    let world = drained().await;
    let client = world.client();
    let ticket = carried(&client).await;
    let mut row = world.row(&ticket.key()).await.unwrap();
    world.delete(&ticket.key()).await;
    let older: Ticket = ticket.to_string().replacen("3.", "1.", 1).parse().unwrap();
    assert!(!older.key().contains("openai"), "{}", older.key());
    row.insert("vendor_dimension".into(), text(&older.key()));
    world.put(row).await;
    let retry = match redeem(&client, &older).await {
        Redeemed::RetryIn(retry) => retry,
        other => panic!("{other:?}"),
    };
    assert_eq!(retry.ticket().unwrap().to_string(), older.to_string(), "the same ticket, of its version");
    world.pass(retry.wait());
    assert!(is_granted(&client, &older).await);
    assert!(!is_granted(&client, &older).await, "once");
}

#[tokio::test(start_paused = true)]
async fn a_start_is_booked_here_and_redeemed_by_another_process_without_acquiring_again() {
    let world = drained().await;
    let client = world.client();
    let first = refused(&client, booking()).await;
    let second = refused(&client, booking()).await;
    let told = |retry: &RetryIn| (retry.wait(), retry.reason(), retry.dimension().to_string());
    assert_eq!(told(&first), (Duration::from_secs(1), RetryReason::Exhausted, RPM.into()));
    assert_eq!(told(&second), (Duration::from_secs(2), RetryReason::Exhausted, RPM.into()), "in line");
    assert_eq!(world.level(RPM).await, "-2");
    let (first, second) = (first.ticket().unwrap(), second.ticket().unwrap());
    assert_eq!(
        (first.dimensions(), second.start_at().since(first.start_at()).as_secs()),
        (&[dimension(RPM)][..], 1)
    );
    world.pass(Duration::from_secs(2));
    let worker = world.client();
    for ticket in [first, second] {
        let grant = redeem(&worker, &ticket.to_string().parse().unwrap()).await.granted().unwrap();
        assert_eq!((grant.cost(RPM), grant.booked_wait()), (Some(Amount::from_tokens(1)), Duration::ZERO));
        grant.release().await.unwrap();
    }
    settle().await;
    assert_eq!(world.level(RPM).await, "0", "nothing was taken twice, and nothing came back");
    assert!(world.row(&first.key()).await.unwrap().contains_key("redeemed_by"), "its row stays, spent");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_there_now_is_granted_and_one_too_far_ahead_takes_nothing() {
    let world = World::with_rate(RPM, 10, 10).await;
    let client = world.client();
    assert!(client.acquire(booking().cost(RPM, 10)).await.unwrap().granted().is_some());
    let refused =
        refused(&client, Request::from(RPM).cost(RPM, 5).ticket_within(Duration::from_secs(4))).await;
    assert_eq!((refused.wait(), refused.ticket()), (Duration::from_secs(5), None));
    assert_eq!(level(&world, RPM).await, "0");
}

/// The level to a thousandth: a large call that may be booked moves the anchor a microsecond ahead, and its
/// refill is there at once.
async fn level(world: &World, name: &str) -> String {
    let level = world.bucket(name).await.level(world.dynamo.clock().now());
    Amount::from_micros((level.micros() + 500).div_euclid(1_000) * 1_000).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_ticket_redeemed_again_is_spent() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    assert!(is_granted(&world.client(), &ticket).await);
    // At once, and later.
    for _ in 0..2 {
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
        settle().await;
    }
    assert_eq!(world.level(RPM).await, "0");
}

/// Condition: `attribute_not_exists(redeemed_by)`.
#[tokio::test(start_paused = true)]
async fn a_ticket_redeemed_twice_at_the_same_moment_is_granted_once() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let workers = [world.client(), world.client()].map(|client| {
        let ticket = ticket.clone();
        tokio::spawn(async move { redeem(&client, &ticket).await })
    });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(sluice_testkit::Gate::open);
    let mut granted = 0;
    for worker in workers {
        match worker.await.unwrap() {
            Redeemed::Granted(_) => granted += 1,
            other => assert!(matches!(other, Redeemed::Spent), "{other:?}"),
        }
    }
    assert_eq!(granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_comes_late_is_good_until_its_tokens_have_run_over_the_brim() {
    let world = drained().await;
    let tickets = [carried(&world.client()).await, carried(&world.client()).await];
    // Nine tokens flow in beside the ten that the bucket holds with the first ticket's.
    world.pass(Duration::from_millis(9_990));
    let client = world.client();
    assert!(is_granted(&client, &tickets[0]).await);
    world.dynamo.meter().reset();
    world.pass(Duration::from_millis(1_100));
    assert!(matches!(redeem(&client, &tickets[1]).await, Redeemed::Lapsed));
    assert_eq!(world.dynamo.meter().reset().requests, 0, "its own text says so");
    assert_eq!(world.level(RPM).await, "9.09", "the line is what it was");
}

/// The reading and the write are two: a process that is frozen in between must not use what has lapsed
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_lapses_while_it_is_redeemed_is_not_granted() {
    let world = drained().await;
    let (client, ticket) = (world.client(), carried(&world.client()).await);
    world.pass(Duration::from_secs(1));
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = {
        let ticket = ticket.clone();
        tokio::spawn(async move { redeem(&client, &ticket).await })
    };
    gate.reached().await;
    world.pass(Duration::from_secs(10));
    gate.open();
    assert!(matches!(redeeming.await.unwrap(), Redeemed::Lapsed));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_never_redeemed_leaves_nothing_behind() {
    let world = drain({
        let world = World::embedded().await;
        world.rate(RPM, 10, 10).await;
        world
    })
    .await;
    let ticket = carried(&world.client()).await;
    let listed = world.client().ops().buckets().await.unwrap();
    assert_eq!(listed.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), [RPM], "a ticket is no bucket");
    assert_eq!(world.leases().await, 0, "and no lease");
    let swept = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((swept.unparsable, swept.expired), (0, 0), "{swept:?}");
    world.pass(Duration::from_secs(60 * 60));
    assert_eq!(world.dynamo.sweep_ttl().unwrap(), 0, "not before its end for every clock");
    assert_eq!(world.level(RPM).await, "10", "its tokens have refilled");
    world.pass(Duration::from_secs(11));
    assert_eq!(world.dynamo.sweep_ttl().unwrap(), 1);
    assert!(world.row(&ticket.key()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_comes_early_is_told_when_to_come_and_stays_good() {
    let world = drained().await;
    let client = world.client();
    let ticket = carried(&client).await;
    world.pass(Duration::from_millis(400));
    world.dynamo.meter().reset();
    let Redeemed::RetryIn(retry) = redeem(&client, &ticket).await else { panic!() };
    assert_eq!(
        (retry.wait(), retry.reason(), retry.ticket()),
        (Duration::from_millis(600), RetryReason::Exhausted, Some(&ticket))
    );
    assert_eq!(world.dynamo.meter().reset().requests, 0);
    // A text that was changed to say that it starts sooner: the row decides.
    let mut parts: Vec<String> = ticket.to_string().split('.').map(str::to_owned).collect();
    parts[2] = "1".into();
    parts[3] = "zzzzzzzzzzzz".into();
    let Redeemed::RetryIn(retry) = redeem(&world.client(), &parts.join(".").parse().unwrap()).await else {
        panic!()
    };
    assert_eq!(retry.wait(), Duration::from_millis(600));
    world.pass(retry.wait());
    assert!(is_granted(&world.client(), &ticket).await);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_in_a_cool_down_waits_for_its_end_and_stays_good() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    let ends = world.dynamo.clock().now().after(Duration::from_secs(3));
    let request =
        world.dynamodb().update_item().table_name(world.table()).key(sluice_core::schema::KEY, text(RPM));
    let request = request.update_expression("SET blocked_until = :blocked_until");
    request.expression_attribute_values(":blocked_until", number(&ends.to_string())).send().await.unwrap();
    let Redeemed::RetryIn(retry) = redeem(&world.client(), &ticket).await else { panic!() };
    assert_eq!((retry.wait(), retry.reason()), (Duration::from_secs(3), RetryReason::CoolingDown));
    assert_eq!((retry.dimension().as_str(), retry.ticket()), (RPM, Some(&ticket)));
    world.pass(retry.wait());
    assert!(is_granted(&world.client(), &ticket).await);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_whose_limits_were_changed_lapses() {
    for (capacity, window) in [(10, 20), (11, 11)] {
        let world = drained().await;
        let ticket = carried(&world.client()).await;
        world.pass(Duration::from_millis(500));
        world.client().ops().apply_limit(&dimension(RPM), &requests(capacity, window)).await.unwrap();
        world.pass(Duration::from_millis(500));
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Lapsed));
    }
}

/// What came back from before the booking is there for others: with a ticket that is late it would be one too
/// many.
#[tokio::test(start_paused = true)]
async fn a_ticket_counts_what_others_gave_back_meanwhile() {
    let world = drained().await;
    let tickets = [carried(&world.client()).await, carried(&world.client()).await];
    world.pass(Duration::from_secs(3));
    // As a return of another process leaves the row: four of the ten that were taken before.
    let request =
        world.dynamodb().update_item().table_name(world.table()).key(sluice_core::schema::KEY, text(RPM));
    let request =
        request.update_expression("SET tokens = tokens + :4, returned = :4, version = version + :4");
    request.expression_attribute_values(":4", number("4")).send().await.unwrap();
    world.pass(Duration::from_millis(2_900));
    assert!(
        is_granted(&world.client(), &tickets[0]).await,
        "4.9 s late, with one call and 9 - 4 tokens of room"
    );
    world.pass(Duration::from_millis(1_200));
    assert!(tickets[1].use_by() > world.dynamo.clock().now(), "without the return it would be good");
    assert!(matches!(redeem(&world.client(), &tickets[1]).await, Redeemed::Lapsed));
}
