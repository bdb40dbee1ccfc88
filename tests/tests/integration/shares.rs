//! Shares: each product has what it was promised, and borrows what others leave.

use std::time::Duration;

use sluice_core::{Amount, DeclaredShare, Limit, ShareName, Split};
use sluice_ops::Applied;
use sluice_sdk::reactions::{ObservedLevel, Penalty, Refilled};
use sluice_sdk::{AcquireError, Client, Outcome, Redeemed, Request, RetryReason, Settled};
use tokio::time::sleep;

use crate::metrics::{Listening, counted};
use crate::other_clients::their_acquire;
use crate::world::{World, dimension, refusal, requests, take};

mod borrowed;
mod busy;
mod changing;
mod full_guess;
mod last_start;
mod look_first;
mod slots;
mod together;
mod writes;

const RPM: &str = "openai#rpm";

fn name(share: &str) -> ShareName {
    ShareName::new(share).unwrap()
}

pub(crate) fn share(of: &str, part: &str) -> DeclaredShare {
    DeclaredShare { name: name(of), part: part.parse().unwrap(), floor: None, background: false }
}

fn split(limit: Limit, shares: &[(&str, &str)]) -> Split {
    let shares: Vec<_> = shares.iter().map(|(of, part)| share(of, part)).collect();
    Split::new(limit, &shares).unwrap()
}

async fn apply(world: &World, split: &Split) -> Applied {
    world.client().ops().apply_split(&dimension(RPM), split).await.unwrap()
}

/// A bucket of a hundred that hardly refills: fifty for search, twenty for batch, thirty for all others.
async fn shared() -> World {
    split_in(World::new().await.lowered_without_a_bound()).await
}

async fn split_in(world: World) -> World {
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.5"), ("batch", "0.2")])).await;
    world
}

fn of(share: &str) -> Request<'static> {
    Request::from(RPM).share(share.to_owned()).into_owned()
}

/// The level of each line, in whole tokens: common, batch, search.
async fn levels(world: &World) -> Vec<String> {
    let now = world.dynamo.clock().now();
    let lines = world.bucket(RPM).await.every_line();
    lines.iter().map(|line| format!("{:.0}", line.level(now).to_string().parse::<f64>().unwrap())).collect()
}

/// Takes as often as it is granted.
async fn drain(client: &Client, request: &Request<'static>) -> usize {
    let mut taken = 0;
    while let Outcome::Granted(grant) = client.acquire(request.clone()).await.unwrap() {
        grant.release().await.unwrap();
        taken += 1;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn shares_are_declared_changed_and_removed_without_a_level_reset() {
    let world = World::with_rate(RPM, 100, 1_000_000_000).await;
    let client = world.client();
    assert_eq!(drain(&client, &RPM.into()).await, 100);
    world.pass(Duration::from_secs(400_000_000));
    let limit = requests(100, 1_000_000_000);
    let declared = split(limit, &[("search", "0.5"), ("batch", "0.2")]);
    assert_eq!(apply(&world, &declared).await, Applied::Changed { from: limit.into() });
    assert_eq!(levels(&world).await, ["12", "8", "20"], "each its part of the forty that were there");
    assert_eq!(apply(&world, &declared).await, Applied::Unchanged);
    let changed = split(limit, &[("search", "0.1"), ("checkout", "0.2")]);
    apply(&world, &changed).await;
    // What batch had went to the common line, and a part of that to checkout.
    assert_eq!(levels(&world).await, ["16", "4", "10"]);
    apply(&world, &limit.into()).await;
    assert_eq!(levels(&world).await, ["30"], "what search had above its new capacity is gone");
    assert!(world.bucket(RPM).await.is_split_as(&limit.into()));
    // A new limit keeps the shares, in proportion.
    apply(&world, &declared).await;
    world.client().ops().apply_limit(&dimension(RPM), &requests(200, 1_000_000_000)).await.unwrap();
    let expected = split(requests(200, 1_000_000_000), &[("search", "0.5"), ("batch", "0.2")]);
    assert_eq!(world.bucket(RPM).await.split().shares(), expected.shares());
}

#[tokio::test(start_paused = true)]
async fn a_product_takes_its_own_part_and_borrows_down_to_what_is_never_lent() {
    let world = shared().await;
    let search = world.client_with(|settings| settings.share(name("search")));
    assert_eq!(drain(&search, &RPM.into()).await, 50 + 22 + 15, "a quarter of the others' stays");
    assert_eq!(levels(&world).await, ["8", "5", "0"]);
    let others = world.client();
    assert_eq!(drain(&others, &RPM.into()).await, 8, "and is there for those who name no share");
    assert_eq!(drain(&others, &of("batch")).await, 5);
    assert_eq!(drain(&search, &RPM.into()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn callers_that_know_no_shares_stay_within_the_common_line() {
    let world = shared().await;
    let bucket = world.bucket(RPM).await;
    // What a client in another language reads: the row's own attributes.
    assert_eq!(
        (bucket.limit().capacity(), bucket.tokens()),
        (Amount::from_tokens(30), Amount::from_tokens(30))
    );
    assert_eq!(bucket.whole_limit().capacity(), Amount::from_tokens(100));
    for _ in 0..30 {
        assert!(their_acquire(&world).await);
    }
    assert!(!their_acquire(&world).await, "the common line is empty");
    assert_eq!(levels(&world).await, ["0", "20", "50"], "and its writes leave the shares alone");
}

#[tokio::test(start_paused = true)]
async fn a_background_share_borrows_last_and_lends_all() {
    let world = World::new().await;
    let shares = [share("search", "0.5"), DeclaredShare { background: true, ..share("batch", "0.2") }];
    apply(&world, &Split::new(requests(100, 1_000_000_000), &shares).unwrap()).await;
    let client = world.client();
    assert_eq!(drain(&client, &of("batch")).await, 20 + 36 + 21, "it leaves a call more than a quarter");
    let world = World::new().await;
    apply(&world, &Split::new(requests(100, 1_000_000_000), &shares).unwrap()).await;
    assert_eq!(drain(&world.client(), &of("search")).await, 50 + 20 + 22, "all of the background's");
}

#[tokio::test(start_paused = true)]
async fn what_was_borrowed_goes_back_to_its_lender_and_a_debt_is_the_borrowers() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.5")])).await;
    let client = world.client();
    assert_eq!(drain(&client, &of("search").cost(RPM, 50)).await, 1);
    let mut grant = take(&client, of("search").cost(RPM, 10)).await;
    assert_eq!(levels(&world).await, ["40", "0"]);
    assert_eq!(grant.settle(RPM, 4).await.unwrap(), Settled::Returned(Amount::from_tokens(6)));
    assert_eq!(levels(&world).await, ["46", "0"]);
    assert_eq!(grant.settle(RPM, 12).await.unwrap(), Settled::Owed(Amount::from_tokens(8)));
    assert_eq!(levels(&world).await, ["46", "-8"], "the lender paid four, and no more");
    grant.release().await.unwrap();
    // A call that was not made gives back all of it.
    take(&client, of("search").cost(RPM, 10)).await.cancel().await;
    assert_eq!(levels(&world).await, ["46", "-8"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_must_fit_its_own_share() {
    let world = shared().await;
    let client = world.client();
    let error = client.acquire(of("batch").cost(RPM, 21)).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::NeverSatisfiable { capacity, .. } if capacity == Amount::from_tokens(20))
    );
    let text = error.to_string();
    assert!(text.contains("never grant 21 to the share batch: the share holds 20; lower the cost"), "{text}");
    let error = client.acquire(of("two words")).await.unwrap_err().to_string();
    assert!(error.contains("two words") && error.contains("checkout/batch"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_share_that_a_bucket_lacks_is_the_common_line_also_after_its_removal() {
    let world = shared().await;
    let client = world.client();
    take(&client, of("nobody")).await.release().await.unwrap();
    assert_eq!(levels(&world).await, ["29", "20", "50"]);
    take(&client, of("search")).await.release().await.unwrap();
    apply(&world, &split(requests(100, 1_000_000_000), &[("batch", "0.2")])).await;
    // The client still knows the share: its write fails by its condition, and not by the path.
    take(&client, of("search")).await.release().await.unwrap();
    assert_eq!(levels(&world).await, ["77", "20"]);
    // It learns that the share was declared again from the reply to its next call.
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.5"), ("batch", "0.2")])).await;
    take(&client, of("search")).await.release().await.unwrap();
    let before = levels(&world).await;
    take(&client, of("search")).await.release().await.unwrap();
    let after = levels(&world).await;
    assert_eq!(
        (&after[..2], after[2].parse::<i32>().unwrap()),
        (&before[..2], before[2].parse::<i32>().unwrap() - 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_outlives_its_share_is_settled_without_harm() {
    let world = shared().await;
    let client = world.client();
    let mut grant = take(&client, of("search").cost(RPM, 10)).await;
    apply(&world, &requests(100, 1_000_000_000).into()).await;
    grant.settle(RPM, 4).await.unwrap();
    assert_eq!(levels(&world).await, ["90"], "the line that it was taken from is gone, and so is its return");
    take(&client, of("search")).await.cancel().await;
    assert_eq!(levels(&world).await, ["90"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_is_booked_on_the_own_line_and_a_ticket_redeems_it_there() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 100), &[("search", "0.5")])).await;
    let (booker, redeemer) = (world.client(), world.client());
    drain(&booker, &of("search")).await;
    let booked =
        booker.acquire(of("search").cost(RPM, 2).ticket_within(Duration::from_secs(60))).await.unwrap();
    let Outcome::RetryIn(retry) = booked else { panic!("{booked:?}") };
    let ticket = retry.ticket().unwrap().clone();
    assert_eq!(retry.wait().as_secs(), 4, "two at half a token a second");
    assert!(matches!(redeemer.redeem(&ticket).await.unwrap(), Redeemed::RetryIn(_)));
    world.pass(Duration::from_secs(5));
    let (before, listening) = (levels(&world).await, Listening::begin());
    let grant = redeemer.redeem(&ticket).await.unwrap().granted().unwrap();
    let of_search = [("dimension", RPM), ("share", "search")];
    assert_eq!(counted(&listening.recorded(), "sluice.share.used", &of_search), 2);
    assert_eq!(levels(&world).await, before, "it was taken when it was booked");
    grant.cancel().await;
    let after = levels(&world).await;
    assert_eq!(after[0], before[0], "and goes back to its own line, if anywhere");
    assert_ne!(after[1], before[1]);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_has_less_left_lowers_every_line() {
    let world = World::new().await.lowered_without_a_bound();
    apply(&world, &split(requests(100, 60), &[("search", "0.5"), ("batch", "0.2")])).await;
    let client = world.client();
    let grant = take(&client, of("search").cost(RPM, 10)).await;
    world.pass(Duration::from_secs(1));
    let headers = [
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", "45"),
        ("x-ratelimit-reset-requests", "33s"),
    ];
    let observed = client.observe(RPM, &headers, Some(&grant)).await.unwrap();
    assert!(
        matches!(observed.level, ObservedLevel::Lowered(by) if by.to_string().starts_with("4")),
        "{observed:?}"
    );
    assert_eq!(levels(&world).await, ["15", "10", "21"]);
    assert_eq!(client.observe(RPM, &headers, Some(&grant)).await.unwrap().level, ObservedLevel::Agrees);
    let Penalty::Applied(level) = client.penalize(RPM, 0.5).await.unwrap() else { panic!() };
    assert_eq!(level.to_string().split('.').next(), Some("23"));
    assert_eq!(levels(&world).await, ["8", "5", "10"]);
    let Refilled::Set { level, .. } = client.refill(RPM, None).await.unwrap() else { panic!() };
    assert_eq!(level, Amount::from_tokens(100));
    assert_eq!(levels(&world).await, ["30", "20", "50"]);
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_concerns_every_line() {
    let world = shared().await;
    let client = world.client_with(|settings| settings.prefetch([RPM]));
    for share in ["search", "batch", "common"] {
        take(&client, of(share)).await.release().await.unwrap();
    }
    client.cool_down(RPM, Duration::from_secs(30)).await.unwrap();
    for share in ["search", "batch", "common"] {
        assert_eq!(refusal(&client, of(share)).await.reason(), RetryReason::CoolingDown, "{share}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_of_the_vendor_is_adopted_by_every_line() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 60), &[("search", "0.5"), ("batch", "0.2")])).await;
    let client = world.client();
    let then = sluice_core::OnLowerLimit::Adopt { at_least: Amount::from_tokens(10) };
    client.ops().on_lower_limit(&dimension(RPM), then).await.unwrap();
    let grant = take(&client, of("search")).await;
    let headers = [("x-ratelimit-limit-requests", "50"), ("x-ratelimit-remaining-requests", "49")];
    client.observe(RPM, &headers, Some(&grant)).await.unwrap();
    let lines = world.bucket(RPM).await.every_line();
    let capacities: Vec<_> = lines.iter().map(|line| line.limit().capacity().to_string()).collect();
    assert_eq!(capacities, ["15", "10", "25"]);
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stock_is_taken_of_the_own_line_alone() {
    let world = World::new().await;
    apply(&world, &split(requests(1_000, 10), &[("search", "0.5")])).await;
    let client = world.client_with(|settings| settings.prefetch([RPM]).share(name("search")));
    for _ in 0..100 {
        take(&client, RPM).await.release().await.unwrap();
        sleep(Duration::from_millis(10)).await;
        world.pass(Duration::from_millis(10));
    }
    let bucket = world.bucket(RPM).await;
    assert_eq!(levels(&world).await[0], "500", "nothing of the others' is kept in stock");
    assert!(bucket.version() < 40, "{} writes for a hundred grants", bucket.version());
}

/// The client's own reading of the bucket is as old as its first: those of the share are new.
#[tokio::test(start_paused = true)]
async fn replies_to_calls_of_a_named_share_are_believed_one_after_the_other() {
    let world = World::new().await.lowered_without_a_bound();
    apply(&world, &split(requests(100, 60), &[("search", "0.5")])).await;
    let client = world.client();
    for left in [60, 30] {
        let grant = take(&client, of("search")).await;
        let text = left.to_string();
        let reset = format!("{}s", (100 - left) * 60 / 100);
        let headers = [
            ("x-ratelimit-limit-requests", "100"),
            ("x-ratelimit-remaining-requests", text.as_str()),
            ("x-ratelimit-reset-requests", reset.as_str()),
        ];
        let observed = client.observe(RPM, &headers, Some(&grant)).await.unwrap();
        assert!(matches!(observed.level, ObservedLevel::Lowered(_)), "{left}: {observed:?}");
        grant.release().await.unwrap();
    }
}

/// What one share booked ahead is no less of what the other may use at once.
#[tokio::test(start_paused = true)]
async fn a_share_that_has_booked_ahead_hides_nothing_from_a_penalty() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 60), &[("search", "0.5"), ("batch", "0.2")])).await;
    let client = world.client();
    drain(&client, &of("batch")).await;
    let slots: Vec<_> = (0..15)
        .map(|_| client.slot(of("batch").cost(RPM, 20)).max_wait(Duration::from_secs(3_000)))
        .map(|slot| tokio::spawn(async move { slot.grant().await.unwrap().release().await }))
        .collect();
    sleep(Duration::from_millis(100)).await;
    let before = levels(&world).await;
    assert!(before[1].parse::<f64>().unwrap() < -100.0, "{before:?}");
    assert!(matches!(client.penalize(RPM, 0.0).await.unwrap(), Penalty::Applied(_)));
    let after = levels(&world).await;
    assert_eq!((after[0].as_str(), after[2].as_str(), &after[1]), ("0", "0", &before[1]));
    slots.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_together_borrow_what_their_own_line_lacks() {
    let world = World::new().await.distant();
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.1")])).await;
    let client = world.client();
    assert_eq!(
        drain(&client, &of("search").cost(RPM, 9)).await,
        8,
        "one of its own, and what the others lend"
    );
    assert_eq!(levels(&world).await[1], "1");
    let world = World::new().await.distant();
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.1")])).await;
    let client = world.client();
    let calls: Vec<_> = (0..30)
        .map(|_| {
            let slot = client.slot(of("search")).max_wait(Duration::from_secs(1_000_000));
            tokio::spawn(async move { slot.grant().await.unwrap().booked_wait() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Duration::ZERO, "nobody is booked while another line lends");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lender_gets_back_no_more_than_it_lent() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.5")])).await;
    let client = world.client();
    drain(&client, &of("search").cost(RPM, 50)).await;
    let mut grant = take(&client, of("search").cost(RPM, 10)).await;
    take(&client, of("common").cost(RPM, 20)).await.release().await.unwrap();
    assert_eq!(grant.settle(RPM, 50).await.unwrap(), Settled::Owed(Amount::from_tokens(40)));
    assert_eq!(levels(&world).await, ["20", "-40"]);
    assert_eq!(grant.settle(RPM, 10).await.unwrap(), Settled::Returned(Amount::ZERO));
    assert_eq!(levels(&world).await, ["20", "-40"]);
    grant.release().await.unwrap();
}

/// A stream whose estimate goes up and down pays once: the borrower what it used at most beyond what was
/// lent, and the lender no less than what it still gives.
#[tokio::test(start_paused = true)]
async fn a_borrowed_grant_that_is_settled_again_and_again_pays_once() {
    let world = World::new().await;
    apply(&world, &split(requests(100, 1_000_000_000), &[("search", "0.5")])).await;
    let client = world.client();
    drain(&client, &of("search").cost(RPM, 50)).await;
    let mut grant = take(&client, of("search").cost(RPM, 10)).await;
    grant.settle(RPM, 20).await.unwrap();
    assert_eq!(levels(&world).await, ["40", "-10"]);
    for used in [12, 20, 12, 20, 15] {
        grant.settle(RPM, used).await.unwrap();
        assert_eq!(levels(&world).await, ["40", "-10"], "{used}");
    }
    assert_eq!(grant.settle(RPM, 4).await.unwrap(), Settled::Returned(Amount::from_tokens(6)));
    for used in [4, 5, 14, 4] {
        grant.settle(RPM, used).await.unwrap();
        assert_eq!(levels(&world).await, ["46", "-10"], "{used}");
    }
    assert_eq!(grant.settle(RPM, 20).await.unwrap(), Settled::Owed(Amount::from_tokens(6)));
    assert_eq!(levels(&world).await, ["46", "-16"], "twenty in all: four are the lender's");
    grant.release().await.unwrap();
}

/// A thousand names cost no more than one.
#[tokio::test(start_paused = true)]
async fn names_that_a_bucket_lacks_share_one_lane() {
    let world = World::with_rate(RPM, 1_000, 1_000_000_000).await;
    let client = world.client();
    take(&client, of("tenant-0")).await.release().await.unwrap();
    assert!(client.acquire(of("two words")).await.is_err(), "and a text that is no name is none");
    world.dynamo.meter().reset();
    for tenant in 1..100 {
        take(&client, of(&format!("tenant-{tenant}"))).await.release().await.unwrap();
    }
    assert_eq!(world.dynamo.meter().total().requests, 99, "no row is read again");
    // And they learn of a share that is declared later.
    apply(&world, &split(requests(1_000, 1_000_000_000), &[("tenant-7", "0.5")])).await;
    take(&client, of("tenant-1")).await.release().await.unwrap();
    take(&client, of("tenant-7")).await.release().await.unwrap();
    assert_eq!(levels(&world).await, ["449", "449"]);
}

/// DynamoDB takes no key twice in a batch.
#[tokio::test(start_paused = true)]
async fn gauges_read_the_row_of_a_shared_bucket_once() {
    let world = split_in(World::embedded().await).await;
    let client = world.client();
    for share in ["search", "batch", "common"] {
        take(&client, of(share)).await.release().await.unwrap();
    }
    world.dynamo.meter().reset();
    let _gauges = client.publish_gauges(Duration::from_secs(60));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dynamo.meter().total().requests, 1);
    let units = world.dynamo.meter().total().read_units;
    assert!((units - 1.0).abs() < 1e-9, "{units} read units: one row");
}

/// Seed 35 of the simulation. The process knows the common line from before the share was declared.
#[tokio::test(start_paused = true)]
async fn what_is_borrowed_of_a_share_that_is_new_to_the_process_goes_back_to_it() {
    let world = World::new().await;
    let limit = requests(100, 1_000_000_000);
    apply(&world, &split(limit, &[("search", "0.1")])).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    apply(&world, &split(limit, &[("search", "0.1"), ("batch", "0.8")])).await;
    for _ in 0..10 {
        assert_eq!(take(&client, of("search")).await.paid_from(RPM), Some("search"));
    }
    let mut borrowed = take(&client, of("search")).await;
    assert_eq!(borrowed.paid_from(RPM), Some("batch"));
    let before = levels(&world).await;
    assert_eq!(borrowed.settle(RPM, Amount::ZERO).await.unwrap(), Settled::Returned(Amount::from_tokens(1)));
    let after = levels(&world).await;
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "the other lines stay as they are");
    assert_eq!(after[1].parse::<i32>().unwrap(), before[1].parse::<i32>().unwrap() + 1);
}
