//! A shadow client beside an enforcing one: what the shadow client takes counts, and the other's limit holds.

use std::time::Duration;

use sluice_core::Timestamp;
use sluice_sdk::{Basis, Client, LimitError, Outcome, Redeemed, Reply, Request, RetryReason};

use super::{RPM, SLOTS, refused, shadow};
use crate::kind::Kind;
use crate::metrics::{Listening, counted};
use crate::world::{World, refusal, take};

#[tokio::test(start_paused = true)]
async fn an_enforcing_client_keeps_its_promise_beside_a_shadow_client() {
    let world = World::with_rate(RPM, 60, 60).await;
    let (enforcing, trying) = (world.client(), shadow(&world));
    let mut starts: Vec<Timestamp> = Vec::new();
    for call in 0..3_000 {
        let now = world.dynamo.clock().now();
        if take(&trying, RPM).await.basis() == Basis::Table {
            starts.push(now);
        }
        if let Outcome::Granted(_) = enforcing.acquire(RPM).await.unwrap() {
            starts.push(now);
        }
        // The shadow client calls ten times as often as the limit allows.
        world.pass(Duration::from_millis(100 + call % 3));
    }
    // What both of them hold by the table is within the bound of every window.
    for (at, first) in starts.iter().enumerate() {
        for (more, last) in starts[at..].iter().enumerate() {
            let most = 60.0 + last.since(*first).as_secs_f64();
            assert!(more as f64 + 1.0 <= most + 1e-6, "{} starts within {:?}", more + 1, last.since(*first));
        }
    }
    assert!(starts.len() > 300);
}

#[tokio::test(start_paused = true)]
async fn slots_of_an_enforcing_client_are_never_more_than_the_limit() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = World::with_slots(SLOTS, 3).await.with(kind);
        let (enforcing, trying) = (world.client(), shadow(&world));
        let held: Vec<_> = [take(&enforcing, SLOTS).await, take(&enforcing, SLOTS).await].into();
        let running: Vec<_> =
            [take(&trying, SLOTS).await, take(&trying, SLOTS).await, take(&trying, SLOTS).await].into();
        assert_eq!(refusal(&enforcing, SLOTS).await.reason(), RetryReason::NoFreeSlot);
        for grant in running {
            grant.release().await.unwrap();
        }
        assert_eq!(world.free(SLOTS).await, "1", "{kind:?}: exactly the one that a shadow call held is back");
        for grant in held {
            grant.release().await.unwrap();
        }
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_stops_no_call_of_a_shadow_client() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 60, 60).await;
    let (enforcing, trying) = (world.client(), shadow(&world));
    enforcing.cool_down(RPM, Duration::from_secs(300)).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(take(&trying, RPM).await.basis(), Basis::Shadow);
    let slot = trying.slot(RPM).max_wait(Duration::from_secs(30));
    slot.run(async |_| Ok::<_, LimitError>(())).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(refused(&listening.recorded(), RPM, "cooling_down"), 2);
    assert_eq!(refusal(&enforcing, RPM).await.reason(), RetryReason::CoolingDown);
}

/// The vendor's refusal is a fact of the account that all share, also if the refused call held nothing.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_vendor_that_a_shadow_call_meets_cools_down_the_fleet() {
    let world = World::with_rate(RPM, 1, 1_000).await;
    let (enforcing, trying) = (world.client(), shadow(&world));
    let _last = take(&enforcing, RPM).await;
    let headers = [("retry-after", "7")];
    let slot = trying.slot(RPM);
    let replied = slot.run(async |slot| slot.reply(Reply::new(429, &headers), ()).await).await.unwrap();
    assert!(replied.decision.wait().is_some(), "{replied:?}");
    let until = world.bucket(RPM).await.blocked_until().expect("a cool-down");
    assert_eq!(until.since(world.dynamo.clock().now()), Duration::from_secs(7));
}

/// No enforcing client would have made those calls: their refusals would prolong the cool-down without an
/// end.
#[tokio::test(start_paused = true)]
async fn refusals_of_calls_that_a_shadow_client_makes_in_a_cool_down_are_only_counted() {
    let world = World::with_rate(RPM, 1_000, 60).await;
    let (enforcing, trying) = (world.client(), shadow(&world));
    enforcing.cool_down(RPM, Duration::from_secs(7)).await.unwrap();
    let ends = world.bucket(RPM).await.blocked_until().unwrap();
    let level = world.whole_level(RPM).await;
    let listening = Listening::begin();
    let mut late = take(&trying, RPM).await;
    for headers in [vec![("retry-after", "60")], vec![]] {
        let mut grant = take(&trying, RPM).await;
        assert_eq!(grant.basis(), Basis::Shadow);
        let replied = grant.reply(Reply::new(429, &headers), ()).await.unwrap();
        assert!(replied.decision.wait().is_some(), "the call learns of it");
        let slot = trying.slot(RPM);
        slot.run(async |slot| slot.reply(Reply::new(429, &headers), ()).await).await.unwrap();
        // Without a grant, the cool-down that is known now says the same.
        trying.on_rate_limited(RPM, Reply::new(429, &headers)).await.unwrap();
    }
    world.pass(Duration::from_secs(8));
    // It was made in the cool-down, and its refusal came after it.
    late.reply(Reply::new(429, &[("retry-after", "60")]), ()).await.unwrap();
    assert_eq!(world.bucket(RPM).await.blocked_until(), Some(ends), "no longer cool-down");
    assert_eq!(world.whole_level(RPM).await, level, "nothing is lowered");
    let labels = [("dimension", RPM), ("reason", "rate")];
    assert_eq!(counted(&listening.recorded(), "sluice.vendor.refusals", &labels), 7);
    let mut after = take(&trying, RPM).await;
    assert_eq!(after.basis(), Basis::Table);
    after.reply(Reply::new(429, &[("retry-after", "60")]), ()).await.unwrap();
    let until = world.bucket(RPM).await.blocked_until().unwrap();
    assert_eq!(until.since(world.dynamo.clock().now()), Duration::from_secs(60), "a call after it counts");
}

async fn ticket(client: &Client) -> sluice_sdk::Ticket {
    let request = Request::from(RPM).ticket_within(Duration::from_secs(300));
    let Outcome::RetryIn(retry) = client.acquire(request).await.unwrap() else { panic!("granted") };
    retry.ticket().expect("a ticket").clone()
}

#[tokio::test(start_paused = true)]
async fn a_shadow_client_books_no_ticket_and_waits_for_none() {
    let world = World::with_rate(RPM, 2, 60).await;
    let (enforcing, trying) = (world.client(), shadow(&world));
    let _all = [take(&enforcing, RPM).await, take(&enforcing, RPM).await];
    let ticket = ticket(&enforcing).await;
    assert!(matches!(trying.redeem(&ticket).await.unwrap(), Redeemed::Lapsed), "it is early: acquire anew");
    let carried = take(&trying, Request::from(RPM).with_ticket(Some(ticket.clone()))).await;
    assert_eq!(carried.basis(), Basis::Shadow);
    let booked = take(&trying, Request::from(RPM).ticket_within(Duration::from_secs(300))).await;
    assert_eq!((booked.basis(), booked.booked_wait()), (Basis::Shadow, Duration::ZERO));
    world.pass(Duration::from_secs(31));
    let Redeemed::Granted(grant) = trying.redeem(&ticket).await.unwrap() else { panic!("it was due") };
    assert_eq!(grant.basis(), Basis::Table);
    assert!(matches!(trying.redeem(&ticket).await.unwrap(), Redeemed::Spent), "a ticket is granted once");
    trying.close(Duration::ZERO).await;
    assert!(trying.redeem(&ticket).await.is_err(), "a closed client grants nothing");
}
