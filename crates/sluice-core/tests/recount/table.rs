//! A table with one concurrency bucket, its writers, and a sweep's view of it.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::schema::{self, Field, Row};
use sluice_core::{Amount, Bucket, Census, Cost, Dimension, Lease, LeaseId, ReadAt, Returned, Timestamp};

pub(crate) const CAPACITY: i32 = 100;
pub(crate) const SEGMENTS: u8 = 4;
/// Error of each clock, in milliseconds.
pub(crate) const ERROR: i64 = 2_000;

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writer {
    /// Sluice.
    Counting,
    /// A client that adds to `version` and does not know `admitted`.
    Foreign,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
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
    /// One of the live leases is deleted without its slots, by another client of Sluice that found the bucket
    /// full.
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
    /// Likewise: a client in another language deleted it alone, without a write to the bucket.
    LoseToForeign {
        which: usize,
    },
    /// Slots are taken for an inline lease.
    AcquireInline {
        cost: i32,
    },
    /// One of the inline leases is given back, by its holder, a sweep or a caller that takes over, or is
    /// renewed.
    ReleaseInline {
        which: usize,
    },
    RenewInline,
    /// One is removed without its slots, since the bucket is full.
    CapInline {
        which: usize,
    },
    /// The scan comes to the next segment.
    Scan,
    Pass {
        ms: i64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    lease: Lease,
    cost: i32,
    segment: u8,
    scanned: bool,
}

/// The table, and the sweep's view of it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) now_ms: i64,
    tokens: i32,
    version: i64,
    counted: i64,
    admitted: i32,
    admitted_inline: i32,
    capped: i32,
    /// Costs of the inline leases.
    inline: Vec<i32>,
    leases: Vec<Held>,
    /// Cost of leases that others deleted after the scan had seen them.
    lost: Vec<i32>,
    made: u32,
    pub(crate) scanned_segments: u8,
    pub(crate) census: Census,
    pub(crate) returned: Returned,
}

pub(crate) struct Item(pub(crate) BTreeMap<&'static str, (bool, String)>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0
            .get(name)
            .map(|(is_text, value)| if *is_text { Field::Text(value) } else { Field::Number(value) })
    }
}

/// A bucket with inline leases of these costs.
struct WithInline<'a>(Item, &'a [i32]);

impl Row for WithInline<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        if name == schema::LEASES { Some(Field::Other) } else { self.0.field(name) }
    }

    fn entries(&self, _: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let number = |value: i32| (false, value.to_string());
        for (id, cost) in self.1.iter().enumerate() {
            let lease = [(schema::INLINE_COST, number(*cost)), (schema::INLINE_ENDS, number(1_000_060))];
            visit(&id.to_string(), Some(&Item(BTreeMap::from(lease))));
        }
        true
    }
}

pub(crate) fn name() -> Dimension {
    Dimension::new("elevenlabs#concurrent").unwrap()
}

impl Table {
    pub(crate) fn new(drift: i32) -> Self {
        Self {
            now_ms: 1_000_000_000,
            tokens: CAPACITY - drift,
            version: 7,
            counted: 3,
            admitted: 0,
            admitted_inline: 0,
            capped: 0,
            inline: Vec::new(),
            leases: Vec::new(),
            lost: Vec::new(),
            made: 0,
            scanned_segments: 0,
            census: Census::default(),
            returned: Returned::default(),
        }
    }

    pub(crate) fn bucket(&self) -> Bucket {
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
            (schema::ADMITTED_INLINE, number(self.admitted_inline.to_string())),
            (schema::CAPPED, number(self.capped.to_string())),
            (schema::LIMIT_TYPE, (true, "concurrent".into())),
        ]));
        Bucket::read(&name(), &WithInline(row, &self.inline)).unwrap()
    }

    /// Slots that are neither free nor held.
    pub(crate) fn drift(&self) -> i32 {
        let inline: i32 = self.inline.iter().sum();
        CAPACITY - self.tokens - inline - self.leases.iter().map(|held| held.cost).sum::<i32>()
    }

    pub(crate) fn write(&mut self, writer: Writer) {
        self.version += 1;
        self.counted += i64::from(matches!(writer, Writer::Counting));
    }

    pub(crate) fn run(&mut self, step: &Step, read_at: Option<ReadAt>) {
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
            Step::LoseToForeign { which } => {
                if let Some(held) = self.take(which, |held| held.scanned) {
                    self.returned.lost = self.returned.lost.plus(amount(held.cost));
                }
            }
            Step::AcquireInline { .. }
            | Step::ReleaseInline { .. }
            | Step::RenewInline
            | Step::CapInline { .. } => {
                self.run_inline(step);
            }
            Step::Scan => {
                if let Some(read_at) = read_at {
                    self.scan_next(read_at);
                }
            }
            Step::Pass { ms } => self.now_ms += ms,
        }
    }

    fn run_inline(&mut self, step: &Step) {
        match *step {
            Step::AcquireInline { cost } => {
                self.write(Writer::Counting);
                self.tokens -= cost;
                self.admitted += cost;
                self.admitted_inline += cost;
                self.inline.push(cost);
            }
            Step::ReleaseInline { which } if !self.inline.is_empty() => {
                self.write(Writer::Counting);
                self.tokens += self.inline.remove(which % self.inline.len());
            }
            Step::CapInline { which } if !self.inline.is_empty() => {
                self.write(Writer::Counting);
                self.capped += self.inline.remove(which % self.inline.len());
            }
            Step::RenewInline => self.write(Writer::Counting),
            _ => {}
        }
    }

    fn take(&mut self, which: usize, may: impl Fn(&Held) -> bool) -> Option<Held> {
        let those: Vec<usize> = (0..self.leases.len()).filter(|at| may(&self.leases[*at])).collect();
        (!those.is_empty()).then(|| self.leases.remove(those[which % those.len()]))
    }

    pub(crate) fn scan_next(&mut self, read_at: ReadAt) {
        let segment = self.scanned_segments;
        self.scanned_segments += 1;
        for held in self.leases.iter_mut().filter(|held| held.segment == segment) {
            held.scanned = true;
            self.census.count(&held.lease, read_at);
        }
    }
}

pub(crate) fn amount(tokens: i32) -> Amount {
    Amount::from_tokens(tokens)
}
