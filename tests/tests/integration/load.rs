//! The loads that sweeps measure: pending counted anew each time, by what lives in the table.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{Field, OUTLIVED, Row};
use sluice_core::{Amount, Load, SweepLog};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_sdk::{Grant, Outcome, Released};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::recount::{SLOTS, known_to_sweeps, known_to_sweeps_of, sweep};
use crate::world::{LEASE_TTL, World, dimension, number, settle, take, text};

pub(crate) struct Item(pub(crate) HashMap<String, AttributeValue>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        let value = self.0.get(name)?;
        Some(value.as_s().map_or(Field::Other, |text| Field::Text(text)))
    }
}

fn load(report: &SweepReport) -> &Load {
    &report.loads[&dimension(SLOTS)]
}

fn slots(slots: i32) -> Amount {
    Amount::from_tokens(slots)
}

/// Callers that take a slot, hold it for `held` and go, one after the other, for five minutes; then a sweep.
async fn work(world: &World, holders: &mut Vec<Grant>, at_once: usize, held: Duration) -> SweepReport {
    let client = world.client();
    let mut passed = Duration::ZERO;
    while passed < Duration::from_secs(300) {
        while holders.len() < at_once {
            match client.acquire(SLOTS).await.unwrap() {
                Outcome::Granted(grant) => holders.push(grant),
                Outcome::RetryIn(_) => break,
            }
        }
        let step = held / u32::try_from(at_once).unwrap();
        world.pass(step);
        passed += step;
        if !holders.is_empty() {
            holders.remove(0).release().await.unwrap();
        }
    }
    while holders.len() < at_once {
        holders.push(take(&client, SLOTS).await);
    }
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

async fn the_rate_is_what_departs(kind: Kind) {
    let world = known_to_sweeps_of(kind, 4).await;
    let mut holders = Vec::new();
    for _ in 0..3 {
        work(&world, &mut holders, 4, Duration::from_secs(10)).await;
    }
    let report = work(&world, &mut holders, 4, Duration::from_secs(10)).await;
    let rate: f64 = load(&report).drain_rate().unwrap().to_string().parse().unwrap();
    assert_eq!((load(&report).pending(), load(&report).taken()), (slots(4), slots(4)));
    assert!((rate / 0.4 - 1.0).abs() < 0.02, "four slots, ten seconds each: {rate}");
    // Half as many holders, as slow: half as fast.
    for grant in holders.split_off(2) {
        grant.release().await.unwrap();
    }
    for _ in 0..3 {
        work(&world, &mut holders, 2, Duration::from_secs(10)).await;
    }
    let report = work(&world, &mut holders, 2, Duration::from_secs(10)).await;
    let rate: f64 = load(&report).drain_rate().unwrap().to_string().parse().unwrap();
    assert!((rate / 0.2 - 1.0).abs() < 0.05, "{rate}");
    std::mem::forget(holders);
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_lease_rows_is_what_departs() {
    the_rate_is_what_departs(Kind::Rows).await;
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_inline_leases_is_what_departs() {
    the_rate_is_what_departs(Kind::Inline).await;
}

#[tokio::test(start_paused = true)]
async fn what_crashed_holders_left_is_not_pending_after_the_next_sweep() {
    let world = known_to_sweeps(10).await;
    let client = world.client();
    let mut alive = Vec::new();
    for _ in 0..5 {
        let _ = ManuallyDrop::new(take(&client, SLOTS).await);
        alive.push(take(&client, SLOTS).await);
    }
    world.pass(Duration::from_secs(1));
    let report = client.ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(load(&report).pending(), slots(10));
    world.pass(LEASE_TTL - Duration::from_secs(5));
    for grant in &mut alive {
        grant.renew().await.unwrap();
    }
    world.pass(Duration::from_secs(8));
    let report = client.ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(
        (report.restored_slots, load(&report).pending(), load(&report).taken()),
        (5, slots(5), slots(5))
    );
}

#[tokio::test(start_paused = true)]
async fn leases_of_both_kinds_are_counted_once() {
    let world = known_to_sweeps(10).await;
    let inline = world.client_with(|settings| settings.leases(Kind::Inline.leases()));
    let _held = (take(&world.client(), SLOTS).await, take(&inline, SLOTS).await, take(&inline, SLOTS).await);
    world.pass(Duration::from_secs(1));
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((load(&report).pending(), load(&report).taken()), (slots(3), slots(3)));
}

#[tokio::test(start_paused = true)]
async fn slots_that_nobody_moves_are_told_after_a_quarter_of_an_hour() {
    let world = known_to_sweeps(5).await;
    let mut held = take(&world.client(), SLOTS).await;
    let mut leaked = Vec::new();
    for _ in 0..5 {
        let report = sweep_and_renew(&world, &mut held).await;
        leaked.push(report.leaked().get(&dimension(SLOTS)).copied().unwrap_or_default());
    }
    assert_eq!(leaked, [slots(0), slots(0), slots(0), slots(1), slots(1)]);
    held.release().await.unwrap();
    assert!(sweep(&world).await.leaked().is_empty());
}

/// Five minutes in which its holder does nothing but hold on, and a sweep.
async fn sweep_and_renew(world: &World, held: &mut Grant) -> SweepReport {
    for _ in 0..10 {
        world.pass(Duration::from_secs(30));
        held.renew().await.unwrap();
    }
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_sweeps_at_once_measure_once() {
    let world = known_to_sweeps(5).await.distant();
    let _held = take(&world.client(), SLOTS).await;
    world.pass(Duration::from_secs(10));
    let (one, other) = (world.client().ops(), world.client().ops());
    let (one, other) = tokio::join!(one.sweep(SweepOptions::default()), other.sweep(SweepOptions::default()));
    let measured = [one.unwrap(), other.unwrap()]
        .iter()
        .filter(|report| report.loads.contains_key(&dimension(SLOTS)))
        .count();
    assert!(measured >= 1);
    world.pass(Duration::from_secs(10));
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(load(&report).sequence(), 2, "the two of before were one");
}

#[tokio::test(start_paused = true)]
async fn an_idle_bucket_costs_a_sweep_no_write() {
    let world = known_to_sweeps(5).await;
    for sweeps in 0..3 {
        world.dynamo.meter().reset();
        sweep(&world).await;
        let of_load = u64::from(sweeps == 0);
        assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, of_load + 1, "and its own line");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_twenty_sweeps_leave_a_line_each() {
    let world = known_to_sweeps(2).await;
    for _ in 0..25 {
        sweep(&world).await;
    }
    let row = world.row("load#sweeps").await.unwrap();
    let log = SweepLog::read(&Item(row));
    let at: Vec<_> = log.records().map(|record| record.at).collect();
    assert_eq!(at.len(), 20);
    assert!(at.is_sorted_by(|one, other| one > other), "the latest first");
    assert_eq!(at[0], world.dynamo.clock().now());
    assert!(log.records().all(|record| record.rows >= 1 && record.requests >= 16));
}

/// From another continent, for whose alerts a sweep without a line is none.
#[tokio::test(start_paused = true)]
async fn a_sweep_from_far_away_leaves_its_line() {
    let world = World::with_slots(SLOTS, 1).await;
    world.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(400))));
    for budget in [None, Some(Duration::from_secs(55))] {
        let mut options = SweepOptions::default();
        options.budget = budget;
        world.client().ops().sweep(options).await.unwrap();
    }
    world.dynamo.faults().clear();
    assert_eq!(SweepLog::read(&Item(world.row("load#sweeps").await.unwrap())).records().count(), 2);
}

/// It may be all that its function has.
#[tokio::test(start_paused = true)]
async fn the_line_of_a_sweep_takes_no_longer_than_its_budget() {
    let world = World::new().await;
    // Nothing else is written to a table without buckets.
    world.dynamo.faults().always(Operation::UpdateItem, Fault::Hang);
    for (budget, most) in [(600, 600), (100, 250)] {
        let mut options = SweepOptions::default();
        options.budget = Some(Duration::from_millis(budget));
        let began = Instant::now();
        world.client().ops().sweep(options).await.unwrap();
        assert!(began.elapsed() <= Duration::from_millis(most + 10), "{budget}: {:?}", began.elapsed());
    }
}

/// A holder that froze, and found its slot given to others.
#[tokio::test(start_paused = true)]
async fn a_holder_that_outlived_its_lease_is_told_of_by_the_next_sweep_alone() {
    let world = known_to_sweeps(5).await;
    let frozen = take(&world.client(), SLOTS).await;
    world.pass_lease();
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.restored_slots, report.expired_holders.len()), (1, 0));
    assert_eq!(frozen.release().await.unwrap(), Released::LeaseGone);
    settle().await;
    assert_eq!(sweep(&world).await.expired_holders[&dimension(SLOTS)], 1);
    assert!(sweep(&world).await.expired_holders.is_empty());
}

/// Nothing can be added to it, and no sweep replaces it: such holders would no longer be reported to anybody.
#[tokio::test(start_paused = true)]
async fn a_count_of_outlived_leases_that_is_none_is_begun_anew() {
    for spoiled in [text("many"), AttributeValue::Bool(true)] {
        let world = known_to_sweeps(5).await;
        sweep(&world).await;
        let frozen = [take(&world.client(), SLOTS).await, take(&world.client(), SLOTS).await];
        let key = Load::key(&dimension(SLOTS));
        let mut row = world.row(&key).await.unwrap();
        row.insert(OUTLIVED.into(), spoiled);
        world.put(row).await;
        world.pass_lease();
        assert!(sweep(&world).await.expired_holders.is_empty());
        // The first replaces it, whose reply is lost; the second is added to it.
        for (grant, fault) in frozen.into_iter().zip([Some(Fault::LoseReply), None]) {
            let updates = AtomicU64::new(0);
            world.dynamo.faults().draw(move |call| {
                let is_note = call.operation == Operation::UpdateItem && names(call.body, OUTLIVED);
                // The second write of a note.
                (is_note && updates.fetch_add(1, Ordering::SeqCst) == 1).then(|| fault.clone()).flatten()
            });
            assert_eq!(grant.release().await.unwrap(), Released::LeaseGone);
            sleep(Duration::from_secs(1)).await;
        }
        world.dynamo.faults().clear();
        assert_eq!(world.row(&key).await.unwrap()[OUTLIVED], number("2"));
        world.pass(Duration::from_secs(300));
        assert_eq!(
            world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired_holders
                [&dimension(SLOTS)],
            2
        );
    }
}

fn names(body: &[u8], attribute: &str) -> bool {
    body.windows(attribute.len()).any(|part| part == attribute.as_bytes())
}
