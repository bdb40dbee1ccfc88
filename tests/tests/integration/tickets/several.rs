//! Tickets over several dimensions: what is booked, what the redeemer takes, and what goes back if it comes
//! to nothing.

use sluice_sdk::{NoTicket, OnUnavailable};

use super::*;
use crate::world::take;

const RPD: &str = "openai#rpd";
const SLOT: &str = "openai#concurrent";

/// No requests are left, and all tokens: a thousand a minute.
async fn slack_tokens() -> World {
    let world = drained().await;
    world.tokens(TPM, 1_000, 60).await;
    world
}

fn both(tokens: i32) -> Request<'static> {
    Request::from([RPM, TPM]).cost(TPM, tokens).ticket_within(MINUTE)
}

async fn ticket_for(client: &Client, request: Request<'static>) -> Ticket {
    let refused = refused(client, request).await;
    refused.ticket().unwrap_or_else(|| panic!("{refused}")).to_string().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_ticket_books_what_refuses_and_its_redeemer_takes_the_rest() {
    let world = slack_tokens().await;
    let ticket = ticket_for(&world.client(), both(400)).await;
    assert_eq!(ticket.dimensions(), [dimension(RPM)]);
    assert!(ticket.to_string().starts_with("4."), "a client that knows no rest must not redeem it: {ticket}");
    assert_eq!((world.level(RPM).await.as_str(), world.level(TPM).await.as_str()), ("-1", "1000"));
    assert_eq!(ticket.use_by().since(ticket.start_at()), Duration::from_secs(9), "as long as alone");
    world.pass(Duration::from_secs(1));
    let grant = redeem(&world.client(), &ticket).await.granted().unwrap();
    assert_eq!(
        (grant.cost(RPM), grant.cost(TPM)),
        (Some(Amount::from_tokens(1)), Some(Amount::from_tokens(400)))
    );
    grant.release().await.unwrap();
    settle().await;
    assert_eq!((level(&world, RPM).await.as_str(), level(&world, TPM).await.as_str()), ("0", "600"));
    assert!(carried(&world.client()).await.to_string().starts_with("3."), "one dimension has no rest");
}

#[tokio::test(start_paused = true)]
async fn what_refuses_is_booked_together_if_one_ticket_can_hold_it() {
    let world = slack_tokens().await;
    let client = world.client();
    let _ = take(&client, Request::from(TPM).cost(TPM, 500)).await;
    let first = refused(&client, both(600)).await;
    assert_eq!((first.dimension().as_str(), first.wait().as_secs()), (TPM, 6));
    assert_eq!((world.level(RPM).await.as_str(), level(&world, TPM).await.as_str()), ("-1", "-100"));
    world.pass(first.wait());
    let ticket: Ticket = first.ticket().unwrap().to_string().parse().unwrap();
    assert_eq!(ticket.dimensions(), [dimension(TPM), dimension(RPM)], "the latest start first");
    // Changed on the way.
    let other: Ticket = ticket.to_string().replace("tpm", "rpd").parse().unwrap();
    world.rate(RPD, 10, 86_400).await;
    let altered = world.client().redeem(&other).await.unwrap_err();
    assert!(matches!(altered, RedeemError::Altered { .. }), "{altered}");
    let grant = redeem(&world.client(), &ticket).await.granted().unwrap();
    assert_eq!(
        (grant.cost(RPM), grant.cost(TPM)),
        (Some(Amount::from_tokens(1)), Some(Amount::from_tokens(600)))
    );
    // The next start of tokens is 36 s away, and a call that is there in a second would overflow by then.
    let _ = take(&client, Request::from(RPM).cost(RPM, 5)).await;
    let second = refused(&client, both(600)).await;
    assert_eq!((second.dimension().as_str(), second.wait().as_secs()), (TPM, 36));
    assert_eq!(second.ticket().unwrap().dimensions(), [dimension(TPM)]);
    assert_eq!(level(&world, RPM).await, "0", "it is not booked");
}

/// A client that has seen neither row, or whose readings are out of date, learns from what it is told.
#[tokio::test(start_paused = true)]
async fn readings_that_are_out_of_date_cost_an_attempt_and_no_tokens() {
    let world = World::with_rate(RPM, 10, 10).await;
    world.tokens(TPM, 1_000, 60).await;
    let client = world.client();
    let _ = take(&client, Request::from([RPM, TPM]).cost(TPM, 100)).await;
    // Another process takes all of one.
    let other = world.client();
    let _ = take(&other, Request::from(TPM).cost(TPM, 900)).await;
    world.pass(Duration::from_secs(2));
    let ticket = ticket_for(&client, both(500)).await;
    settle().await;
    assert_eq!(ticket.dimensions(), [dimension(TPM)]);
    assert_eq!(world.level(RPM).await, "10", "what was granted beside the refusal is back");
    // And all of the other, while somebody gives back what this one knows to be booked.
    let _ = take(&other, Request::from(RPM).cost(RPM, 10)).await;
    world.add_tokens(TPM, "1400").await;
    let ticket = ticket_for(&client, both(500)).await;
    settle().await;
    assert_eq!(ticket.dimensions(), [dimension(RPM)]);
    assert!(level(&world, TPM).await.parse::<f64>().unwrap() >= 930.0, "{}", level(&world, TPM).await);
    world.add_tokens(RPM, "5").await;
    let granted = take(&client, both(500)).await;
    assert_eq!(
        (granted.booked_wait(), granted.dimensions().count()),
        (Duration::ZERO, 2),
        "both are there by now"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_is_not_there_leaves_the_ticket_good_for_later() {
    let world = slack_tokens().await;
    let ticket = ticket_for(&world.client(), both(100)).await;
    world.pass(Duration::from_secs(1));
    let other = world.client();
    let _ = take(&other, Request::from(TPM).cost(TPM, 1_000)).await;
    let worker = world.client();
    let Redeemed::RetryIn(retry) = redeem(&worker, &ticket).await else { panic!("nothing is left") };
    assert_eq!((retry.dimension().as_str(), retry.reason()), (TPM, RetryReason::Exhausted));
    assert_eq!((retry.wait().as_secs(), retry.ticket()), (6, Some(&ticket)));
    world.pass(retry.wait());
    assert!(is_granted(&worker, &ticket).await);
    settle().await;
    assert_eq!(level(&world, TPM).await, "0");
}

/// Nine seconds after its start the ticket has lapsed: a longer wait has none.
#[tokio::test(start_paused = true)]
async fn a_rest_that_comes_after_the_end_of_the_ticket_ends_it() {
    let world = slack_tokens().await;
    let ticket = ticket_for(&world.client(), both(200)).await;
    world.pass(Duration::from_secs(1));
    let _ = take(&world.client(), Request::from(TPM).cost(TPM, 1_000)).await;
    let Redeemed::RetryIn(retry) = redeem(&world.client(), &ticket).await else { panic!("nothing is left") };
    assert_eq!(
        (retry.wait().as_secs(), retry.ticket(), retry.no_ticket()),
        (12, None, Some(NoTicket::RestTooLate))
    );
    assert!(
        retry
            .to_string()
            .ends_with("; no ticket: what was not booked is not there before the end of the ticket")
    );
}

#[tokio::test(start_paused = true)]
async fn two_redeemers_at_once_take_the_rest_once() {
    let world = slack_tokens().await;
    let ticket = ticket_for(&world.client(), both(400)).await;
    world.pass(Duration::from_secs(1));
    let world = world.distant();
    let redeeming = [world.client(), world.client()].map(|client| {
        let ticket = ticket.clone();
        tokio::spawn(async move { redeem(&client, &ticket).await })
    });
    let mut granted = Vec::new();
    for redeemed in redeeming {
        match redeemed.await.unwrap() {
            Redeemed::Granted(grant) => granted.push(grant),
            other => assert!(matches!(other, Redeemed::Spent), "{other:?}"),
        }
    }
    assert_eq!(granted.len(), 1);
    settle().await;
    let returned =
        world.row(TPM).await.unwrap().get("returned").map(|returned| returned.as_n().unwrap().clone());
    assert_eq!(returned.as_deref(), Some("400"), "both took the rest, and one gave it back");
    assert_eq!(world.whole_level(TPM).await, "600");
}

#[tokio::test(start_paused = true)]
async fn a_redeemer_that_goes_away_gives_back_the_rest_too() {
    let world = slack_tokens().await;
    let (client, ticket) = (world.client(), ticket_for(&world.client(), both(400)).await);
    world.pass(Duration::from_secs(1));
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = begin(client.redeem(&ticket)).await;
    gate.reached().await;
    drop(redeeming);
    gate.open();
    settle().await;
    assert_eq!((level(&world, RPM).await.as_str(), level(&world, TPM).await.as_str()), ("1", "1000"));
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_lost_or_taken_back_gives_back_the_rest() {
    let world = slack_tokens().await;
    let (client, ticket) = (world.client(), ticket_for(&world.client(), both(400)).await);
    world.pass(Duration::from_secs(1));
    // A cool-down is set after the reads.
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = {
        let (client, ticket) = (client.clone(), ticket.clone());
        tokio::spawn(async move { redeem(&client, &ticket).await })
    };
    gate.reached().await;
    world.client().cool_down(RPM, Duration::from_secs(3)).await.unwrap();
    gate.open();
    let Redeemed::RetryIn(retry) = redeeming.await.unwrap() else { panic!("it cools down") };
    assert_eq!((retry.reason(), retry.ticket()), (RetryReason::CoolingDown, Some(&ticket)));
    assert_eq!(level(&world, TPM).await, "1000");
    world.pass(retry.wait());
    // The table is out from the claim on.
    let key = ticket.key();
    world.dynamo.faults().draw(move |call| {
        let claims =
            call.operation == Operation::UpdateItem && String::from_utf8_lossy(call.body).contains(&key);
        claims.then_some(Fault::LoseRequest)
    });
    assert!(client.redeem(&ticket).await.is_err());
    world.dynamo.faults().clear();
    settle().await;
    assert_eq!(level(&world, TPM).await, "1000");
    assert!(is_granted(&client, &ticket).await, "it was never claimed");
    settle().await;
    assert_eq!(level(&world, TPM).await, "600");
}

/// For lease rows, and for leases inline.
#[tokio::test(start_paused = true)]
async fn a_slot_is_taken_when_the_ticket_is_redeemed() {
    for leases in [Leases::Concurrent, Leases::Inline] {
        let world = drained().await;
        world.slots(SLOT, 1).await;
        let client = || world.client_with(|settings| settings.leases(leases));
        let request = || Request::from([RPM, SLOT]).ticket_within(MINUTE);
        let ticket = ticket_for(&client(), request()).await;
        assert_eq!((ticket.dimensions(), world.free(SLOT).await.as_str()), (&[dimension(RPM)][..], "1"));
        let second = ticket_for(&client(), request()).await;
        world.pass(Duration::from_secs(2));
        let grant = redeem(&client(), &ticket).await.granted().unwrap();
        assert!(grant.lease_ends().is_some());
        assert_eq!(world.free(SLOT).await, "0");
        let Redeemed::RetryIn(retry) = redeem(&client(), &second).await else { panic!("the slot is held") };
        assert_eq!((retry.reason(), retry.ticket()), (RetryReason::NoFreeSlot, Some(&second)), "{leases:?}");
        grant.release().await.unwrap();
        let grant = redeem(&client(), &second).await.granted().unwrap();
        grant.release().await.unwrap();
        assert_eq!((world.free(SLOT).await.as_str(), world.leases().await), ("1", 0));
        assert_eq!(level(&world, RPM).await, "0");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_a_capacity_is_an_error_although_another_bucket_refuses() {
    let world = slack_tokens().await;
    let error = world.client().acquire(both(1_001)).await.unwrap_err();
    assert!(matches!(error, AcquireError::NeverSatisfiable { .. }), "{error}");
    assert_eq!((world.level(RPM).await.as_str(), world.level(TPM).await.as_str()), ("0", "1000"));
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_of_the_rest_that_is_over_by_the_start_is_no_obstacle() {
    let world = slack_tokens().await;
    let client = world.client();
    client.cool_down(TPM, Duration::from_millis(900)).await.unwrap();
    let ticket = ticket_for(&client, both(100)).await;
    world.pass(Duration::from_secs(1));
    assert!(is_granted(&client, &ticket).await);
    client.cool_down(TPM, Duration::from_secs(5)).await.unwrap();
    let refused = refused(&client, both(100)).await;
    assert_eq!(
        (refused.reason(), refused.no_ticket()),
        (RetryReason::CoolingDown, Some(NoTicket::CoolingDown))
    );
    assert_eq!(level(&world, RPM).await, "0", "nothing is booked");
}

/// A bucket that fills up within a second cannot be booked: it is taken when the ticket of the others is
/// redeemed.
#[tokio::test(start_paused = true)]
async fn a_bucket_of_a_second_is_part_of_the_rest_or_refuses_without_a_write() {
    let world = drained().await;
    world.rate(RPD, 10, 1).await;
    let client = world.client();
    let two = || Request::from([RPM, RPD]).ticket_within(MINUTE);
    let _ = take(&client, Request::from(RPD).cost(RPD, 10)).await;
    let ticket = ticket_for(&client, two()).await;
    assert_eq!((ticket.dimensions(), world.level(RPD).await.as_str()), (&[dimension(RPM)][..], "0"));
    world.pass(Duration::from_secs(2));
    assert!(is_granted(&client, &ticket).await);
    let all = take(&client, Request::from(RPD).cost(RPD, 9)).await;
    world.dynamo.meter().reset();
    let refused = refused(&client, two()).await;
    assert_eq!((refused.dimension().as_str(), refused.no_ticket()), (RPD, Some(NoTicket::TooShort)));
    assert_eq!(world.dynamo.meter().reset().write_units, 0);
    drop(all);
}

/// What a refusal without a ticket says, and that nothing stays booked.
#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_ticket_says_why() {
    let world = drained().await;
    world.slots(SLOT, 1).await;
    world.rate(RPD, 10, 1).await;
    world.tokens(TPM, 1_000, 60).await;
    let client = world.client();
    let _slot = take(&client, SLOT).await;
    let _day = take(&client, Request::from(RPD).cost(RPD, 10)).await;
    let all_leases = world.client_with(|settings| settings.leases(Leases::All));
    for (client, request, why, text) in [
        // Its tokens would overflow as soon as they are there.
        (&client, booking().cost(RPM, 10), NoTicket::TooShort, "its start cannot be kept"),
        // As would those of a bucket that fills up in a second.
        (&client, Request::from(RPD).ticket_within(MINUTE), NoTicket::TooShort, "its start cannot be kept"),
        (
            &client,
            booking().cost(RPM, 9).ticket_within(Duration::from_secs(8)),
            NoTicket::TooFarAhead,
            "no start was booked as close",
        ),
        (
            &client,
            both(500).cost(RPM, 9).ticket_within(Duration::from_secs(8)),
            NoTicket::TooFarAhead,
            "no start was booked as close",
        ),
        (
            &client,
            Request::from([TPM, SLOT]).cost(TPM, 1).ticket_within(MINUTE),
            NoTicket::NoFreeSlot,
            "a slot cannot be booked",
        ),
        (&client, Request::from(SLOT).ticket_within(MINUTE), NoTicket::NoFreeSlot, "a slot cannot be booked"),
        (&all_leases, booking(), NoTicket::LeaseRows, "lease row"),
    ] {
        let told = format!("{request:?}");
        let refused = refused(client, request).await;
        assert_eq!((refused.ticket(), refused.no_ticket()), (None, Some(why)), "{told}");
        assert!(
            refused.to_string().contains("; no ticket: ") && refused.to_string().contains(text),
            "{refused}"
        );
        settle().await;
        assert_eq!(level(&world, RPM).await, "0", "{told}");
        assert_eq!(level(&world, RPD).await, "0", "{told}");
        assert_eq!(level(&world, TPM).await, "1000", "{told}");
    }
    let unasked = refused(&client, RPM).await;
    assert_eq!((unasked.no_ticket(), unasked.to_string().contains("ticket")), (None, false));
    assert_eq!(refused(&client, booking()).await.no_ticket(), None, "it has one");
    world.dynamo.faults().always(Operation::UpdateItem, Fault::throttled());
    assert_eq!(refused(&world.client(), booking()).await.no_ticket(), Some(NoTicket::Contended));
    world.dynamo.faults().clear();
    client.cool_down(RPM, Duration::from_secs(2)).await.unwrap();
    assert_eq!(refused(&client, booking()).await.no_ticket(), Some(NoTicket::CoolingDown));
}

#[tokio::test(start_paused = true)]
async fn while_dynamodb_is_out_a_refusal_of_the_process_itself_says_so() {
    let world = World::with_rate(RPM, 10, 10).await;
    let share = OnUnavailable::Share("0.1".parse().unwrap());
    let client = world.client_with(|settings| settings.on_unavailable(share));
    let _ = take(&client, RPM).await;
    // Full again: a tenth of what is there is one call.
    world.pass(Duration::from_secs(10));
    world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
    let _ = take(&client, booking()).await;
    assert_eq!(refused(&client, booking()).await.no_ticket(), Some(NoTicket::Outage));
}
