//! The last sweeps, in one row, for those who look: one line a sweep, the latest first.

use alloc::borrow::Cow;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::Amount;
use crate::schema::{self, Row, SWEEPS, SWEEPS_KEY};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Sweeps that are kept: an hour and more of the five-minute rule, in some 2 KB.
const KEPT: usize = 20;

/// What a sweep tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepRecord {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// Rows that it read.
    pub rows: u64,
    /// Leases that it gave back.
    pub restored: u64,
    /// Of those, slots.
    pub slots: u64,
    /// Slots found lost or minted, in all buckets.
    pub drift: Amount,
    /// Slots put right.
    pub corrected: Amount,
    /// Requests that it sent.
    pub requests: u64,
}

/// The row of the last sweeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepLog {
    records: Vec<SweepRecord>,
    as_read: String,
}

/// Interleaving that the condition stops: another sweep added its line meanwhile, and this write would take it away (s). A text
/// that cannot be read is replaced.
static WRITE: Statement = Statement::fixed(
    "SET #s = :s",
    "attribute_not_exists(#s) OR NOT attribute_type(#s, :t) OR #s = :seen",
    &[("#s", SWEEPS)],
);

impl SweepLog {
    /// Reads the row. A line that cannot be read is left out.
    #[must_use]
    pub fn read(row: &impl Row) -> Self {
        let Ok(text) = schema::text(row, SWEEPS) else { return Self::default() };
        Self { records: text.lines().filter_map(|line| line.parse().ok()).collect(), as_read: text.to_string() }
    }

    /// The sweeps, the latest first.
    pub fn records(&self) -> impl Iterator<Item = &SweepRecord> {
        self.records.iter()
    }

    /// The write that adds a sweep, and drops the oldest.
    #[must_use]
    pub fn add(&self, record: SweepRecord) -> Update {
        let mut records = self.records.clone();
        let at = records.iter().position(|other| other.at <= record.at).unwrap_or(records.len());
        records.insert(at, record);
        let lines: Vec<String> = records.iter().take(KEPT).map(|record| record.to_string()).collect();
        Update {
            key: SWEEPS_KEY.to_string(),
            statement: Cow::Borrowed(&WRITE),
            values: alloc::vec![
                (":s", Operand::text(lines.join("\n"))),
                (":seen", Operand::text(&self.as_read)),
                (":t", Operand::text("S")),
            ],
        }
    }
}

/// The line: `name=value`, with spaces between.
impl fmt::Display for SweepRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, duration, rows, restored, slots, drift, corrected, requests } = self;
        let ms = duration.as_millis();
        write!(
            f,
            "at={at} ms={ms} rows={rows} restored={restored} slots={slots} drift={drift} corrected={corrected} requests={requests}"
        )
    }
}

/// A line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no line of a sweep")]
pub struct SweepRecordError;

impl FromStr for SweepRecord {
    type Err = SweepRecordError;

    /// What the line does not name is zero; what it names that is not known is passed over. Without a time it is no line.
    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let value = |name: &str| {
            line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).ok_or(SweepRecordError)
        };
        let number = |name: &str| value(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let slots = |name: &str| value(name).ok().and_then(|text| text.parse::<Amount>().ok()).unwrap_or_default();
        Ok(Self {
            at: value("at")?.parse().map_err(|_| SweepRecordError)?,
            duration: Duration::from_millis(number("ms")),
            rows: number("rows"),
            restored: number("restored"),
            slots: number("slots"),
            drift: slots("drift"),
            corrected: slots("corrected"),
            requests: number("requests"),
        })
    }
}
