//! Large tables: read in parts, each turn going on where the last ended, whoever makes it.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::schema::HEAL_POSITION;
use sluice_sdk::Grant;

use super::mark::is_mark;
use super::*;

/// Some 25 rows of 40 KB, which a page of a megabyte holds.
const ROWS_PER_PAGE: u32 = 25;

const A_DAY: Duration = Duration::from_secs(86_400);

/// So many pages of leases that live.
pub(super) fn fill(world: &World, pages: u32) {
    let now = world.dynamo.clock().now();
    let filler = "x".repeat(40_000);
    let leases = (0..pages * ROWS_PER_PAGE).map(|at| {
        let id = LeaseId::new(format!("{at}")).unwrap();
        Lease::new(dimension("some#rpm"), &id, Cost::ONE, now, now.after(A_DAY), &filler).put()
    });
    world.dynamo.load(TABLE, leases).unwrap();
}

/// What a scan of the table costs.
pub(super) async fn table_units(world: &World) -> u64 {
    world.dynamo.meter().reset();
    world.client().ops().survey().await.unwrap();
    let units = world.dynamo.meter().reset().read_units.ceil();
    format!("{units:.0}").parse().unwrap()
}

/// Leases of crashed holders, wherever they fall in a table of so many pages.
async fn crashed_among(pages: u32) -> World {
    let world = World::embedded().await;
    world.slots(SLOTS, 20).await;
    fill(&world, pages);
    crash(&world, 20).await;
    world.pass_lease();
    world
}

/// Takes all that is free, and keeps it.
async fn drain(client: &Client, held: &mut Vec<Grant>) {
    while let Outcome::Granted(grant) = client.acquire(SLOTS).await.unwrap() {
        held.push(grant);
    }
}

/// As documented: the table's units by the budget (25 a second), an eighth more, and 8 s.
fn covered_within(units: u64) -> Duration {
    Duration::from_secs(units * 9 / (25 * 8) + 8)
}

#[tokio::test(start_paused = true)]
async fn a_large_table_is_covered_within_its_units_by_the_budget() {
    let world = crashed_among(20).await;
    let within = covered_within(table_units(&world).await);
    let client = world.client_with(|settings| settings.lease_ttl(A_DAY));
    let (began, mut held) = (Instant::now(), Vec::new());
    while held.len() < 20 {
        drain(&client, &mut held).await;
        sleep(Duration::from_millis(500)).await;
        assert!(began.elapsed() <= within, "{} of 20 after {:?}", held.len(), began.elapsed());
    }
    assert!(began.elapsed() > within / 3, "{:?}: the table is not large", began.elapsed());
}

/// The table that `docs/semantics.md` has the time of: a tenth of it, and its units.
#[tokio::test(start_paused = true)]
async fn a_table_of_a_hundred_thousand_leases_is_covered_in_two_minutes() {
    let world = World::embedded().await;
    let now = world.dynamo.clock().now();
    let leases = (0..10_000).map(|at| {
        let id = LeaseId::new(format!("{at:022}")).unwrap();
        Lease::new(dimension(SLOTS), &id, Cost::ONE, now, now.after(A_DAY), "ip-10-0-12-34/4711").put()
    });
    world.dynamo.load(TABLE, leases).unwrap();
    let units = table_units(&world).await * 10;
    assert!((1_900..=2_600).contains(&units), "{units}");
    assert!(covered_within(units) <= Duration::from_secs(120 + 8), "{units}");
}

/// Faults for the pages that each turn reads, counted from the mark of the turn on.
fn each_page_of_a_turn(world: &World, fault: impl Fn(u64) -> Option<Fault> + Send + Sync + 'static) {
    let pages = AtomicU64::new(0);
    world.dynamo.faults().draw(move |call| {
        if is_mark(call) {
            pages.store(0, Ordering::SeqCst);
        }
        let read = (call.operation == Operation::Scan).then(|| pages.fetch_add(1, Ordering::SeqCst))?;
        fault(read)
    });
}

/// Each lives for two pages of its turn. Frozen, it hangs in the third, which goes on when the next has its
/// turn; ended, its runtime is gone. It leaves its progress behind.
#[tokio::test(start_paused = true)]
async fn a_large_table_is_covered_though_each_process_ends_or_is_frozen_in_the_middle() {
    for ends in [true, false] {
        let world = crashed_among(12).await;
        each_page_of_a_turn(&world, move |read| {
            (read == 1).then_some(if ends {
                Fault::Hang
            } else {
                Fault::Delay(Duration::from_millis(900) + HEAL_EVERY)
            })
        });
        let patient = || world.client_with(|settings| settings.lease_ttl(A_DAY).max_retries(0));
        let (began, mut held, mut clients) = (Instant::now(), Vec::new(), Vec::new());
        // At worst a page each 12 s, of which the second is lost and paid for, and one more for the page that
        // the lease is in.
        let within = Duration::from_secs(12 * (12 + 2));
        while held.len() < 20 {
            if ends {
                clients.clear();
            }
            clients.push(patient());
            drain(clients.last().unwrap(), &mut held).await;
            sleep(Duration::from_millis(4_500)).await;
            assert!(
                began.elapsed() <= within,
                "ends: {ends}: {} of 20 after {:?}",
                held.len(),
                began.elapsed()
            );
        }
    }
}

/// It goes on in the middle of its turn, when another has had two.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_frozen_moves_nobody_elses_position() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    fill(&world, 12);
    let holder = world.client_with(|settings| settings.lease_ttl(A_DAY));
    let _held = take(&holder, SLOTS).await;
    let (slow, other) = (world.client(), world.client());
    let gate = world.dynamo.faults().hold_next(Operation::Scan);
    refusal(&slow, SLOTS).await;
    gate.reached().await;
    for _ in 0..2 {
        world.pass(HEAL_EVERY * 2);
        refusal(&other, SLOTS).await;
        settle().await;
    }
    let row = world.row(HEAL_KEY).await.unwrap();
    assert!(row.contains_key(HEAL_POSITION));
    gate.open();
    settle().await;
    assert_eq!(world.row(HEAL_KEY).await.unwrap(), row);
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_is_throttled_goes_on_with_the_next_turn_where_it_was() {
    let world = crashed_among(6).await;
    each_page_of_a_turn(&world, |read| (read >= 1).then(Fault::throttled));
    let client = world.client_with(|settings| settings.lease_ttl(A_DAY));
    let (began, mut held) = (Instant::now(), Vec::new());
    while held.len() < 20 {
        drain(&client, &mut held).await;
        sleep(Duration::from_secs(1)).await;
        assert!(
            began.elapsed() <= Duration::from_secs(9 * 8),
            "{} of 20 after {:?}",
            held.len(),
            began.elapsed()
        );
    }
}

/// A small table writes no progress, and a large one that shrank leaves none behind.
#[tokio::test(start_paused = true)]
async fn a_scan_that_reaches_the_end_begins_anew() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world
        .put([("vendor_dimension".into(), text(HEAL_KEY)), (HEAL_POSITION.into(), text("zzz"))].into())
        .await;
    world.pass_lease();
    let client = world.client();
    for _ in 0..2 {
        let _ = client.acquire(SLOTS).await.unwrap();
        sleep(HEAL_EVERY + Duration::from_secs(1)).await;
    }
    assert!(!world.row(HEAL_KEY).await.unwrap().contains_key(HEAL_POSITION));
    assert_eq!(world.leases().await, 0);
}
