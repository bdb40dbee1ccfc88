//! A recount never claims more than is true, whatever happens between its readings and however wrong the clocks are; and it
//! finds what there is to find where nothing happens.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{self, Field, Row};
use sluice_core::{Amount, Bucket, Census, Cost, Dimension, Drift, Lease, LeaseId, ReadAt, Returned, Timestamp};

const CAPACITY: i32 = 100;
const SEGMENTS: u8 = 4;
/// Error of each clock, in milliseconds.
const ERROR: i64 = 2_000;

/// Who writes.
#[derive(Clone, Copy, Debug)]
enum Writer {
    /// Sluice.
    Counting,
    /// A client that adds to `version` and does not know `admitted`.
    Foreign,
}

#[derive(Clone, Debug)]
enum Step {
    /// Slots are taken: by a clock that is off by so much, for a lease that was planned so long ago.
    Acquire {
        writer: Writer,
        cost: i32,
        segment: u8,
        clock_ms: i64,
        planned_ago_ms: i64,
    },
    /// One of the live leases is given back.
    Release {
        writer: Writer,
        which: usize,
    },
    /// One of the live leases is deleted without its slots, by another client of Sluice that found the bucket full.
    Cap {
        which: usize,
    },
    /// The sweep itself gives back a lease that it scanned.
    Reclaim {
        which: usize,
    },
    /// The sweep itself deletes one alone.
    ReclaimCapped {
        which: usize,
    },
    /// The sweep comes too late for one: others gave it back, or renewed it.
    Lose {
        which: usize,
    },
    /// The scan comes to the next segment.
    Scan,
    Pass {
        ms: i64,
    },
}

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
        2 => Just(Step::Scan),
        1 => (0_i64..60_000).prop_map(|ms| Step::Pass { ms }),
    ]
}

#[derive(Clone, Debug)]
struct Held {
    lease: Lease,
    cost: i32,
    segment: u8,
    scanned: bool,
}

/// The table, and the sweep's view of it.
#[derive(Clone, Debug)]
struct Table {
    now_ms: i64,
    tokens: i32,
    version: i64,
    counted: i64,
    admitted: i32,
    capped: i32,
    leases: Vec<Held>,
    /// Cost of leases that others deleted after the scan had seen them.
    lost: Vec<i32>,
    made: u32,
    scanned_segments: u8,
    census: Census,
    returned: Returned,
}

struct Item(BTreeMap<&'static str, (bool, String)>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|(is_text, value)| if *is_text { Field::Text(value) } else { Field::Number(value) })
    }
}

fn name() -> Dimension {
    Dimension::new("elevenlabs#concurrent").unwrap()
}

impl Table {
    fn new(drift: i32) -> Self {
        Self {
            now_ms: 1_000_000_000,
            tokens: CAPACITY - drift,
            version: 7,
            counted: 3,
            admitted: 0,
            capped: 0,
            leases: Vec::new(),
            lost: Vec::new(),
            made: 0,
            scanned_segments: 0,
            census: Census::default(),
            returned: Returned::default(),
        }
    }

    fn bucket(&self) -> Bucket {
        let number = |value: String| (false, value);
        let row = Item(BTreeMap::from([
            (schema::CAPACITY, number(CAPACITY.to_string())),
            (schema::TOKENS, number(self.tokens.to_string())),
            (schema::REFILL_RATE, number("0".into())),
            (schema::LAST_REFILL_AT, number("0".into())),
            (schema::COST_PER_CALL, number("1".into())),
            (schema::VERSION, number(self.version.to_string())),
            (schema::COUNTED, number(self.counted.to_string())),
            (schema::ADMITTED, number(self.admitted.to_string())),
            (schema::CAPPED, number(self.capped.to_string())),
            (schema::LIMIT_TYPE, (true, "concurrent".into())),
        ]));
        Bucket::read(&name(), &row).unwrap()
    }

    /// Slots that are neither free nor held.
    fn drift(&self) -> i32 {
        CAPACITY - self.tokens - self.leases.iter().map(|held| held.cost).sum::<i32>()
    }

    fn write(&mut self, writer: Writer) {
        self.version += 1;
        self.counted += i64::from(matches!(writer, Writer::Counting));
    }

    fn run(&mut self, step: &Step, read_at: Option<ReadAt>) {
        match *step {
            Step::Acquire { writer, cost, segment, clock_ms, planned_ago_ms } => {
                self.write(writer);
                self.tokens -= cost;
                self.admitted += if matches!(writer, Writer::Counting) { cost } else { 0 };
                self.made += 1;
                let at = Timestamp::from_micros((self.now_ms + clock_ms - planned_ago_ms) * 1_000);
                let id = LeaseId::new(self.made.to_string()).unwrap();
                let ends = at.after(Duration::from_secs(60));
                let lease = Lease::new(name(), &id, Cost::new(amount(cost)).unwrap(), at, ends, "test");
                self.leases.push(Held { lease, cost, segment, scanned: false });
            }
            Step::Release { writer, which } => {
                if let Some(held) = self.take(which, |_| true) {
                    self.write(writer);
                    self.tokens += held.cost;
                    self.lost.extend(held.scanned.then_some(held.cost));
                }
            }
            Step::Cap { which } => {
                if let Some(held) = self.take(which, |_| true) {
                    self.write(Writer::Counting);
                    self.capped += held.cost;
                    self.lost.extend(held.scanned.then_some(held.cost));
                }
            }
            Step::Reclaim { which } => {
                if let Some(held) = self.take(which, |held| held.scanned) {
                    self.write(Writer::Counting);
                    self.tokens += held.cost;
                    self.returned.slots = self.returned.slots.plus(amount(held.cost));
                }
            }
            Step::ReclaimCapped { which } => {
                if let Some(held) = self.take(which, |held| held.scanned) {
                    self.write(Writer::Counting);
                    self.capped += held.cost;
                    self.returned.capped = self.returned.capped.plus(amount(held.cost));
                }
            }
            Step::Lose { which } => {
                let renewed = self.leases.iter().find(|held| held.scanned).map(|held| held.cost);
                let lost = if which.is_multiple_of(2) { self.lost.pop() } else { renewed };
                self.returned.lost = self.returned.lost.plus(amount(lost.unwrap_or(0)));
            }
            Step::Scan => {
                if let Some(read_at) = read_at {
                    self.scan_next(read_at);
                }
            }
            Step::Pass { ms } => self.now_ms += ms,
        }
    }

    fn take(&mut self, which: usize, may: impl Fn(&Held) -> bool) -> Option<Held> {
        let those: Vec<usize> = (0..self.leases.len()).filter(|at| may(&self.leases[*at])).collect();
        (!those.is_empty()).then(|| self.leases.remove(those[which % those.len()]))
    }

    fn scan_next(&mut self, read_at: ReadAt) {
        let segment = self.scanned_segments;
        self.scanned_segments += 1;
        for held in self.leases.iter_mut().filter(|held| held.segment == segment) {
            held.scanned = true;
            self.census.count(&held.lease, read_at);
        }
    }
}

fn amount(tokens: i32) -> Amount {
    Amount::from_tokens(tokens)
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
    #![proptest_config(ProptestConfig { cases: 8_000, ..ProptestConfig::default() })]

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
    fn a_quiet_bucket_is_counted_exactly(
        drift in -3..=3,
        before in prop::collection::vec(step(), 0..30),
        sweeper_ms in -ERROR..=ERROR,
    ) {
        let (found, drift) = judged(drift, &before, &[], sweeper_ms);
        let exact = match drift {
            0 => Drift::None,
            lost if lost > 0 => Drift::Lost(Amount::from_tokens(lost)),
            minted => Drift::Minted(Amount::from_tokens(-minted)),
        };
        prop_assert_eq!(found, exact);
    }

    /// The sweep's own restores must not hide what is lost.
    #[test]
    fn what_the_sweep_gives_back_blurs_nothing(lost in 1..=3, held in 1_usize..10) {
        let acquire = Step::Acquire { writer: Writer::Counting, cost: 1, segment: 0, clock_ms: 0, planned_ago_ms: 0 };
        let mut during = vec![Step::Scan];
        during.extend(vec![Step::Reclaim { which: 0 }; held]);
        let mut before = vec![acquire; held];
        before.push(Step::Pass { ms: 60_000 });
        prop_assert_eq!(judged(lost, &before, &during, 0).0, Drift::Lost(Amount::from_tokens(lost)));
    }

    /// A client that gives slots back and leaves its leases: the sweep deletes them alone, and nothing is amiss after that.
    #[test]
    fn leases_that_the_sweep_deletes_alone_are_not_minted_slots(left in 1_usize..5) {
        let acquire = Step::Acquire { writer: Writer::Counting, cost: 1, segment: 0, clock_ms: 0, planned_ago_ms: 0 };
        let mut before = vec![acquire; left];
        before.push(Step::Pass { ms: 120_000 });
        let mut during = vec![Step::Scan];
        during.extend(vec![Step::ReclaimCapped { which: 0 }; left]);
        let minted = i32::try_from(left).unwrap();
        prop_assert_eq!(judged(-minted, &before, &during, 0), (Drift::None, 0));
    }
}
