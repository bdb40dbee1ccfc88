//! Tickets when something goes wrong: lost replies, callers that leave, rows that cannot be made or read; and
//! what they cost.

use sluice_sdk::NoTicket;

use super::*;

#[tokio::test(start_paused = true)]
async fn whatever_reply_is_lost_a_ticket_is_granted_once_and_spent_after() {
    use Operation::{GetItem, PutItem, UpdateItem};
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
    }
}

/// The write that makes the row is sent twice, and the first send arrives when the ticket has been redeemed.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_made_late_is_no_second_ticket() {
    let world = drain({
        let world = World::embedded().await;
        world.rate(RPM, 10, 10).await;
        world
    })
    .await;
    world.dynamo.faults().next(Operation::PutItem, Fault::Late(Duration::from_secs(4)));
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    assert!(is_granted(&world.client(), &ticket).await);
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent), "granted twice");
    }
    // DynamoDB deletes it by itself, a minute after it was redeemed.
    world.pass(Duration::from_secs(57));
    world.dynamo.sweep_ttl().unwrap();
    assert!(world.row(&ticket.key()).await.is_none());
}

/// A redemption is sent twice and one reply arrives: with equal marks, the second would find its own mark and
/// grant twice.
#[tokio::test(start_paused = true)]
async fn a_redemption_that_arrives_twice_is_one_and_keeps_others_out() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    world.dynamo.faults().next(Operation::UpdateItem, Fault::Repeat);
    assert!(is_granted(&world.client(), &ticket).await);
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent));
}

/// All that follows the booking hangs: the write of the row, and the return of what was booked.
#[tokio::test(start_paused = true)]
async fn a_ticket_whose_row_hangs_keeps_its_caller_for_the_time_to_an_answer() {
    let world = drained().await;
    let client = world.client();
    let _ = client.acquire(RPM).await.unwrap();
    let is_out = AtomicBool::new(false);
    world.dynamo.faults().draw(move |call| {
        is_out.fetch_or(call.operation == Operation::PutItem, Ordering::SeqCst);
        is_out.load(Ordering::SeqCst).then_some(Fault::Hang)
    });
    let began = tokio::time::Instant::now();
    assert_eq!(refused(&client, booking()).await.ticket(), None);
    let took = began.elapsed();
    assert!(took > Duration::from_secs(2) && took <= client.longest_acquire(), "{took:?}");
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
            (refused.ticket(), refused.no_ticket(), refused.wait()),
            (None, Some(NoTicket::NotWritten), Duration::from_secs(1).saturating_sub(passed)),
            "{fault:?}"
        );
        let level: f64 = world.level(RPM).await.parse().unwrap();
        assert!((level - passed.as_secs_f64()).abs() < 0.001, "{fault:?}: {level} after {passed:?}");
    }
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

/// Redeems while `fault` meets the write that takes the claim back, which a cool-down calls for that is set
/// between the reads and the claim.
async fn redeem_into_a_cool_down(world: &World, ticket: &Ticket, fault: Option<Fault>) -> Redeemed {
    let claiming = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = {
        let (client, ticket) = (world.client(), ticket.clone());
        tokio::spawn(async move { redeem(&client, &ticket).await })
    };
    claiming.reached().await;
    world.client().cool_down(RPM, Duration::from_secs(3)).await.unwrap();
    fault.into_iter().for_each(|fault| world.dynamo.faults().next(Operation::UpdateItem, fault));
    claiming.open();
    redeeming.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_that_is_set_between_the_reads_and_the_claim_keeps_the_ticket_good() {
    for fault in [None, Some(Fault::LoseReply), Some(Fault::LoseRequest), Some(Fault::Repeat)] {
        let world = drained().await;
        let ticket = carried(&world.client()).await;
        world.pass(Duration::from_secs(1));
        let told = format!("{fault:?}");
        let Redeemed::RetryIn(retry) = redeem_into_a_cool_down(&world, &ticket, fault).await else {
            panic!("{told}")
        };
        assert_eq!((retry.reason(), retry.ticket()), (RetryReason::CoolingDown, Some(&ticket)), "{told}");
        assert!(retry.wait() > Duration::from_secs(2) && retry.wait() <= Duration::from_secs(3), "{told}");
        settle().await;
        world.pass(retry.wait());
        assert!(is_granted(&world.client(), &ticket).await, "{told}");
        settle().await;
        assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_taken_back_leaves_no_ticket_and_its_tokens_refill() {
    let world = drained().await;
    let ticket = carried(&world.client()).await;
    world.pass(Duration::from_secs(1));
    let claiming = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let redeeming = {
        let (client, ticket) = (world.client(), ticket.clone());
        tokio::spawn(async move { redeem(&client, &ticket).await })
    };
    claiming.reached().await;
    world.client().cool_down(RPM, Duration::from_secs(3)).await.unwrap();
    let reading = world.dynamo.faults().hold_next(Operation::GetItem);
    claiming.open();
    reading.reached().await;
    world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
    reading.open();
    let Redeemed::RetryIn(retry) = redeeming.await.unwrap() else { panic!() };
    assert_eq!((retry.reason(), retry.no_ticket()), (RetryReason::CoolingDown, Some(NoTicket::ClaimLost)));
    world.dynamo.faults().clear();
    world.pass(Duration::from_secs(10));
    assert!(matches!(redeem(&world.client(), &ticket).await, Redeemed::Spent | Redeemed::Lapsed));
    assert_eq!(world.level(RPM).await, "10");
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
    let mut with_rest = row.clone();
    with_rest.insert("rest".into(), number("5"));
    world.put(with_rest).await;
    let error = world.client().redeem(&ticket).await.unwrap_err();
    assert!(
        matches!(error, RedeemError::CorruptTicket { .. }) && error.to_string().contains("rest"),
        "{error}"
    );
    row.insert("booked".into(), number("5"));
    world.put(row).await;
    let error = world.client().redeem(&ticket).await.unwrap_err();
    assert!(matches!(error, RedeemError::CorruptTicket { .. }), "{error}");
    assert!(error.to_string().contains(&ticket.key()) && error.to_string().contains("booked"), "{error}");
    world.client().ops().remove_bucket(&dimension(RPM)).await.unwrap();
    let gone = world.client().redeem(&ticket).await.unwrap_err();
    assert!(matches!(gone, RedeemError::CorruptTicket { .. }), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_one_more_write_to_book_and_one_to_redeem() {
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
    assert_eq!(meter.of(Operation::GetItem), Usage { requests: 3, write_units: 0, read_units: 3.0 });
    assert_eq!(meter.reset(), Usage { requests: 4, write_units: 1, read_units: 3.0 });
}

#[tokio::test(start_paused = true)]
async fn tickets_and_callers_in_line_share_one_order() {
    let world = drained().await;
    let client = world.client();
    let ticket = carried(&client).await;
    let began = tokio::time::Instant::now();
    client.slot(RPM).run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2, "behind the ticket");
    assert!(is_granted(&client, &ticket).await);
    let refused = refused(&client, RPM).await;
    assert_eq!(
        (refused.ticket(), refused.wait().as_millis()),
        (None, 1_000 - began.elapsed().as_millis() % 1_000)
    );
}
