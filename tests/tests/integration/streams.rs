//! A reply that comes in pieces keeps its grant, and gives it back however it ends.

use std::io::Error;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, Grant, Request};
use sluice_testkit::{Fault, Operation};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, refusal, settle};

const TPM: &str = "acme#tpm";
const SLOTS: &str = "acme#concurrent";

/// A piece says how many tokens were used so far, or nothing.
type Piece = Option<u32>;

/// One slot, and 1,000 tokens that hardly refill.
async fn world(kind: Kind) -> World {
    let world = World::new().await.with(kind);
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    world.slots(SLOTS, 1).await;
    world
}

/// A grant of the slot and of 400 tokens.
async fn call(client: &Client) -> Grant {
    client.acquire(Request::from([SLOTS, TPM]).cost(TPM, 400)).await.unwrap().granted().expect("granted")
}

fn reply(pieces: Vec<Result<Piece, Error>>) -> impl Stream<Item = Result<Piece, Error>> {
    stream::iter(pieces)
}

/// A vendor that sends what the test says.
fn vendor() -> (UnboundedSender<Result<Piece, Error>>, impl Stream<Item = Result<Piece, Error>>) {
    let (send, mut sent) = unbounded_channel();
    (send, stream::poll_fn(move |context| sent.poll_recv(context)))
}

async fn left(world: &World) -> (String, String) {
    settle().await;
    (world.whole_level(TPM).await, world.free(SLOTS).await)
}

fn is(level: &str, free: &str) -> (String, String) {
    (level.into(), free.into())
}

#[tokio::test(start_paused = true)]
async fn who_reads_the_end_knows_that_the_grant_is_back_and_settled() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let pieces = reply(vec![Ok(None), Ok(None), Ok(Some(150))]);
        let mut stream = call(&client).await.stream(pieces).used(TPM, |piece| *piece);
        for piece in [None, None, Some(150)] {
            assert_eq!(stream.try_next().await.unwrap(), Some(piece));
            assert_eq!(
                (world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()),
                ("600", "0")
            );
        }
        assert_eq!(stream.try_next().await.unwrap(), None);
        assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("850", "1"));
        assert_eq!(stream.try_next().await.unwrap(), None, "for ever");
        world.dynamo.meter().reset();
        drop(stream);
        settle().await;
        assert_eq!(world.dynamo.meter().reset().requests, 0, "once");
    }
}

#[tokio::test(start_paused = true)]
async fn of_running_totals_the_last_word_counts() {
    let world = world(Kind::Rows).await;
    let pieces = reply(vec![Ok(Some(20)), Ok(Some(90)), Ok(None), Ok(Some(250)), Ok(None)]);
    let stream = call(&world.client()).await.stream(pieces).used(TPM, |piece| *piece);
    assert_eq!(stream.try_collect::<Vec<_>>().await.unwrap().len(), 5);
    assert_eq!(left(&world).await, is("750", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_never_gives_back_more_than_it_took_and_takes_what_it_used_beyond() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let one = |used: i64| reply(vec![Ok(Some(0))]).map_ok(move |_| used);
    for (used, level) in [(0, "1000"), (400, "600"), (1_100, "-100")] {
        let stream = call(&client).await.stream(one(used)).used(TPM, |used| Some(*used));
        stream.try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(left(&world).await, is(level, "1"));
        world.delete(TPM).await;
        world.tokens(TPM, 1_000, 1_000_000_000).await;
    }
    let stream = call(&client).await.stream(one(-9_000)).used(TPM, |used| Some(*used));
    stream.try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(left(&world).await, is("600", "1"), "less than nothing is no number of tokens");
}

#[tokio::test(start_paused = true)]
async fn an_error_before_the_first_piece_is_a_failed_call_and_one_after_it_keeps_what_was_taken() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    for (before, level) in [(vec![], "1000"), (vec![Ok(None)], "600")] {
        let pieces = before.len();
        let after = [Err(Error::other("vendor")), Ok(Some(900))];
        let pieces_and_error = reply(before.into_iter().chain(after).collect());
        let mut stream = call(&client).await.stream(pieces_and_error).used(TPM, |piece| *piece);
        for _ in 0..pieces {
            assert_eq!(stream.try_next().await.unwrap(), Some(None));
        }
        assert_eq!(stream.try_next().await.unwrap_err().to_string(), "vendor");
        let now = (world.whole_level(TPM).await, world.free(SLOTS).await);
        assert_eq!(now, is(level, "1"), "before the error is told");
        assert!(stream.next().await.is_none(), "nothing comes under a slot that is given back");
        drop(stream);
        assert_eq!(left(&world).await, is(level, "1"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_an_error_counts() {
    let world = world(Kind::Rows).await;
    let pieces = reply(vec![Ok(Some(150)), Err(Error::other("vendor"))]);
    let stream = call(&world.client()).await.stream(pieces).used(TPM, |piece| *piece);
    stream.try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(left(&world).await, is("850", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_gives_its_slot_back_and_keeps_tokens_of_which_nothing_was_said() {
    for kind in [Kind::Rows, Kind::Inline] {
        for (pieces, level) in [(vec![], "600"), (vec![Ok(None)], "600"), (vec![Ok(Some(150))], "850")] {
            let world = world(kind).await;
            let read = pieces.len();
            let (send, sent) = vendor();
            let mut stream = call(&world.client()).await.stream(sent).used(TPM, |piece| *piece);
            for piece in pieces {
                send.send(piece).unwrap();
            }
            for _ in 0..read {
                stream.try_next().await.unwrap();
            }
            assert_eq!(world.free(SLOTS).await, "0");
            drop(stream);
            assert!(send.is_closed(), "the connection is closed at once");
            assert_eq!(left(&world).await, is(level, "1"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_aborted_while_it_waits_for_a_piece_gives_back() {
    let world = world(Kind::Rows).await;
    let (_send, sent) = vendor();
    let stream = call(&world.client()).await.stream(sent).used(TPM, |piece| *piece);
    let reading = tokio::spawn(stream.try_collect::<Vec<_>>());
    sleep(Duration::from_secs(1)).await;
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    assert_eq!(left(&world).await, is("600", "1"));
}

/// Dropped while the end is on its way: neither forgotten nor done twice.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_at_its_end_is_settled_once() {
    let world = world(Kind::Rows).await;
    let mut stream = call(&world.client()).await.stream(reply(vec![Ok(Some(150))])).used(TPM, |piece| *piece);
    stream.try_next().await.unwrap();
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    assert!(timeout(Duration::from_millis(1), stream.try_next()).await.is_err());
    gate.reached().await;
    drop(stream);
    gate.open();
    assert_eq!(left(&world).await, is("850", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_pieces_come_or_are_waited_for_and_not_for_each() {
    for kind in [Kind::Rows, Kind::Inline] {
        for pause in [Duration::from_millis(100), LEASE_TTL * 3] {
            let world = world(kind).await;
            let (send, sent) = vendor();
            let stream = call(&world.client()).await.stream(sent).used(TPM, |piece| *piece);
            world.dynamo.meter().reset();
            let reading = tokio::spawn(stream.try_collect::<Vec<_>>());
            let began = Instant::now();
            while began.elapsed() < LEASE_TTL * 6 {
                sleep(pause).await;
                send.send(Ok(None)).unwrap();
            }
            let renewals = world.dynamo.meter().of(Operation::UpdateItem).requests;
            assert!((10..=13).contains(&renewals), "{renewals} in six times a lease's time");
            assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0);
            drop(send);
            reading.await.unwrap().unwrap();
            assert_eq!(left(&world).await, is("600", "1"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_under_a_reader_that_takes_its_time_and_at_once_where_half_of_it_is_over() {
    let world = world(Kind::Rows).await;
    let (send, sent) = vendor();
    let grant = call(&world.client()).await;
    // The vendor took long to begin.
    sleep(LEASE_TTL - Duration::from_secs(1)).await;
    let mut stream = grant.stream(sent);
    for _ in 0..5 {
        sleep(LEASE_TTL * 2).await;
        send.send(Ok(None)).unwrap();
        assert_eq!(stream.try_next().await.unwrap(), Some(None));
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0);
    }
    assert!(!stream.is_lease_lost());
    drop(stream);
    assert_eq!(left(&world).await, is("600", "1"));
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_end_no_stream() {
    let world = world(Kind::Rows).await;
    let (send, sent) = vendor();
    let mut stream = call(&world.client()).await.stream(sent);
    world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
    let vendor = tokio::spawn(async move {
        for _ in 0..20 {
            sleep(Duration::from_secs(2)).await;
            send.send(Ok(None)).unwrap();
        }
    });
    for _ in 0..20 {
        assert_eq!(stream.try_next().await.unwrap(), Some(None));
    }
    assert!(!stream.is_lease_lost(), "it still runs");
    world.dynamo.faults().clear();
    assert_eq!(stream.try_next().await.unwrap(), None);
    vendor.await.unwrap();
    assert_eq!(left(&world).await, is("600", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_lease_is_gone_goes_on_and_knows() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let (send, sent) = vendor();
        let mut stream = call(&world.client()).await.stream(sent);
        // The clock jumps, as after a long freeze: the lease is over before its holder can renew it.
        world.pass_lease();
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
        let other =
            world.client().acquire(SLOTS).await.unwrap().granted().expect("the slot is someone else's");
        sleep(LEASE_TTL / 2 + Duration::from_secs(1)).await;
        assert!(stream.is_lease_lost());
        send.send(Ok(None)).unwrap();
        assert_eq!(stream.try_next().await.unwrap(), Some(None));
        drop(send);
        assert_eq!(stream.try_next().await.unwrap(), None);
        assert_eq!(left(&world).await.1, "0", "a late release restores nothing");
        refusal(&world.client(), SLOTS).await;
        other.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_holds_the_end_up_for_three_seconds_at_most() {
    let world = world(Kind::Rows).await;
    // No outage is noted: the probe after it is not what hangs here, so the next attempt could hang too.
    let client = world.client_with(|settings| settings.answer_within(Duration::from_secs(60)));
    let stream = call(&client).await.stream(reply(vec![Ok(Some(150))])).used(TPM, |piece| *piece);
    let began = Instant::now();
    world.dynamo.faults().always(Operation::TransactWriteItems, Fault::Hang);
    stream.try_collect::<Vec<_>>().await.unwrap();
    assert!(began.elapsed() <= Duration::from_millis(3_100), "{:?}", began.elapsed());
    world.dynamo.faults().clear();
    // The release went on by itself: its next attempt gets through.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(left(&world).await, is("850", "1"));
}

#[tokio::test(start_paused = true)]
async fn usage_of_what_the_grant_does_not_hold_changes_nothing() {
    let world = world(Kind::Rows).await;
    world.tokens("acme#other", 100, 60).await;
    let stream = call(&world.client()).await.stream(reply(vec![Ok(Some(5))]));
    let stream =
        stream.used("acme#other", |piece| *piece).used(SLOTS, |piece| *piece).used("no name", |piece| *piece);
    stream.try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(left(&world).await, is("600", "1"));
    assert_eq!(world.level("acme#other").await, "100");
}
