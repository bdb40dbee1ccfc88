//! Shares of a concurrency bucket: each has a row of its own, which lends what its callers leave. How they
//! change is in `changes`, and how they fare beside a product that wants all is in `noisy`.

use std::time::Duration;

use sluice_core::{Amount, Cost, DeclaredShare, Limit, Split};
use sluice_ops::{Applied, LimitsError, SweepOptions};
use sluice_sdk::{AcquireError, Client, Grant, LimitError, Request, RetryReason};
use sluice_testkit::Operation;
use tokio::time::{Instant, sleep, timeout};

mod changes;
mod noisy;

use super::{name, share};
use crate::kind::Kind;
use crate::world::{World, dimension, refusal, settle, take};

const CONCURRENT: &str = "elevenlabs#concurrent";
const SEARCH: &str = "elevenlabs#concurrent@search";
const BATCH: &str = "elevenlabs#concurrent@batch";

fn slots(slots: i32) -> Limit {
    Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap()
}

fn split(shares: &[DeclaredShare]) -> Split {
    Split::new(slots(10), shares).unwrap()
}

async fn apply(world: &World, split: &Split) -> Result<Applied, LimitsError> {
    world.client().ops().apply_split(&dimension(CONCURRENT), split).await
}

/// Ten slots: five for search, two for batch, three for all others.
async fn shared(kind: Kind) -> World {
    split_in(kind.world().await).await
}

async fn split_in(world: World) -> World {
    apply(&world, &split(&[share("search", "0.5"), share("batch", "0.2")])).await.unwrap();
    world
}

fn of(share: &str) -> Request<'static> {
    Request::from(CONCURRENT).share(share.to_owned()).into_owned()
}

/// The free slots of the rows: common, batch, search.
async fn free(world: &World) -> [String; 3] {
    [world.free(CONCURRENT).await, world.free(BATCH).await, world.free(SEARCH).await]
}

/// Takes as often as it is granted, and holds all.
async fn take_all(client: &Client, request: &Request<'static>) -> Vec<Grant> {
    let mut held = Vec::new();
    while let Some(grant) = client.acquire(request.clone()).await.unwrap().granted() {
        held.push(grant);
        // A lender is asked by a reading that is younger than this.
        sleep(Duration::from_millis(500)).await;
    }
    held
}

async fn give_back(grants: Vec<Grant>) {
    for grant in grants {
        grant.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_product_takes_its_own_slots_and_borrows_down_to_what_is_never_lent() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        assert_eq!(free(&world).await, ["3", "2", "5"]);
        let search = world.client_with(|settings| settings.share(name("search")));
        let own = take(&search, CONCURRENT).await;
        assert_eq!(
            (own.paid_from(CONCURRENT), own.cost(CONCURRENT)),
            (Some("search"), Some(Amount::from_tokens(1)))
        );
        assert_eq!(own.dimensions().collect::<Vec<_>>(), [&dimension(CONCURRENT)], "as it was asked for");
        own.release().await.unwrap();
        let held = take_all(&search, &CONCURRENT.into()).await;
        // Of three others keep one, of two one.
        assert_eq!((held.len(), free(&world).await), (8, ["1", "1", "0"].map(String::from)), "{kind:?}");
        let lent: Vec<_> = held.iter().filter_map(|grant| grant.paid_from(CONCURRENT)).collect();
        assert_eq!((lent.iter().filter(|line| **line == "common").count(), lent.len()), (2, 8), "{lent:?}");
        let retry = refusal(&search, CONCURRENT).await;
        assert_eq!((retry.reason(), retry.dimension()), (RetryReason::NoFreeSlot, &dimension(CONCURRENT)));
        let own = take(&world.client(), of("batch")).await;
        give_back(vec![own]).await;
        give_back(held).await;
        settle().await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "each slot went back to its lender ({kind:?})");
        assert_eq!(world.leases().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_know_no_shares_stay_within_the_common_line() {
    let world = shared(Kind::Rows).await;
    let bucket = world.bucket(CONCURRENT).await;
    assert_eq!(
        (bucket.limit().capacity(), bucket.tokens()),
        (Amount::from_tokens(3), Amount::from_tokens(3))
    );
    let whole = *world.bucket(CONCURRENT).await.split().whole();
    assert_eq!(whole.capacity(), Amount::from_tokens(10));
    // A share that the bucket does not have.
    let held = take_all(&world.client(), &of("other")).await;
    assert_eq!((held.len(), free(&world).await), (3 + 1 + 4, ["0", "1", "1"].map(String::from)));
}

#[tokio::test(start_paused = true)]
async fn a_background_share_borrows_last_and_lends_all() {
    let batch = DeclaredShare { background: true, ..share("batch", "0.2") };
    let world = Kind::Rows.world().await;
    apply(&world, &split(&[share("search", "0.5"), batch])).await.unwrap();
    let client = world.client();
    let background = take_all(&client, &of("batch")).await;
    assert_eq!((background.len(), free(&world).await), (2 + 1 + 3, ["2", "0", "2"].map(String::from)));
    give_back(background).await;
    let held = take_all(&client, &of("search")).await;
    assert_eq!((held.len(), free(&world).await), (5 + 2 + 2, ["1", "0", "0"].map(String::from)));
}

/// So that an operator sees who lends to whom. A renewal keeps it.
#[tokio::test(start_paused = true)]
async fn a_lease_says_which_share_borrowed() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let client = world.client();
        let mut held = take_all(&client, &of("search")).await;
        for grant in &mut held {
            grant.renew().await.unwrap();
        }
        let rows = client.ops().leases().await.unwrap();
        let leases = rows.iter().map(|row| row.lease.as_ref().unwrap());
        let mut told: Vec<_> =
            leases.map(|lease| (lease.dimension().as_str(), lease.borrowed_by())).collect();
        told.sort_unstable();
        let lent = [(CONCURRENT, Some("search")), (CONCURRENT, Some("search")), (BATCH, Some("search"))];
        assert_eq!((&told[..3], &told[3..]), (&lent[..], &[(SEARCH, None); 5][..]), "{kind:?}");
        give_back(held).await;
    }
}

/// The lease would name a borrower that does not hold it.
#[tokio::test(start_paused = true)]
async fn what_a_caller_borrowed_and_left_is_not_passed_to_the_lenders_own_callers() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let client = world.client();
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(take(&client, of("search")).await);
        }
        let gate = world.dynamo.faults().hold_next(kind.write());
        let borrower = tokio::spawn(Box::pin({
            let client = client.clone();
            async move { client.acquire(of("search")).await.unwrap().granted().is_some() }
        }));
        gate.reached().await;
        let own = tokio::spawn(Box::pin({
            let client = client.clone();
            async move { client.acquire(CONCURRENT).await.unwrap().granted().unwrap() }
        }));
        settle().await;
        borrower.abort();
        settle().await;
        gate.open();
        held.push(own.await.unwrap());
        settle().await;
        let rows = client.ops().leases().await.unwrap();
        let leases = rows.iter().map(|row| row.lease.as_ref().unwrap());
        let names: Vec<_> = leases.map(|lease| (lease.dimension().as_str(), lease.borrowed_by())).collect();
        assert_eq!(
            names.iter().filter(|(of, _)| *of == CONCURRENT).collect::<Vec<_>>(),
            [&(CONCURRENT, None)],
            "{kind:?}"
        );
        give_back(held).await;
    }
}

/// Its lease stands in the lender's row, or names it.
#[tokio::test(start_paused = true)]
async fn what_a_crashed_borrower_held_goes_back_to_its_lender() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let held = take_all(&world.client(), &of("search")).await;
        held.into_iter().for_each(std::mem::forget);
        world.pass_lease();
        let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!(
            (report.restored_slots, free(&world).await),
            (8, ["3", "2", "5"].map(String::from)),
            "{kind:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_borrows_soon_but_not_what_is_kept_for_others() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let (search, others) = (world.client_with(|settings| settings.share(name("search"))), world.client());
        let mut own = take_all(&search, &CONCURRENT.into()).await;
        let mut lent = take_all(&others, &CONCURRENT.into()).await;
        assert_eq!(free(&world).await, ["0", "1", "0"], "{kind:?}");
        let waits = search.slot(CONCURRENT).max_wait(Duration::from_secs(20));
        let waiting = waits.run(async |_| Ok::<_, LimitError>(()));
        let freeing = async {
            sleep(Duration::from_secs(5)).await;
            // One of three is kept for others, and only this one is free.
            give_back(vec![lent.remove(0)]).await;
        };
        let (ran, ()) = tokio::join!(waiting, freeing);
        assert!(matches!(ran, Err(LimitError::Refused(_))), "{kind:?}: {ran:?}");
        // One more, and it borrows.
        let waits = search.slot(CONCURRENT).max_wait(Duration::from_secs(20));
        let waiting = waits.run(async |slot| Ok::<_, LimitError>(slot.concurrency_limits().to_vec()));
        let freeing = async {
            sleep(Duration::from_secs(5)).await;
            let freed = Instant::now();
            let borrowed =
                own.iter().position(|grant| grant.paid_from(CONCURRENT) == Some("common")).unwrap();
            give_back(vec![own.remove(borrowed)]).await;
            freed
        };
        let (ran, freed) = tokio::join!(waiting, freeing);
        assert_eq!(
            ran.unwrap(),
            [dimension(CONCURRENT)],
            "a slot is of the limit, whichever row it is taken from"
        );
        let after = freed.elapsed();
        assert!(after < Duration::from_millis(2_500), "{kind:?}: {after:?}");
        give_back(lent).await;
        give_back(own).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_has_its_own_slot_at_once_and_learns_of_a_floor_within_ten_seconds() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let search = world.client_with(|settings| settings.share(name("search")));
        let others = world.client();
        let all_others = [take(&others, CONCURRENT).await, take(&others, CONCURRENT).await];
        let mut own = take_all(&search, &CONCURRENT.into()).await;
        assert_eq!(free(&world).await, ["1", "1", "0"], "{kind:?}");
        for is_own in [false, true] {
            let waits = search.slot(CONCURRENT).max_wait(Duration::from_secs(20));
            let waiting = waits
                .run(async |slot| Ok::<_, LimitError>((Instant::now(), slot.concurrency_limits().to_vec())));
            let freeing = async {
                sleep(Duration::from_secs(5)).await;
                let freed = Instant::now();
                if is_own {
                    give_back(vec![own.remove(0)]).await;
                } else {
                    // From now on, batch keeps none of its two.
                    others
                        .ops()
                        .apply_split(
                            &dimension(CONCURRENT),
                            &split(&[
                                share("search", "0.5"),
                                DeclaredShare { floor: Some(Amount::ZERO), ..share("batch", "0.2") },
                            ]),
                        )
                        .await
                        .unwrap();
                }
                freed
            };
            let (ran, freed) = tokio::join!(waiting, freeing);
            let (at, limits) = ran.unwrap();
            assert_eq!(
                limits,
                [dimension(CONCURRENT)],
                "a slot is of the limit, whichever row it is taken from"
            );
            let after = at - freed;
            assert!(
                after < Duration::from_secs(if is_own { 1 } else { 12 }),
                "{kind:?}: {after:?}, own: {is_own}"
            );
        }
        give_back(all_others.into()).await;
        give_back(own).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_is_for_all_rows_and_ends_in_all() {
    let world = shared(Kind::Rows).await;
    let search = world.client_with(|settings| settings.share(name("search")));
    search.cool_down(CONCURRENT, Duration::from_secs(60)).await.unwrap();
    let client = world.client();
    for request in [Request::from(CONCURRENT), of("search"), of("batch")] {
        assert_eq!(refusal(&client, request).await.reason(), RetryReason::CoolingDown);
    }
    client.end_cool_down(CONCURRENT).await.unwrap();
    let again = world.client();
    for request in [Request::from(CONCURRENT), of("search"), of("batch")] {
        take(&again, request).await.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_share_inside_of_one_of_the_same_limit_is_an_error() {
    let world = shared(Kind::Rows).await;
    let search = world.client_with(|settings| settings.share(name("search")));
    let nested = async |_| {
        assert!(search.is_inside_slot(CONCURRENT));
        search.slot(CONCURRENT).run(async |_| Ok::<_, LimitError>(())).await
    };
    let error = search.slot(CONCURRENT).run(nested).await.unwrap_err();
    assert!(error.to_string().contains("inside"), "{error}");
}

/// A bucket without shares costs what it cost: a caller of it reads and writes nothing more.
#[tokio::test(start_paused = true)]
async fn a_bucket_without_shares_costs_no_request_more() {
    let world = World::embedded().await;
    world.slots(CONCURRENT, 2).await;
    let client = world.client();
    take(&client, CONCURRENT).await.release().await.unwrap();
    world.dynamo.meter().reset();
    take(&client, CONCURRENT).await.release().await.unwrap();
    let requests = |operation| world.dynamo.meter().of(operation).requests;
    assert_eq!((requests(Operation::TransactWriteItems), world.dynamo.meter().total().requests), (2, 2));
}

/// The line is marked by callers of another process. A call that can have no slot of it has no turn among
/// them, and those of its own process behind it would wait for it.
#[tokio::test(start_paused = true)]
async fn a_call_that_fits_no_line_of_its_share_learns_that_at_once_though_others_wait() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let batch = || world.client_with(|settings| settings.share(name("batch")));
        let (holds, waits, asks) = (batch(), batch(), batch());
        let mut held = take_all(&holds, &CONCURRENT.into()).await;
        let patience = Duration::from_secs(60);
        let run = |client: &Client, cost| {
            let request = Request::from(CONCURRENT).cost(CONCURRENT, cost).into_owned();
            let client = client.clone();
            tokio::spawn(async move {
                let slot = client.slot(request).max_wait(patience);
                slot.run(async |_| Ok::<_, LimitError>(sleep(Duration::from_secs(3)).await)).await
            })
        };
        let waiting = run(&waits, 1);
        sleep(Duration::from_secs(3)).await;
        let began = Instant::now();
        let (too_large, behind) = (run(&asks, 3), run(&asks, 1));
        let error = too_large.await.unwrap().unwrap_err();
        assert!(
            matches!(error, LimitError::Acquire(AcquireError::NeverSatisfiable { .. })),
            "{kind:?}: {error:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{kind:?}: {:?}", began.elapsed());
        while !held.is_empty() {
            give_back(vec![held.remove(0)]).await;
        }
        waiting.await.unwrap().unwrap();
        behind.await.unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(12), "{kind:?}: {:?}", began.elapsed());
    }
}

/// In shares too small for it, a call is refused with the share's name.
#[tokio::test(start_paused = true)]
async fn a_call_that_fits_no_line_of_its_share_says_so() {
    let world = shared(Kind::Rows).await;
    let error = world.client().acquire(of("batch").cost(CONCURRENT, 3)).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("batch") && text.contains("elevenlabs#concurrent") && !text.contains('@'),
        "{text}"
    );
}

/// The redeemer is another process, and the share may be gone by then.
#[tokio::test(start_paused = true)]
async fn a_ticket_names_the_bucket_and_the_share() {
    let world = shared(Kind::Rows).await;
    world.rate("elevenlabs#rpm", 10, 60).await;
    let search = world.client_with(|settings| settings.share(name("search")));
    take(&search, Request::from("elevenlabs#rpm").cost("elevenlabs#rpm", 10)).await.release().await.unwrap();
    let both = Request::from(["elevenlabs#rpm", CONCURRENT]).ticket_within(Duration::from_secs(60));
    let ticket = refusal(&search, both).await.ticket().expect("a ticket").clone();
    apply(&world, &slots(10).into()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    world.pass(Duration::from_secs(10));
    let redeemed = world.client().redeem(&ticket).await.unwrap();
    let grant = redeemed.granted().expect("redeemed");
    assert_eq!(grant.cost(CONCURRENT), Some(Amount::from_tokens(1)));
    grant.release().await.unwrap();
}
