//! Writes that would most likely fail, and the reads that look first.

use std::time::Duration;

use sluice_core::{Amount, DeclaredShare, Split};
use sluice_sdk::{Client, Outcome, Request};
use sluice_testkit::Operation;

use super::{RPM, apply, drain, name, share, split};
use crate::clocks::anchors::left_ahead;
use crate::world::{World, requests, take};

const SLOTS: &str = "openai#concurrent";

/// The failed writes and the reads of one call that is refused.
async fn paid_for_a_refusal(world: &World, client: &Client, cost: i32) -> [u64; 2] {
    world.dynamo.meter().reset();
    let request = Request::from(RPM).cost(RPM, Amount::from_tokens(cost));
    assert!(matches!(client.acquire(request).await.unwrap(), Outcome::RetryIn(_)));
    let meter = world.dynamo.meter();
    [meter.failed_writes(), meter.of(Operation::GetItem).requests]
}

/// By its reading a line lends enough, and each time others were faster. From the second such look on, a read
/// comes first.
#[tokio::test(start_paused = true)]
async fn borrowers_that_find_less_than_a_call_read_before_they_write() {
    let world = World::new().await;
    // Common: 0.9 a second, of which 67.5 are lent.
    apply(&world, &split(requests(100, 100), &[("search", "0.1")])).await;
    let client = |share: &str| world.client_with(|settings| settings.share(name(share)).note_use(false));
    let (one, other, common) = (client("search"), client("search"), world.client());
    let takes =
        async |client: &Client, tokens: u32| drop(take(client, Request::from(RPM).cost(RPM, tokens)).await);
    takes(&one, 10).await;
    takes(&common, 80).await;
    let mut paid = Vec::new();
    for _ in 0..6 {
        world.pass(Duration::from_secs(70));
        takes(&other, 7).await;
        takes(&common, 60).await;
        paid.push(paid_for_a_refusal(&world, &one, 10).await);
    }
    assert_eq!(paid, [[1, 0], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]);
    world.pass(Duration::from_secs(70));
    world.dynamo.meter().reset();
    let grant = take(&one, Request::from(RPM).cost(RPM, 10)).await;
    assert_eq!(grant.paid_from(RPM), Some("common"));
    assert_eq!(world.dynamo.meter().total().requests, 2, "a read, and the write");
}

/// A caller that does not wait counts on tokens that have flowed in since its reading. A process that has
/// seen nobody else take of the line writes at once; one that has reads first.
#[tokio::test(start_paused = true)]
async fn beside_others_a_read_comes_before_a_write_that_counts_on_what_has_flowed_in() {
    let world = World::new().await;
    // One a second for search, and nothing that others lend.
    apply(&world, &split(requests(10, 5), &[("search", "0.5"), ("batch", "0.4")])).await;
    let client = || world.client_with(|settings| settings.share(name("search")).note_use(false));
    let (one, other) = (client(), client());
    let call = Request::from(RPM).cost(RPM, Amount::from_tokens(5));
    let _ = take(&one, call.clone()).await;
    world.pass(Duration::from_secs(5));
    world.dynamo.meter().reset();
    let _ = take(&one, call.clone()).await;
    assert_eq!(world.dynamo.meter().reset().requests, 1, "alone");
    for alone in [true, false] {
        world.pass(Duration::from_secs(5));
        let _ = take(&other, call.clone()).await;
        let expected = if alone { [1, 0] } else { [0, 1] };
        assert_eq!(paid_for_a_refusal(&world, &one, 5).await, expected);
    }
}

/// So that callers of several processes do not come back at one instant, whatever else they ask for.
#[tokio::test(start_paused = true)]
async fn acquire_tells_each_refused_caller_of_a_bucket_with_shares_another_wait() {
    let world = World::embedded().await;
    world.slots(SLOTS, 2).await;
    // One a second for search.
    apply(&world, &split(requests(10, 5), &[("search", "0.5"), ("batch", "0.4")])).await;
    let client = world.client_with(|settings| settings.share(name("search")).note_use(false));
    drain(&client, &RPM.into()).await;
    for dimensions in [&[RPM][..], &[RPM, SLOTS]] {
        let mut waits = Vec::new();
        for _ in 0..50 {
            let Outcome::RetryIn(retry) = client.acquire(dimensions).await.unwrap() else {
                panic!("granted")
            };
            waits.push(retry.wait().as_secs_f64());
        }
        let [least, most] = [f64::min, f64::max].map(|of| waits.iter().copied().reduce(of).unwrap());
        assert!((0.5..1.3).contains(&least) && (2.5..=3.0).contains(&most), "{least} to {most}");
    }
}

/// A write that moves an anchor back takes nothing, and each round sends it once: no read stands in for it.
#[tokio::test(start_paused = true)]
async fn beside_others_too_an_anchor_that_a_wrong_clock_left_is_moved_back() {
    let world = World::embedded().await;
    // Common: 30 tokens, which take 60 s to fill. The other half lends nothing.
    let floor = Some(Amount::from_tokens(30));
    let lends_nothing = DeclaredShare { floor, ..share("search", "0.5") };
    apply(&world, &Split::new(requests(60, 60), &[lends_nothing]).unwrap()).await;
    let client = world.client();
    let refused = async |cost: i32| {
        paid_for_a_refusal(&world, &client, cost).await;
    };
    left_ahead(&world, "0").await;
    refused(1).await;
    world.pass(Duration::from_secs(15));
    // It may not be moved back again so soon.
    let ahead = left_ahead(&world, "1").await;
    refused(2).await;
    left_ahead(&world, "0").await;
    // By its reading there is one: another was faster.
    refused(1).await;
    assert_eq!(world.bucket(RPM).await.anchor(), ahead);
    world.pass(Duration::from_secs(46));
    refused(1).await;
    assert_eq!(world.bucket(RPM).await.anchor(), world.dynamo.clock().now());
}
