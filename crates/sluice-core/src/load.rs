//! The load of a concurrency bucket, in one row that sweeps write: what is pending, and how fast it departs.
//! The load row of any bucket also has what each caller used (`load/callers.rs`).
//!
//! Pending is the cost of the live leases. Each sweep counts it from scratch, so that nothing can leak into
//! it. What departed between two sweeps follows by conservation:
//! `departures = max(0, admitted2 - admitted1 - (pending2 - pending1))`. No process has to report an end. The
//! drain rate is the average of `departures / time`; a sample weighs more the longer it took.
//!
//! A bucket that was idle for a part of that time drained slower than it could have: its departures say how
//! much arrived. So a sample with nothing pending at one end may raise the rate, and never lowers it. With
//! nothing pending at both ends, there is no sample. An idle bucket keeps its last rate.

use alloc::string::String;
use core::time::Duration;

use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::rate::Rate;
use crate::schema::{
    self, ADMITTED, DEPARTED_AT, DRAIN_RATE, LOAD_PREFIX, MEASURED_AT, OUTLIVED, OUTLIVED_SEEN, PENDING,
    PENDING_SINCE, REFUSED, REFUSED_SEEN, Row, RowError, SEQUENCE, STILL_SINCE, TAKEN, UNCOUNTED, optional,
};
use crate::timestamp::Timestamp;

mod average;
mod callers;
mod expired_holders;
mod measure;
mod note;

use callers::Callers;
pub use callers::{
    CallerUse, MOST_CALLERS, NOTE_USE_EVERY, OTHER_CALLERS, USE_PERIOD, Use, UseByCaller, note_use,
    note_use_again, period_of_use,
};
pub use expired_holders::{note_expired_holders, replace_expired_holders};
pub use measure::{Measured, PreviousLoad, Sample};
use note::Crowd;
pub use note::{MOST_NOTED, NOTE_EVERY, clear_refusals, note, note_again};

/// Slots that are taken for this long without a grant or a departure have leaked, or their holders hang.
pub const LEAKED_AFTER: Duration = Duration::from_secs(15 * 60);

/// A load row, parsed. A bucket that no sweep has measured has no load row, or one with callers' notes alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    dimension: Dimension,
    measured: Option<Measurement>,
    refused: i64,
    expired_holders: i64,
    crowd: Crowd,
    callers: Callers,
}

/// What a sweep measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measurement {
    pending: Amount,
    taken: Amount,
    admitted: Amount,
    uncounted: i64,
    expired_holders: i64,
    /// `None` in a measurement of an older version.
    refused: Option<i64>,
    drain_rate: Option<Rate>,
    at: Timestamp,
    sequence: i64,
    pending_since: Option<Timestamp>,
    departed_at: Option<Timestamp>,
    still_since: Option<Timestamp>,
}

impl Load {
    /// Reads the row. A count that callers write and that cannot be read counts as zero: no sweep replaces
    /// it, and no measurement depends on it.
    ///
    /// # Errors
    /// [`RowError`] for an attribute of a measurement that is present and cannot be read. Sweeps replace it.
    pub fn read(dimension: &Dimension, row: &impl Row) -> Result<Self, RowError> {
        let time = |name| {
            let at = optional(row, name, || schema::timestamp(row, name).map(|at| at.get()))?;
            Ok(at.filter(|at| *at > Timestamp::default()))
        };
        let number = |name| optional(row, name, || schema::amount(row, name).map(|amount| amount.get()));
        let count = |name| optional(row, name, || schema::count(row, name)).map(Option::unwrap_or_default);
        let rate = optional(row, DRAIN_RATE, || schema::rate(row, DRAIN_RATE).map(|rate| rate.get()))?;
        let measured = match time(MEASURED_AT)? {
            None => None,
            Some(at) => Some(Measurement {
                pending: schema::amount(row, PENDING)?.get(),
                taken: number(TAKEN)?.unwrap_or_default(),
                admitted: number(ADMITTED)?.unwrap_or_default(),
                drain_rate: rate.filter(|rate| !rate.is_zero()),
                at,
                uncounted: count(UNCOUNTED)?,
                expired_holders: count(OUTLIVED_SEEN)?,
                refused: optional(row, REFUSED_SEEN, || schema::count(row, REFUSED_SEEN))?,
                sequence: schema::count(row, SEQUENCE)?,
                pending_since: time(PENDING_SINCE)?,
                departed_at: time(DEPARTED_AT)?,
                still_since: time(STILL_SINCE)?,
            }),
        };
        Ok(Self {
            dimension: dimension.clone(),
            measured,
            refused: count(REFUSED).unwrap_or_default(),
            expired_holders: count(OUTLIVED).unwrap_or_default(),
            crowd: Crowd::read(row),
            callers: Callers::read(row),
        })
    }

    /// The load of a bucket about which nothing is known.
    #[must_use]
    pub fn none(dimension: &Dimension) -> Self {
        Self {
            dimension: dimension.clone(),
            measured: None,
            refused: 0,
            expired_holders: 0,
            crowd: Crowd::default(),
            callers: Callers::default(),
        }
    }

    /// The key of a bucket's load row.
    #[must_use]
    pub fn key(dimension: &Dimension) -> String {
        alloc::format!("{LOAD_PREFIX}{dimension}")
    }

    /// The bucket.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// Cost of the leases that were live at the last measurement; zero if there was none.
    #[must_use]
    pub fn pending(&self) -> Amount {
        self.measured.map_or(Amount::ZERO, |measured| measured.pending)
    }

    /// What departs a second while work is pending; `None` until two sweeps have seen departures.
    #[must_use]
    pub fn drain_rate(&self) -> Option<Rate> {
        self.measured.and_then(|measured| measured.drain_rate)
    }

    /// The rate at which `live` slots drain. More holders than were measured drain faster in proportion
    /// (Little's law: rate = holders / time of each). Fewer are not slower: a bucket empties at its end.
    #[must_use]
    pub fn drain_rate_of(&self, live: Amount) -> Option<Rate> {
        let measured = self.measured?;
        let rate = measured.drain_rate?;
        let more = live > measured.pending && measured.pending > Amount::ZERO;
        Some(if more { rate.scaled(live, measured.pending) } else { rate })
    }

    /// When the load was last measured.
    #[must_use]
    pub fn measured_at(&self) -> Option<Timestamp> {
        self.measured.map(|measured| measured.at)
    }

    /// Number of measurements.
    #[must_use]
    pub fn sequence(&self) -> i64 {
        self.measured.map_or(0, |measured| measured.sequence)
    }

    /// The bucket's count of slots granted, at the last measurement.
    #[must_use]
    pub fn admitted(&self) -> Option<Amount> {
        self.measured.map(|measured| measured.admitted)
    }

    /// The bucket's writes by clients that do not count, at the last measurement.
    #[must_use]
    pub fn uncounted(&self) -> Option<i64> {
        self.measured.map(|measured| measured.uncounted)
    }

    /// Slots that were not free at the last measurement.
    #[must_use]
    pub fn taken(&self) -> Amount {
        self.measured.map_or(Amount::ZERO, |measured| measured.taken)
    }

    /// Since when work has been pending, as far as sweeps have seen.
    #[must_use]
    pub fn pending_since(&self) -> Option<Timestamp> {
        self.measured.and_then(|measured| measured.pending_since)
    }

    /// The last measurement that found departures.
    #[must_use]
    pub fn departed_at(&self) -> Option<Timestamp> {
        self.measured.and_then(|measured| measured.departed_at)
    }

    /// Since when slots have been taken without any grant or departure.
    #[must_use]
    pub fn still_since(&self) -> Option<Timestamp> {
        self.measured.and_then(|measured| measured.still_since)
    }

    /// Slots that have been taken without any grant or departure for [`LEAKED_AFTER`]; zero if there was one.
    #[must_use]
    pub fn leaked(&self) -> Amount {
        let Some(measured) = self.measured else { return Amount::ZERO };
        match measured.still_since {
            Some(since) if measured.at.since(since) >= LEAKED_AFTER => measured.taken,
            _ => Amount::ZERO,
        }
    }

    /// Number of refusals that callers have reported so far.
    #[must_use]
    pub const fn refused(&self) -> i64 {
        self.refused
    }

    /// Number of expired holders so far: holders that were found alive after their lease had ended.
    #[must_use]
    pub const fn expired_holders(&self) -> i64 {
        self.expired_holders
    }

    /// What each caller used of the bucket in this period of [`USE_PERIOD`] and the last. The bucket may be
    /// of any type.
    #[must_use]
    pub fn use_by_caller(&self, now: Timestamp) -> UseByCaller {
        self.callers.shown(now)
    }

    /// Number of processes that noted themselves as wanting slots, in this period of [`NOTE_EVERY`] or the
    /// last; zero if none did. One that has left counts for that long. At most [`MOST_NOTED`].
    #[must_use]
    pub fn crowd(&self, now: Timestamp) -> u32 {
        u32::try_from(self.crowd.size(now)).unwrap_or(MOST_NOTED).min(MOST_NOTED)
    }

    /// Number of processes that noted a use of the bucket in this period of [`USE_PERIOD`] or the last, the
    /// larger of both; zero if none did. One that has left counts for that long.
    #[must_use]
    pub fn processes(&self, now: Timestamp) -> u32 {
        self.callers.processes(now)
    }
}
