//! A recount never claims more than is true, whatever happens between its readings and however wrong the
//! clocks are; and it finds what there is to find where nothing happens.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::{Amount, Drift, Lease, ReadAt, Returned, Timestamp, schema};

#[path = "../cases/mod.rs"]
mod cases;
mod converging;
mod table;

use table::{ERROR, Item, SEGMENTS, Step, Table, Writer, amount};

fn writer() -> impl Strategy<Value = Writer> {
    prop_oneof![6 => Just(Writer::Counting), 1 => Just(Writer::Foreign)]
}

fn step() -> impl Strategy<Value = Step> {
    let planned_ago_ms = prop_oneof![2 => Just(0_i64), 1 => 0_i64..30_000];
    let acquire = (writer(), 1..=2, 0..SEGMENTS, -ERROR..=ERROR, planned_ago_ms);
    prop_oneof![
        3 => acquire.prop_map(|(writer, cost, segment, clock_ms, planned_ago_ms)| Step::Acquire {
            writer,
            cost,
            segment,
            clock_ms,
            planned_ago_ms
        }),
        3 => (writer(), any::<usize>()).prop_map(|(writer, which)| Step::Release { writer, which }),
        1 => any::<usize>().prop_map(|which| Step::Cap { which }),
        1 => any::<usize>().prop_map(|which| Step::Reclaim { which }),
        1 => any::<usize>().prop_map(|which| Step::ReclaimCapped { which }),
        1 => any::<usize>().prop_map(|which| Step::Lose { which }),
        1 => any::<usize>().prop_map(|which| Step::LoseToForeign { which }),
        2 => Just(Step::Scan),
        1 => (0_i64..60_000).prop_map(|ms| Step::Pass { ms }),
        3 => inline_step(),
    ]
}

fn inline_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..=2).prop_map(|cost| Step::AcquireInline { cost }),
        3 => any::<usize>().prop_map(|which| Step::ReleaseInline { which }),
        1 => Just(Step::RenewInline),
        1 => any::<usize>().prop_map(|which| Step::CapInline { which }),
    ]
}

const fn exactly(drift: i32) -> Drift {
    match drift {
        0 => Drift::None,
        lost if lost > 0 => Drift::Lost(Amount::from_tokens(lost)),
        minted => Drift::Minted(Amount::from_tokens(-minted)),
    }
}

/// What a recount says, and the drift that there is in the end.
fn judged(drift: i32, before: &[Step], during: &[Step], sweeper_ms: i64) -> (Drift, i32) {
    let mut table = Table::new(drift);
    before.iter().for_each(|step| table.run(step, None));
    let first = table.bucket();
    let at = Timestamp::from_micros((table.now_ms + sweeper_ms) * 1_000);
    let read_at = ReadAt { begun: at, done: at };
    during.iter().for_each(|step| table.run(step, Some(read_at)));
    while table.scanned_segments < SEGMENTS {
        table.scan_next(read_at);
    }
    (Drift::between(&first, &table.bucket(), &table.census, table.returned), table.drift())
}

proptest! {
    #![proptest_config(cases::cases(8_000))]

    #[test]
    fn a_recount_never_claims_more_than_is_true(
        drift in -3..=3,
        before in prop::collection::vec(step(), 0..30),
        during in prop::collection::vec(step(), 0..30),
        sweeper_ms in -ERROR..=ERROR,
    ) {
        let (found, drift) = judged(drift, &before, &during, sweeper_ms);
        let drift = Amount::from_tokens(drift);
        match found {
            Drift::Lost(slots) => prop_assert!(slots <= drift, "{slots} of {drift}"),
            Drift::Minted(slots) => prop_assert!(slots <= Amount::ZERO.minus(drift), "{slots} of {drift}"),
            _ => {}
        }
    }

    #[test]
    fn a_recount_of_a_quiet_bucket_is_exact(
        drift in -3..=3,
        before in prop::collection::vec(step(), 0..30),
        sweeper_ms in -ERROR..=ERROR,
    ) {
        let (found, drift) = judged(drift, &before, &[], sweeper_ms);
        prop_assert_eq!(found, exactly(drift));
    }

    /// They are in the row itself, and need no scan. Leases that others leave without their slots blur it by
    /// as much.
    #[test]
    fn a_recount_of_a_bucket_whose_leases_are_inline_is_exact_however_busy(
        drift in -3..=3,
        before in prop::collection::vec(inline_step(), 0..30),
        during in prop::collection::vec(inline_step(), 0..30),
        sweeper_ms in -ERROR..=ERROR,
    ) {
        let caps = during.iter().any(|step| matches!(step, Step::CapInline { .. }));
        let (found, drift) = judged(drift, &before, &during, sweeper_ms);
        prop_assert!(found == exactly(drift) || caps && found != Drift::Unknown, "{found:?} of {drift}");
    }

    /// The sweep's own restores must not hide what is lost.
    #[test]
    fn a_recount_is_not_blurred_by_what_the_sweep_gives_back(lost in 1..=3, held in 1_usize..10) {
        let acquire = Step::Acquire { writer: Writer::Counting, cost: 1, segment: 0, clock_ms: 0, planned_ago_ms: 0 };
        let mut during = vec![Step::Scan];
        during.extend(vec![Step::Reclaim { which: 0 }; held]);
        let mut before = vec![acquire; held];
        before.push(Step::Pass { ms: 60_000 });
        prop_assert_eq!(judged(lost, &before, &during, 0).0, Drift::Lost(Amount::from_tokens(lost)));
    }

    /// A client that gives slots back and leaves its leases: the sweep deletes them, and finds what else is
    /// wrong.
    #[test]
    fn leases_that_a_recount_deletes_alone_are_not_minted_slots(left in 1_usize..5, lost in 0..=2) {
        let acquire = Step::Acquire { writer: Writer::Counting, cost: 1, segment: 0, clock_ms: 0, planned_ago_ms: 0 };
        let mut before = vec![acquire; left];
        before.push(Step::Pass { ms: 120_000 });
        let mut during = vec![Step::Scan];
        during.extend(vec![Step::ReclaimCapped { which: 0 }; left]);
        let minted = i32::try_from(left).unwrap();
        let found = if lost > 0 { Drift::Lost(amount(lost)) } else { Drift::None };
        prop_assert_eq!(judged(lost - minted, &before, &during, 0), (found, lost));
    }
}

/// Another client deletes them alone while nothing else is written.
#[test]
fn a_recount_of_leases_that_another_deleted_alone_finds_no_minted_slot() {
    let acquire =
        Step::Acquire { writer: Writer::Counting, cost: 1, segment: 0, clock_ms: 0, planned_ago_ms: 0 };
    let during = [Step::Scan, Step::LoseToForeign { which: 0 }, Step::LoseToForeign { which: 0 }];
    assert_eq!(judged(-2, &[acquire.clone(), acquire], &during, 0), (Drift::None, 0));
}

/// A client that writes milliseconds for seconds: nothing follows from when its lease began.
#[test]
fn a_recount_reckons_with_a_lease_that_began_after_its_end() {
    let number = |value: &str| (false, value.to_owned());
    let row = Item(BTreeMap::from([
        (schema::KEY, (true, "lease#elevenlabs#concurrent#1".into())),
        (schema::COST, number("1")),
        (schema::TTL, number("1000060")),
        (schema::CREATED_AT, number("1000000000")),
    ]));
    let at = Timestamp::from_secs(1_000_000);
    let mut table = Table::new(1);
    let first = table.bucket();
    table.census.count(&Lease::read(&row).unwrap(), ReadAt { begun: at, done: at });
    table.write(Writer::Counting);
    assert_eq!(Drift::between(&first, &table.bucket(), &table.census, Returned::default()), Drift::None);
}
