//! Rows for tests, as other clients could have written them.

use std::collections::BTreeMap;

use sluice_ops::{BucketRow, LeaseRow, LoadRow, Survey};
use sluice_sdk::core::schema::{self, Field};
use sluice_sdk::core::{
    Amount, Borrowing, Bucket, Cost, Dimension, Lease, LeaseId, ShareName, SweepLog, SweepRecord, Timestamp,
};

pub(crate) fn dimension(name: &str) -> Dimension {
    Dimension::new(name).unwrap()
}

/// A row of numbers and texts.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    name: String,
    numbers: BTreeMap<&'static str, String>,
    kind: &'static str,
    /// Shares, with the attributes of their lines.
    shares: Vec<(&'static str, Self)>,
}

impl schema::Row for Row {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        match name {
            schema::LIMIT_TYPE => Some(Field::Text(self.kind)),
            schema::SHARES => (!self.shares.is_empty()).then_some(Field::Other),
            _ => self.numbers.get(name).map(|number| Field::Number(number)),
        }
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn schema::Row>)) -> bool {
        self.shares.iter().for_each(|(share, line)| visit(share, Some(line)));
        name == schema::SHARES
    }
}

fn decimal(micros: i64) -> String {
    Amount::from_micros(micros).to_string()
}

impl Row {
    /// A full bucket of tokens at the epoch; `capacity` in millionths, `rate` in tokens a second.
    pub(crate) fn rate(name: &str, capacity: i64, rate: i64) -> Self {
        Self { name: name.into(), numbers: BTreeMap::new(), kind: "tokens", shares: Vec::new() }
            .number(schema::CAPACITY, &decimal(capacity))
            .number(schema::REFILL_RATE, &rate.to_string())
            .number(schema::COST_PER_CALL, "1")
            .number(schema::VERSION, "0")
            .tokens(capacity)
            .anchor(0)
    }

    /// A concurrency bucket with all of its slots free.
    pub(crate) fn slots(name: &str, slots: i64) -> Self {
        Self { kind: "concurrent", ..Self::rate(name, slots * 1_000_000, 0) }
    }

    /// A load row with a sweep's measurement of a bucket.
    pub(crate) fn load(name: &str) -> Self {
        Self { name: name.into(), numbers: BTreeMap::new(), kind: "", shares: Vec::new() }
    }

    /// The same bucket with a share of this capacity and level, in millionths, and of this rate, in tokens a
    /// second.
    pub(crate) fn share(self, share: &'static str, line: (i64, i64), rate: i64) -> Self {
        self.share_with_loans(share, line, rate, (12, 0))
    }

    /// The same, which has lent and borrowed so many tokens.
    pub(crate) fn share_with_loans(
        mut self,
        share: &'static str,
        (capacity, level): (i64, i64),
        rate: i64,
        (lent, borrowed): (u32, u32),
    ) -> Self {
        let line = Self { name: String::new(), numbers: BTreeMap::new(), kind: "", shares: Vec::new() };
        let anchor = self.numbers[schema::LAST_REFILL_AT].clone();
        let line = line
            .number(schema::LINE_CAPACITY, &decimal(capacity))
            .number(schema::LINE_RATE, &rate.to_string())
            .number(schema::LINE_TOKENS, &decimal(level))
            .number(schema::LINE_ANCHOR, &anchor)
            .number(schema::LINE_LENT, &lent.to_string())
            .number(schema::LINE_BORROWED, &borrowed.to_string());
        self.shares.push((share, line));
        self
    }

    /// The same concurrency bucket, which names a share with so many slots; its row is another.
    pub(crate) fn slot_share(mut self, share: &'static str, slots: i64) -> Self {
        let line = Self { name: String::new(), numbers: BTreeMap::new(), kind: "", shares: Vec::new() };
        self.shares.push((share, line.number(schema::LINE_CAPACITY, &decimal(slots * 1_000_000))));
        self
    }

    pub(crate) fn number(mut self, name: &'static str, value: &str) -> Self {
        self.numbers.insert(name, value.to_owned());
        self
    }

    pub(crate) fn tokens(self, micros: i64) -> Self {
        self.number(schema::TOKENS, &decimal(micros))
    }

    pub(crate) fn anchor(self, micros: i64) -> Self {
        self.number(schema::LAST_REFILL_AT, &decimal(micros))
    }

    pub(crate) fn writes(self, count: i64) -> Self {
        self.number(schema::VERSION, &count.to_string())
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket::read(&dimension(&self.name), self).unwrap()
    }

    pub(crate) fn bucket_row(&self) -> BucketRow {
        BucketRow::read(self.name.clone(), self)
    }

    pub(crate) fn load_row(&self) -> LoadRow {
        LoadRow::read(dimension(&self.name), self)
    }
}

/// A lease of one slot.
pub(crate) fn lease(name: &str, id: &str, caller: &str, since_secs: u32, until_secs: u32) -> LeaseRow {
    let (since, until) = (Timestamp::from_secs(since_secs), Timestamp::from_secs(until_secs));
    let id = LeaseId::new(id.into()).unwrap();
    let lease = Lease::new(dimension(name), &id, Cost::ONE, since, until, caller);
    LeaseRow::of_row(lease.key().to_owned(), Ok(lease))
}

/// A lease of one slot that a caller of another share borrowed.
pub(crate) fn lease_that_borrowed(
    share: &str,
    name: &str,
    id: &str,
    since_secs: u32,
    until_secs: u32,
) -> LeaseRow {
    let (since, until) = (Timestamp::from_secs(since_secs), Timestamp::from_secs(until_secs));
    let borrowing = Borrowing { by: Some(ShareName::new(share).unwrap()), leaves: Amount::ZERO };
    let id = LeaseId::new(id.into()).unwrap();
    let lease = Lease::new(dimension(name), &id, Cost::ONE, since, until, "borrower").borrowed(&borrowing);
    LeaseRow::of_row(lease.key().to_owned(), Ok(lease))
}

/// The log of sweeps that ended these numbers of seconds after the epoch.
pub(crate) fn swept(ended_secs: &[u32]) -> SweepLog {
    struct Lines(String);

    impl schema::Row for Lines {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            (name == schema::SWEEPS).then_some(Field::Text(&self.0))
        }
    }

    let line =
        |secs: &u32| SweepRecord { at: Timestamp::from_secs(*secs), ..SweepRecord::default() }.to_string();
    SweepLog::read(&Lines(ended_secs.iter().map(line).collect::<Vec<_>>().join("\n")))
}

/// A survey of these rows, `at_secs` seconds after the epoch.
pub(crate) fn survey(at_secs: u32, buckets: &[Row], leases: Vec<LeaseRow>, loads: &[Row]) -> Survey {
    let mut survey = Survey::default();
    survey.at = Timestamp::from_secs(at_secs);
    survey.rows = buckets.len() + leases.len() + loads.len();
    survey.buckets = buckets.iter().map(Row::bucket_row).collect();
    survey.leases = leases;
    survey.loads = loads.iter().map(Row::load_row).collect();
    survey.pages = 1;
    survey.read_units = Some(0.5);
    survey.is_whole = true;
    survey
}
