//! The last sweeps, in one row, for operators: one line a sweep, the last written first.
//!
//! A line has the time of the process that swept. A clock that is far off must not hide that no sweeps run (a
//! line dated tomorrow would be the latest all day), nor remove others' lines (to a clock that is behind,
//! they are dated tomorrow). So lines stand in the order in which they were written, and are dropped in that
//! order; readers skip lines that are far ahead.

use alloc::borrow::Cow;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::Amount;
use crate::schema::{self, Row, SWEEPS, SWEEPS_KEY};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// Number of sweeps that are kept: more than an hour of the five-minute rule, in about 2 KB.
const KEPT: usize = 20;

/// What a sweep reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepRecord {
    /// When the sweep ended.
    pub at: Timestamp,
    /// How long the sweep took.
    pub duration: Duration,
    /// Number of rows that it read.
    pub rows: u64,
    /// Number of leases that it gave back.
    pub restored: u64,
    /// Number of those leases that held slots.
    pub slots: u64,
    /// Slots found lost or minted, in all buckets.
    pub drift: Amount,
    /// Slots corrected.
    pub corrected: Amount,
    /// Number of requests that it sent.
    pub requests: u64,
}

/// The row of the last sweeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepLog {
    records: Vec<SweepRecord>,
    as_read: String,
}

/// Interleaving that the condition stops: another sweep added its line meanwhile, and this write would remove
/// that line. A text that cannot be read is replaced.
static WRITE: Statement = Statement::fixed(
    "SET #sweeps = :sweeps",
    "attribute_not_exists(#sweeps) OR NOT attribute_type(#sweeps, :string) OR #sweeps = :read_sweeps",
    &[SWEEPS],
);

impl SweepLog {
    /// Reads the row. A line that cannot be read is left out.
    #[must_use]
    pub fn read(row: &impl Row) -> Self {
        let Ok(text) = schema::text(row, SWEEPS) else { return Self::default() };
        Self {
            records: text.lines().filter_map(|line| line.parse().ok()).collect(),
            as_read: text.to_string(),
        }
    }

    /// All sweeps, the last written first.
    pub fn records(&self) -> impl Iterator<Item = &SweepRecord> {
        self.records.iter()
    }

    /// The sweeps until `now`, the latest first, without lines further ahead than two clocks can be apart.
    pub fn until(&self, now: Timestamp) -> impl Iterator<Item = &SweepRecord> {
        let ahead = now.after(CLOCK_ERROR * 2);
        let mut records: Vec<&SweepRecord> =
            self.records.iter().filter(|record| record.at <= ahead).collect();
        records.sort_by_key(|record| Reverse(record.at));
        records.into_iter()
    }

    /// The write that adds a sweep, and drops the line that was written first.
    #[must_use]
    pub fn add(&self, record: SweepRecord) -> Update {
        let records = core::iter::once(&record).chain(&self.records);
        let lines: Vec<String> = records.take(KEPT).map(SweepRecord::to_string).collect();
        Update {
            key: SWEEPS_KEY.to_string(),
            statement: Cow::Borrowed(&WRITE),
            values: alloc::vec![
                (":sweeps", Operand::text(lines.join("\n"))),
                (":read_sweeps", Operand::text(&self.as_read)),
                (":string", Operand::text("S")),
            ],
        }
    }
}

/// The line: `name=value` pairs, separated by spaces.
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

/// The error for a text that is not a line of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of a sweep")]
pub struct SweepRecordError;

impl FromStr for SweepRecord {
    type Err = SweepRecordError;

    /// A value that is missing is zero, an unknown name is ignored. A line without a time is an error.
    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let value = |name: &str| {
            line.split(' ')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .ok_or(SweepRecordError)
        };
        let number =
            |name: &str| value(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let slots =
            |name: &str| value(name).ok().and_then(|text| text.parse::<Amount>().ok()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;

    struct Written(String);

    impl Row for Written {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            (name == SWEEPS).then_some(Field::Text(&self.0))
        }
    }

    /// The log after sweeps that ended at these times, each by the clock of its process.
    fn log(ended: impl IntoIterator<Item = u32>) -> SweepLog {
        let mut log = SweepLog::default();
        for secs in ended {
            let record = SweepRecord { at: Timestamp::from_secs(secs), ..SweepRecord::default() };
            let update = log.add(record);
            let [(":sweeps", Operand::Text(text)), ..] = &update.values[..] else { panic!("{update:?}") };
            log = SweepLog::read(&Written(text.clone()));
        }
        log
    }

    fn until(log: &SweepLog, now: u32) -> Vec<i64> {
        log.until(Timestamp::from_secs(now)).map(|record| record.at.micros() / 1_000_000).collect()
    }

    const DAY: u32 = 86_400;

    #[test]
    fn a_sweep_by_a_clock_that_is_far_ahead_does_not_hide_that_none_comes() {
        let log = log([1_000, 1_300 + DAY, 1_600]);
        assert_eq!(until(&log, 1_700), [1_600, 1_000]);
        assert_eq!(until(&log, 3_000), [1_600, 1_000], "the last was long ago");
        assert_eq!(until(&log, 1_596), [1_600, 1_000], "clocks may be so far apart");
        assert_eq!(until(&log, 1_595), [1_000]);
    }

    #[test]
    fn a_sweep_by_a_clock_that_is_far_behind_takes_no_line_away() {
        assert_eq!(
            until(&log([DAY, DAY + 300, 400, DAY + 600]), DAY + 700),
            [DAY + 600, DAY + 300, DAY, 400].map(i64::from)
        );
    }

    /// A line is dropped when twenty others have been written after it, not when its time has passed.
    #[test]
    fn lines_leave_in_the_order_in_which_they_came() {
        let sweeps = (1..20).map(|n| n * 300);
        let mut ended: Vec<u32> = [DAY].into_iter().chain(sweeps).collect();
        assert_eq!((log(ended.clone()).records().count(), until(&log(ended.clone()), DAY).len()), (20, 20));
        ended.push(6_000);
        assert_eq!(until(&log(ended), DAY)[0], 6_000);
    }
}
