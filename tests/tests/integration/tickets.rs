//! Tickets: a start that is booked here and redeemed there, once.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, LimitType, Rate};
use sluice_sdk::{
    AcquireError, Client, Leases, RedeemError, Redeemed, Request, RetryIn, RetryReason, StoreError, SweepOptions,
    Ticket,
};
use sluice_testkit::{Fault, Operation, Usage};

use crate::world::{World, begin, dimension, number, requests, settle, text};

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
    assert_eq!((first.dimensions(), second.start_at().since(first.start_at()).as_secs()), (&[dimension(RPM)][..], 1));
    world.pass(Duration::from_secs(2));
    let worker = world.client();
    for ticket in [first, second] {
        let grant = redeem(&worker, &ticket.to_string().parse().unwrap()).await.granted().unwrap();
        assert_eq!((grant.cost(RPM), grant.booked_wait()), (Some(Amount::from_tokens(1)), Duration::ZERO));
        grant.release().await.unwrap();
    }
    settle().await;
    assert_eq!(world.level(RPM).await, "0", "nothing was taken twice, and nothing came back");
    assert!(world.row(&first.key()).await.is_none(), "its row is gone");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_there_now_is_granted_and_one_too_far_ahead_takes_nothing() {
    let world = World::with_rate(RPM, 10, 10).await;
    let client = world.client();
    assert!(client.acquire(booking().cost(RPM, 10)).await.unwrap().granted().is_some());
    let refused = refused(&client, Request::from(RPM).cost(RPM, 5).ticket_within(Duration::from_secs(4))).await;
    assert_eq!((refused.wait(), refused.ticket()), (Duration::from_secs(5), None));
    assert_eq!(world.level(RPM).await, "0");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_redeemed_again_is_spent() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    assert!(is_granted(&world.client(), &ticket).await);
    // At once, while its row may be there, and when it is gone.
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
    assert!(is_granted(&world.client(), &tickets[0]).await);
    world.dynamo.meter().reset();
    world.pass(Duration::from_millis(1_100));
    assert!(matches!(redeem(&world.client(), &tickets[1]).await, Redeemed::Lapsed));
    assert_eq!(world.dynamo.meter().reset().requests, 0, "its own text says so");
    assert_eq!(world.level(RPM).await, "9.09", "the line is what it was");
}

/// The reading and the write are two: a process that is frozen in between must not use what has lapsed meanwhile.
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
    let listed = world.client().buckets().await.unwrap();
    assert_eq!(listed.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), [RPM], "a ticket is no bucket");
    assert_eq!(world.leases().await, 0, "and no lease");
    let swept = world.client().sweep(SweepOptions::default()).await.unwrap();
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
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_millis(400));
    world.dynamo.meter().reset();
    let Redeemed::RetryIn(retry) = redeem(&world.client(), &ticket).await else { panic!() };
    assert_eq!(
        (retry.wait(), retry.reason(), retry.ticket()),
        (Duration::from_millis(600), RetryReason::Exhausted, Some(&ticket))
    );
    assert_eq!(world.dynamo.meter().reset().requests, 0);
    // A text that was changed to say that it starts sooner: the row decides.
    let mut parts: Vec<String> = ticket.to_string().split('.').map(str::to_owned).collect();
    parts[2] = "1".into();
    parts[3] = "zzzzzzzzzzzz".into();
    let Redeemed::RetryIn(retry) = redeem(&world.client(), &parts.join(".").parse().unwrap()).await else { panic!() };
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
    let request = world.dynamodb().update_item().table_name(world.table()).key(sluice_core::schema::KEY, text(RPM));
    let request = request.update_expression("SET blocked_until = :t");
    request.expression_attribute_values(":t", number(&ends.to_string())).send().await.unwrap();
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
        world.client().apply_limit(&dimension(RPM), &requests(capacity, window)).await.unwrap();
        world.pass(Duration::from_millis(500));
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Lapsed));
    }
}

/// What came back from before the booking is there for others: with a ticket that is late it would be one too many.
#[tokio::test(start_paused = true)]
async fn a_ticket_counts_what_others_gave_back_meanwhile() {
    let world = drained().await;
    let tickets = [carried(&world.client()).await, carried(&world.client()).await];
    world.pass(Duration::from_secs(3));
    // As a return of another process leaves the row: four of the ten that were taken before.
    let request = world.dynamodb().update_item().table_name(world.table()).key(sluice_core::schema::KEY, text(RPM));
    let request = request.update_expression("SET tokens = tokens + :k, returned = :k, version = version + :k");
    request.expression_attribute_values(":k", number("4")).send().await.unwrap();
    world.pass(Duration::from_millis(2_900));
    assert!(is_granted(&world.client(), &tickets[0]).await, "4.9 s late, with one call and 9 - 4 tokens of room");
    world.pass(Duration::from_millis(1_200));
    assert!(tickets[1].use_by() > world.dynamo.clock().now(), "without the return it would be good");
    assert!(matches!(redeem(&world.client(), &tickets[1]).await, Redeemed::Lapsed));
}

#[tokio::test(start_paused = true)]
async fn whatever_reply_is_lost_a_ticket_is_granted_once_and_spent_after() {
    use Operation::{DeleteItem, GetItem, PutItem, UpdateItem};
    for (operation, fault) in [
        (PutItem, Fault::LoseReply),
        (PutItem, Fault::LoseRequest),
        (PutItem, Fault::Repeat),
        (PutItem, Fault::FailAfterwards),
        (PutItem, Fault::throttled()),
        (GetItem, Fault::LoseReply),
        (UpdateItem, Fault::LoseReply),
        (UpdateItem, Fault::LoseRequest),
        (UpdateItem, Fault::FailAfterwards),
        (UpdateItem, Fault::Late(Duration::from_secs(5))),
        (UpdateItem, Fault::throttled()),
        (DeleteItem, Fault::LoseReply),
        (DeleteItem, Fault::LoseRequest),
    ] {
        let world = drained().await;
        if operation == PutItem {
            world.dynamo.faults().next(operation, fault.clone());
        }
        let ticket = carried(&world.client()).await;
        world.pass(Duration::from_secs(1));
        if operation != PutItem {
            world.dynamo.faults().next(operation, fault.clone());
        }
        assert!(is_granted(&world.client(), &ticket).await, "{operation:?} {fault:?}");
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent), "{operation:?} {fault:?}");
        assert!(world.row(&ticket.key()).await.is_none(), "{operation:?} {fault:?}: its row is gone");
    }
}

/// Sent twice and told of once, the second would find its own mark and grant twice, were marks not unlike each other.
#[tokio::test(start_paused = true)]
async fn a_redemption_that_arrives_twice_is_one_and_keeps_others_out() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    world.dynamo.faults().next(Operation::UpdateItem, Fault::Repeat);
    assert!(is_granted(&world.client(), &ticket).await);
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_its_redeemer_cannot_remove_is_for_the_ttl_and_stays_spent() {
    let world = drain({
        let world = World::embedded().await;
        world.rate(RPM, 10, 10).await;
        world
    })
    .await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    world.dynamo.faults().always(Operation::DeleteItem, Fault::LoseRequest);
    assert!(is_granted(&world.client(), &ticket).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
    assert_eq!(world.dynamo.sweep_ttl().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_whose_row_cannot_be_made_is_a_refusal_and_its_booking_goes_back() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::throttled()] {
        let world = drained().await;
        world.dynamo.faults().always(Operation::PutItem, fault.clone());
        let began = world.dynamo.clock().now();
        let refused = refused(&world.client(), booking()).await;
        let passed = world.dynamo.clock().now().since(began);
        assert_eq!(
            (refused.ticket(), refused.wait()),
            (None, Duration::from_secs(1).saturating_sub(passed)),
            "{fault:?}"
        );
        let level: f64 = world.level(RPM).await.parse().unwrap();
        assert!((level - passed.as_secs_f64()).abs() < 0.001, "{fault:?}: {level} after {passed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_could_not_use_its_ticket_gets_none() {
    let world = drained().await;
    world.slots("openai#concurrent", 1).await;
    world.rate(TPM, 1_000, 1).await;
    world.rate("openai#rpd", 10, 86_400).await;
    let client = world.client();
    let all_leases = world.client_with(|settings| settings.leases(Leases::All));
    for (client, request) in [
        // Its tokens would run over as soon as they are there.
        (&client, booking().cost(RPM, 10)),
        // A second's worth of tokens would have run over ten times by the start of the other.
        (&client, Request::from([RPM, TPM]).cost(RPM, 9).cost(TPM, 500).ticket_within(MINUTE)),
        (&client, Request::from([RPM, "openai#concurrent"]).ticket_within(MINUTE)),
        (&all_leases, booking()),
    ] {
        let told = format!("{request:?}");
        assert_eq!(refused(client, request).await.ticket(), None, "{told}");
        settle().await;
        assert_eq!(world.level(RPM).await, "0", "{told}");
        assert_eq!((world.level(TPM).await.as_str(), world.free("openai#concurrent").await.as_str()), ("1000", "1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_over_several_dimensions_is_all_or_nothing() {
    let world = drained().await;
    let tokens = Limit::rate(
        LimitType::Tokens,
        Amount::from_tokens(1_000),
        Rate::per(Amount::from_tokens(1_000), MINUTE).unwrap(),
        Cost::ONE,
    );
    world.client().apply_limit(&dimension(TPM), &tokens.unwrap()).await.unwrap();
    let client = world.client();
    let half = client.acquire(Request::from(TPM).cost(TPM, 500)).await.unwrap();
    assert!(half.granted().is_some());
    let both = || Request::from([RPM, TPM]).cost(TPM, 600).ticket_within(MINUTE);
    let first = refused(&client, both()).await;
    assert_eq!((first.dimension().as_str(), first.wait().as_secs()), (TPM, 6));
    assert_eq!(world.level(RPM).await, "-1");
    assert!(world.level(TPM).await.starts_with("-100"), "{}", world.level(TPM).await);
    world.pass(first.wait());
    let ticket: Ticket = first.ticket().unwrap().to_string().parse().unwrap();
    assert_eq!(ticket.dimensions(), [dimension(TPM), dimension(RPM)], "the latest start first");
    // Changed on the way.
    let other: Ticket = ticket.to_string().replace("tpm", "rpd").parse().unwrap();
    world.rate("openai#rpd", 10, 86_400).await;
    let altered = world.client().redeem(&other).await.unwrap_err();
    assert!(matches!(altered, RedeemError::Altered { .. }), "{altered}");
    let grant = redeem(&world.client(), &ticket).await.granted().unwrap();
    assert_eq!((grant.cost(RPM), grant.cost(TPM)), (Some(Amount::from_tokens(1)), Some(Amount::from_tokens(600))));
    let before = (world.level(RPM).await, world.level(TPM).await);
    let second = refused(&client, both()).await;
    assert_eq!((second.dimension().as_str(), second.wait().as_secs()), (TPM, 36));
    assert_eq!(second.ticket(), None, "the call that it has would have run over by then");
    assert_eq!((world.level(RPM).await, world.level(TPM).await), before, "both went back");
}

#[tokio::test(start_paused = true)]
async fn a_redeemer_that_goes_away_gives_back_what_it_redeemed() {
    let world = drained().await;
    let (client, ticket) = (world.client(), carried(&world.client()).await);
    world.pass(Duration::from_secs(1));
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = begin(client.redeem(&ticket)).await;
    gate.reached().await;
    drop(redeeming);
    gate.open();
    settle().await;
    assert_eq!(world.level(RPM).await, "1");
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_its_ticket_is_made_loses_it_and_nothing_is_spent_twice() {
    let world = drained().await;
    let client = world.client();
    let _known = carried(&client).await;
    let gate = world.dynamo.faults().hold_next(Operation::PutItem);
    let acquiring = begin(client.acquire(booking())).await;
    tokio::select! {
        () = gate.reached() => {}
        _ = acquiring => panic!("it waits at the gate"),
    }
    gate.open();
    settle().await;
    assert_eq!(world.level(RPM).await, "-2", "its row has the tokens, until they have refilled");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_good_after_an_outage() {
    let world = drained().await;
    let (client, ticket) = (world.client(), carried(&world.client()).await);
    world.pass(Duration::from_secs(1));
    for operation in [Operation::GetItem, Operation::UpdateItem] {
        world.dynamo.faults().always(operation, Fault::LoseRequest);
        let error = client.redeem(&ticket).await.unwrap_err();
        let RedeemError::Acquire(AcquireError::Store(error)) = error else { panic!("{error}") };
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        world.dynamo.faults().clear();
    }
    world.dynamo.faults().always(Operation::GetItem, Fault::throttled());
    let Redeemed::RetryIn(retry) = redeem(&client, &ticket).await else { panic!() };
    assert_eq!((retry.reason(), retry.ticket()), (RetryReason::Contended, Some(&ticket)));
    world.dynamo.faults().clear();
    assert!(is_granted(&client, &ticket).await);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_is_told_with_the_attribute() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    let mut row = world.row(&ticket.key()).await.unwrap();
    row.insert("booked".into(), number("5"));
    world.put(row).await;
    let error = world.client().redeem(&ticket).await.unwrap_err();
    assert!(matches!(error, RedeemError::CorruptTicket { .. }), "{error}");
    assert!(error.to_string().contains(&ticket.key()) && error.to_string().contains("booked"), "{error}");
    world.client().remove_bucket(&dimension(RPM)).await.unwrap();
    let gone = world.client().redeem(&ticket).await.unwrap_err();
    assert!(matches!(gone, RedeemError::CorruptTicket { .. }), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_one_more_write_to_book_and_one_to_redeem_and_one_to_remove() {
    let world = drain({
        let world = World::embedded().await;
        world.rate(RPM, 10, 10).await;
        world
    })
    .await;
    let client = world.client();
    let _known = carried(&client).await;
    let meter = world.dynamo.meter();
    meter.reset();
    let ticket = carried(&client).await;
    assert_eq!(meter.reset(), Usage { requests: 2, write_units: 2, read_units: 0.0 });
    world.pass(Duration::from_secs(3));
    assert!(is_granted(&client, &ticket).await);
    settle().await;
    assert_eq!(meter.of(Operation::GetItem), Usage { requests: 2, write_units: 0, read_units: 2.0 });
    assert_eq!(meter.reset(), Usage { requests: 4, write_units: 2, read_units: 2.0 });
}

#[tokio::test(start_paused = true)]
async fn tickets_and_callers_in_line_share_one_order() {
    let world = drained().await;
    let client = world.client();
    let ticket = carried(&client).await;
    let began = tokio::time::Instant::now();
    client.slot(RPM).run(async |_| Ok::<_, std::io::Error>(())).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2, "behind the ticket");
    assert!(is_granted(&client, &ticket).await);
    let refused = refused(&client, RPM).await;
    assert_eq!((refused.ticket(), refused.wait().as_millis()), (None, 1_000 - began.elapsed().as_millis() % 1_000));
}
