//! Shares of slots that are declared, changed and removed while calls hold slots.

use sluice_core::schema::KEY;

use super::*;
use crate::world::{all_or_first, number, text};

#[tokio::test(start_paused = true)]
async fn shares_that_are_declared_while_slots_are_held_get_them_as_they_come_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = kind.with_slots(CONCURRENT, 10).await;
        let client = world.client();
        let mut held = take_all(&client, &CONCURRENT.into()).await;
        assert_eq!(held.len(), 10);
        let to = split(&[share("search", "0.5"), share("batch", "0.2")]);
        let changing = apply(&world, &to);
        let calls = async {
            // As long as calls hold all slots, nobody else has any.
            sleep(Duration::from_secs(2)).await;
            assert!(client.acquire(of("search")).await.unwrap().granted().is_none(), "eleven at once");
            give_back(held.drain(..4).collect()).await;
            sleep(Duration::from_secs(2)).await;
            give_back(held.drain(..4).collect()).await;
        };
        let (applied, ()) = tokio::join!(changing, calls);
        assert!(matches!(applied.unwrap(), Applied::Changed { .. }));
        assert_eq!(free(&world).await, ["1", "2", "5"], "{kind:?}");
        give_back(held).await;
        assert_eq!(free(&world).await, ["3", "2", "5"]);
        assert_eq!(apply(&world, &to).await.unwrap(), Applied::Unchanged);
    }
}

#[tokio::test(start_paused = true)]
async fn slots_that_do_not_come_back_are_named_and_the_next_call_goes_on() {
    let world = Kind::Rows.with_slots(CONCURRENT, 10).await;
    let client = world.client();
    let mut held = take_all(&client, &CONCURRENT.into()).await;
    let to = split(&[share("search", "0.5")]);
    let began = Instant::now();
    let error = apply(&world, &to).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(61));
    assert!(
        matches!(&error, LimitsError::SlotsHeld { held, .. } if *held == Amount::from_tokens(5)),
        "{error}"
    );
    let told = error.to_string();
    assert!(told.contains("calls still hold 5 of the slots that are to move"), "{told}");
    give_back(held.drain(..5).collect()).await;
    assert!(matches!(apply(&world, &to).await.unwrap(), Applied::Changed { .. }));
    assert_eq!([world.free(CONCURRENT).await, world.free(SEARCH).await], ["0", "5"]);
    give_back(held).await;
}

/// The calls that hold slots last for minutes, as in telephony. Each product has a slot at once, and the rest
/// with the sweeps.
#[tokio::test(start_paused = true)]
async fn shares_are_used_at_once_with_what_is_free_and_sweeps_end_the_change() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = kind.with_slots(CONCURRENT, 10).await;
        let client = world.client();
        // So that the next one knows the bucket.
        client.ops().sweep(SweepOptions::default()).await.unwrap();
        let mut of_before = take_all(&client, &CONCURRENT.into()).await;
        give_back(of_before.drain(..3).collect()).await;
        let to = split(&[share("search", "0.5"), share("batch", "0.2")]);
        let error = apply(&world, &to).await.unwrap_err();
        assert!(error.to_string().contains("callers that find no slot and sweeps"), "{error}");
        // In processes that know the bucket, and in one that does not.
        let (new, mut of_shares) = (world.client(), Vec::new());
        for (client, share) in [(&client, "batch"), (&new, "search"), (&new, "batch")] {
            of_shares.push(take(client, of(share)).await);
        }
        assert_eq!(
            free(&world).await,
            ["-4", "0", "0"],
            "seven calls from before the change, and ten at once ({kind:?})"
        );
        for (ended, expected) in [(1, ["-3", "0", "1"]), (3, ["0", "0", "4"]), (3, ["3", "0", "4"])] {
            give_back(of_before.drain(..ended).collect()).await;
            world.client().ops().sweep(SweepOptions::default()).await.unwrap();
            assert_eq!(free(&world).await, expected, "{kind:?}");
        }
        assert!(world.bucket(CONCURRENT).await.is_split_as(&to), "nobody applied the file again");
        assert_eq!(apply(&world, &to).await.unwrap(), Applied::Unchanged);
        give_back(of_shares).await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "{kind:?}");
    }
}

/// No sweep comes, and nobody applies the file again. All slots were held when the shares were declared, so
/// none of them has a row, and the common line has fewer slots than are held.
#[tokio::test(start_paused = true)]
async fn callers_that_find_no_slot_give_the_shares_what_came_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = kind.with_slots(CONCURRENT, 10).await;
        let client = world.client();
        let mut of_before = take_all(&client, &CONCURRENT.into()).await;
        let to = split(&[share("search", "0.5"), share("batch", "0.2")]);
        apply(&world, &to).await.unwrap_err();
        give_back(of_before.drain(..6).collect()).await;
        let (began, mut held) = (Instant::now(), Vec::new());
        // In a process that knows the bucket, and in one that does not. One caller comes again and again, and
        // one waits.
        let new = world.client();
        let comes_again = async {
            loop {
                assert!(began.elapsed() < Duration::from_secs(30), "{kind:?}: nobody moves slots");
                match client.acquire(of("search")).await.unwrap().granted() {
                    Some(grant) => return grant,
                    None => sleep(Duration::from_millis(500)).await,
                }
            }
        };
        let waits = new.slot(of("batch")).max_wait(Duration::from_secs(20));
        let waits = waits.run(async |_| Ok::<_, LimitError>(began.elapsed()));
        let (grant, waited) = tokio::join!(comes_again, waits);
        held.push(grant);
        let took = began.elapsed().max(waited.unwrap());
        assert!(took < Duration::from_secs(5), "{kind:?}: {took:?}");
        give_back(of_before).await;
        while !world.bucket(CONCURRENT).await.is_split_as(&to) {
            assert!(began.elapsed() < Duration::from_secs(20), "{kind:?}: {:?}", free(&world).await);
            held.extend(client.acquire(of("search")).await.unwrap().granted());
            assert!(held.len() <= 10, "more than the vendor allows");
            sleep(Duration::from_millis(500)).await;
        }
        give_back(held).await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "{kind:?}");
    }
}

/// It asks once and does not wait. Its share has one slot so far, which is held.
#[tokio::test(start_paused = true)]
async fn a_caller_of_a_share_that_is_short_of_slots_has_one_that_came_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = kind.with_slots(CONCURRENT, 10).await;
        let client = world.client();
        let mut of_before = take_all(&client, &CONCURRENT.into()).await;
        give_back(of_before.drain(..1).collect()).await;
        apply(&world, &split(&[share("search", "0.5")])).await.unwrap_err();
        let first = take(&client, of("search")).await;
        assert_eq!(refusal(&client, of("search")).await.reason(), RetryReason::NoFreeSlot);
        give_back(of_before.drain(..5).collect()).await;
        let second = client.acquire(of("search")).await.unwrap().granted().expect("five slots are free");
        assert_eq!([world.free(CONCURRENT).await, world.free(SEARCH).await], ["1", "3"], "{kind:?}");
        give_back([first, second].into_iter().chain(of_before).collect()).await;
    }
}

/// As beside a later version: the condition on the names can never hold.
#[tokio::test(start_paused = true)]
async fn callers_that_cannot_give_slots_try_seldom() {
    // Takes are no transactions.
    let world = World::embedded().await.with(Kind::Inline);
    world.slots(CONCURRENT, 10).await;
    let client = world.client();
    let mut held = take_all(&client, &CONCURRENT.into()).await;
    apply(&world, &split(&[share("search", "0.5")])).await.unwrap_err();
    give_back(held.drain(..4).collect()).await;
    names_what_a_later_version_writes(&world).await;
    let before = world.dynamo.meter().of(Operation::TransactWriteItems).requests;
    let began = Instant::now();
    // Their leases end later.
    while began.elapsed() < Duration::from_secs(20) {
        refusal(&client, of("search")).await;
        sleep(Duration::from_millis(50)).await;
    }
    let tries = world.dynamo.meter().of(Operation::TransactWriteItems).requests - before;
    assert!((1..15).contains(&tries), "{tries} in twenty seconds");
    give_back(held).await;
}

async fn names_what_a_later_version_writes(world: &World) {
    let more = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(CONCURRENT));
    let more = more.update_expression("SET shares.#search.later = :one");
    let more = more.expression_attribute_names("#search", "search");
    more.expression_attribute_values(":one", number("1")).send().await.unwrap();
}

/// It fits into what its share is promised, and not into what the share has so far.
#[tokio::test(start_paused = true)]
async fn a_call_of_several_slots_waits_while_its_share_is_being_declared() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = kind.with_slots(CONCURRENT, 10).await;
        let client = world.client();
        let mut of_before = take_all(&client, &CONCURRENT.into()).await;
        let to = split(&[share("batch", "0.2"), share("search", "0.5")]);
        let three = || of("search").cost(CONCURRENT, 3);
        let (applied, waited) = tokio::join!(apply(&world, &to), async {
            sleep(Duration::from_secs(2)).await;
            // Without a row, and with one slot.
            for _ in 0..2 {
                let retry = refusal(&client, three()).await;
                assert_eq!(retry.reason(), RetryReason::NoFreeSlot, "{kind:?}");
                give_back(of_before.drain(..2).collect()).await;
                sleep(Duration::from_secs(2)).await;
            }
            let never = client.acquire(of("search").cost(CONCURRENT, 6)).await.unwrap_err();
            assert!(matches!(never, AcquireError::NeverSatisfiable { .. }), "{never}");
            let waits = client.slot(three()).max_wait(Duration::from_secs(20));
            let waits = waits.run(async |_| Ok::<_, LimitError>(()));
            let gives_back = async {
                sleep(Duration::from_secs(2)).await;
                give_back(std::mem::take(&mut of_before)).await;
            };
            tokio::join!(waits, gives_back).0
        });
        waited.unwrap();
        applied.unwrap();
        settle().await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "{kind:?}");
    }
}

/// Its callers keep coming, from a process that has met the share.
#[tokio::test(start_paused = true)]
async fn a_share_is_removed_while_it_is_used_and_its_callers_find_the_common_line() {
    for kind in all_or_first(&[Kind::Rows, Kind::Inline]).iter().copied() {
        let world = shared(kind).await;
        let search = world.client_with(|settings| settings.share(name("search")));
        let ends = Instant::now() + Duration::from_secs(40);
        let caller = || async {
            let mut calls = 0;
            while Instant::now() < ends {
                let slot = search.slot(CONCURRENT).max_wait(Duration::from_secs(10));
                slot.run(async |_| Ok::<_, LimitError>(sleep(Duration::from_millis(100)).await))
                    .await
                    .unwrap();
                calls += 1;
            }
            calls
        };
        let removing = async {
            sleep(Duration::from_secs(3)).await;
            let began = Instant::now();
            let applied = apply(&world, &split(&[share("batch", "0.2")])).await.unwrap();
            (applied, began.elapsed())
        };
        let ((applied, took), first, second) =
            tokio::join!(removing, async { tokio::join!(caller(), caller(), caller(), caller()) }, caller());
        assert!(
            matches!(applied, Applied::Changed { .. }) && took < Duration::from_secs(20),
            "{kind:?}: {took:?}"
        );
        assert!(
            first.0 > 50 && first.1 > 50 && first.2 > 50 && first.3 > 50 && second > 50,
            "{first:?} {second}"
        );
        assert!(world.row(SEARCH).await.is_none());
        assert_eq!([world.free(CONCURRENT).await, world.free(BATCH).await], ["8", "2"]);
        let without = apply(&world, &slots(10).into()).await.unwrap();
        assert!(matches!(without, Applied::Changed { .. }));
        assert_eq!(world.free(CONCURRENT).await, "10");
        assert!(world.row(BATCH).await.is_none() && world.bucket(CONCURRENT).await.slot_shares().is_empty());
        // One more call of the share, whose row is gone.
        timeout(Duration::from_secs(5), take(&search, CONCURRENT)).await.unwrap().release().await.unwrap();
    }
}

/// The vendor's pause is for all calls, also while shares change.
#[tokio::test(start_paused = true)]
async fn a_cool_down_while_a_share_has_no_row_yet_is_for_all_rows_and_for_the_new_one() {
    let world = shared(Kind::Rows).await;
    let client = world.client();
    let mut held = take_all(&client, &of("search")).await;
    held.extend([take(&client, CONCURRENT).await, take(&client, of("batch")).await]);
    assert_eq!(held.len(), 10);
    let to = split(&[share("alpha", "0.2"), share("search", "0.4"), share("batch", "0.2")]);
    let (applied, ()) = tokio::join!(apply(&world, &to), async {
        sleep(Duration::from_secs(2)).await;
        assert!(world.row("elevenlabs#concurrent@alpha").await.is_none());
        client.cool_down(CONCURRENT, Duration::from_secs(60)).await.unwrap();
        let other = world.client();
        for request in [Request::from(CONCURRENT), of("search"), of("batch")] {
            assert_eq!(refusal(&other, request).await.reason(), RetryReason::CoolingDown);
        }
        give_back(held).await;
    });
    applied.unwrap();
    assert_eq!(refusal(&world.client(), of("alpha")).await.reason(), RetryReason::CoolingDown);
    client.end_cool_down(CONCURRENT).await.unwrap();
    take(&world.client(), of("alpha")).await.release().await.unwrap();
}

/// Each would have given slots twice.
#[tokio::test(start_paused = true)]
async fn nobody_changes_the_slots_of_a_share_but_through_its_bucket() {
    let world = shared(Kind::Rows).await;
    let ops = world.client().ops();
    let error = ops.apply_limit(&dimension(SEARCH), &slots(9)).await.unwrap_err();
    assert!(
        matches!(error, LimitsError::RowOfShare(_)) && error.to_string().contains("[bucket.shares]"),
        "{error}"
    );
    // A bucket that had this name before.
    world.slots("elevenlabs#concurrent@other", 50).await;
    let error = apply(&world, &split(&[share("other", "0.5")])).await.unwrap_err();
    assert!(matches!(error, LimitsError::NameTaken { .. }), "{error}");
    assert_eq!(free(&world).await, ["3", "2", "5"], "nothing was changed");
    // Without a word of shares, they stay, in proportion.
    ops.apply_limit(&dimension(CONCURRENT), &slots(20)).await.unwrap();
    assert_eq!(free(&world).await, ["6", "4", "10"]);
    ops.remove_bucket(&dimension(CONCURRENT)).await.unwrap();
    assert!(world.row(SEARCH).await.is_none() && world.row(BATCH).await.is_none());
}

/// It waits in the row that goes, and would stay there until its time is over.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_in_a_share_that_goes_goes_on_in_the_common_line() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let search =
            world.client_with(|settings| settings.share(name("search")).lease_ttl(Duration::from_secs(600)));
        let others = world.client_with(|settings| settings.lease_ttl(Duration::from_secs(600)));
        let mut of_others = vec![take(&others, CONCURRENT).await, take(&others, CONCURRENT).await];
        let of_batch = [take(&others, of("batch")).await, take(&others, of("batch")).await];
        let own = take_all(&search, &CONCURRENT.into()).await;
        assert_eq!(
            (own.len(), free(&world).await),
            (5, ["1", "0", "0"].map(String::from)),
            "one is kept for others"
        );
        let waits = search.slot(CONCURRENT).max_wait(Duration::from_secs(300));
        let waiting = waits.run(async |_| Ok::<_, LimitError>(Instant::now()));
        let removing = async {
            sleep(Duration::from_secs(3)).await;
            let began = Instant::now();
            // The calls of search hold its slots, so this does not come to its end.
            let error = apply(&world, &split(&[share("batch", "0.2")])).await.unwrap_err();
            assert!(matches!(error, LimitsError::SlotsHeld { .. }), "{error}");
            began
        };
        let (ran, began) = tokio::join!(waiting, removing);
        let after = ran.unwrap() - began;
        assert!(after < Duration::from_secs(15), "{kind:?}: {after:?}");
        of_others.extend(of_batch);
        give_back(of_others).await;
        give_back(own).await;
    }
}

/// Its row would be left without a name, and hold slots under the name of a bucket that is gone.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_removed_with_a_share_that_got_its_row_meanwhile() {
    let world = World::embedded().await;
    world.slots(CONCURRENT, 10).await;
    let gate = world.dynamo.faults().hold_next(Operation::DeleteItem);
    let (client, others) = (world.client(), world.client());
    let name = dimension(CONCURRENT);
    let removes = async { client.ops().remove_bucket(&name).await };
    let declares = async {
        gate.reached().await;
        others.ops().apply_split(&name, &split(&[share("search", "0.5")])).await.unwrap();
        assert!(world.row(SEARCH).await.is_some());
        gate.open();
    };
    let (removed, ()) = tokio::join!(removes, declares);
    assert!(removed.unwrap());
    assert!(world.row(CONCURRENT).await.is_none() && world.row(SEARCH).await.is_none());
}

/// A later version may write more about a share. Nobody overwrites that, and whoever looks learns why slots
/// stay where they are.
#[tokio::test(start_paused = true)]
async fn a_sweep_says_that_it_left_a_change_whose_names_it_cannot_write() {
    let world = World::embedded().await;
    world.slots(CONCURRENT, 10).await;
    let client = world.client();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let held = take_all(&client, &CONCURRENT.into()).await;
    apply(&world, &split(&[share("search", "0.5")])).await.unwrap_err();
    give_back(held).await;
    names_what_a_later_version_writes(&world).await;
    crate::events::listen();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let lines = crate::events::lines();
    let left = lines.iter().find(|line| line["event"] == "reconciler.shares_left").expect("it is said");
    assert_eq!(left["dimension"], CONCURRENT);
    assert!(left["message"].as_str().unwrap().contains("a later version"), "{left}");
    assert!(world.bucket(CONCURRENT).await.changes_to().is_some());
}
