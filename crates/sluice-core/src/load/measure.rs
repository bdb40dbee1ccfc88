//! The write of a sweep that has counted the leases of a bucket.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::String;

use super::average::average;
use super::{Load, Measurement};
use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::rate::Rate;
use crate::schema::{
    self, ADMITTED, DEPARTED_AT, DRAIN_RATE, MEASURED_AT, OUTLIVED_SEEN, PENDING, PENDING_SINCE,
    REFUSED_SEEN, Row, SEQUENCE, STILL_SINCE, TAKEN, UNCOUNTED,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// What a sweep found in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Cost of the live leases, lease rows and inline leases together.
    pub pending: Amount,
    /// Slots that are not free.
    pub taken: Amount,
    /// The bucket's count of slots granted.
    pub admitted: Amount,
    /// The number of the bucket's writes by clients that do not count.
    pub uncounted: i64,
    /// When the sweep found it.
    pub at: Timestamp,
    /// The lower bound of the drain rate: without it, a bucket in which nothing departs would shed for ever.
    pub floor: Rate,
}

/// A load row before the next measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousLoad {
    dimension: Dimension,
    load: Option<Load>,
    /// The sequence as read, if it is a number.
    sequence: Option<String>,
}

/// A measurement that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The row as the write leaves it.
    pub load: Load,
    /// Expired holders that were found since the last measurement.
    pub expired_holders: i64,
    /// Refusals that callers reported since the last measurement.
    pub refused: i64,
    /// The write.
    pub update: Update,
}

const CHANGE: &str = "SET #pending = :pending, #taken = :taken, #admitted = :admitted, #uncounted = :uncounted, \
     #outlived_seen = :outlived_seen, #refused_seen = :refused_seen, #drain_rate = :drain_rate, #measured_at = :measured_at, #sequence = :sequence, \
     #pending_since = :pending_since, #departed_at = :departed_at, #still_since = :still_since";
const NAMES: &[&str] = &[
    PENDING,
    TAKEN,
    ADMITTED,
    UNCOUNTED,
    OUTLIVED_SEEN,
    REFUSED_SEEN,
    DRAIN_RATE,
    MEASURED_AT,
    SEQUENCE,
    PENDING_SINCE,
    DEPARTED_AT,
    STILL_SINCE,
];

/// Interleaving that the condition stops: two sweeps measure for the first time, and the later write is not
/// the first. A sequence that cannot be read is replaced.
static FIRST: Statement = Statement::fixed(
    CHANGE,
    "attribute_not_exists(#sequence) OR NOT attribute_type(#sequence, :number)",
    NAMES,
);

/// Interleaving that the condition stops: two sweeps measure against the same row, and the later write counts
/// the time of the earlier sample again in its own.
static NEXT: Statement = Statement::fixed(CHANGE, "#sequence = :read_sequence", NAMES);

impl PreviousLoad {
    /// Reads the row of `dimension`, if there is one. A row that cannot be read counts as not measured.
    #[must_use]
    pub fn read(dimension: &Dimension, row: Option<&impl Row>) -> Self {
        let load = row.and_then(|row| Load::read(dimension, row).ok());
        let sequence = row.and_then(|row| schema::number(row, SEQUENCE).ok()).map(str::to_owned);
        Self { dimension: dimension.clone(), load, sequence }
    }

    /// The row before, if it could be read.
    #[must_use]
    pub const fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// The measurement that follows from `sample`. `None` less than a second after the last measurement,
    /// which another sweep took meanwhile, and if an idle bucket has not changed.
    #[must_use]
    pub fn measure(&self, sample: &Sample) -> Option<Measured> {
        let expired_holders = self.load.as_ref().map_or(0, Load::expired_holders);
        let refused = self.load.as_ref().map_or(0, Load::refused);
        let last = self.load.as_ref().and_then(|load| load.measured);
        let measured = match last {
            None => Measurement::first(sample),
            Some(last) if last.is_ahead_of(sample) => last.begin_anew(sample),
            Some(last)
                if sample.at.micros_since(last.at) < SHORTEST_SAMPLE
                    || (last.is_unchanged_by(sample, expired_holders) && last.refused == Some(refused)) =>
            {
                return None;
            }
            Some(last) => last.next(sample, expired_holders),
        };
        let measured = Measurement { refused: Some(refused), ..measured };
        let load = Load {
            dimension: self.dimension.clone(),
            measured: Some(measured),
            refused,
            expired_holders,
            crowd: self.load.as_ref().map(|load| load.crowd).unwrap_or_default(),
            callers: self.load.as_ref().map(|load| load.callers.clone()).unwrap_or_default(),
        };
        let expired_holders =
            last.map_or(0, |last| measured.expired_holders.saturating_sub(last.expired_holders)).max(0);
        let seen = last.and_then(|last| last.refused);
        let refused = seen.map_or(0, |seen| refused.saturating_sub(seen)).max(0);
        Some(Measured { update: self.write(&measured), load, expired_holders, refused })
    }

    fn write(&self, measured: &Measurement) -> Update {
        let time = |at: Option<Timestamp>| Operand::number(at.unwrap_or_default());
        let mut values = alloc::vec![
            (":pending", Operand::number(measured.pending)),
            (":taken", Operand::number(measured.taken)),
            (":admitted", Operand::number(measured.admitted)),
            (":uncounted", Operand::number(measured.uncounted)),
            (":outlived_seen", Operand::number(measured.expired_holders)),
            (":refused_seen", Operand::number(measured.refused.unwrap_or_default())),
            (":drain_rate", Operand::number(measured.drain_rate.unwrap_or_default())),
            (":measured_at", Operand::number(measured.at)),
            (":sequence", Operand::number(measured.sequence)),
            (":pending_since", time(measured.pending_since)),
            (":departed_at", time(measured.departed_at)),
            (":still_since", time(measured.still_since)),
        ];
        let statement = match &self.sequence {
            Some(seen) => {
                values.push((":read_sequence", Operand::Number(seen.clone())));
                &NEXT
            }
            None => {
                values.push((":number", Operand::text("N")));
                &FIRST
            }
        };
        Update { key: Load::key(&self.dimension), statement: Cow::Borrowed(statement), values }
    }
}

/// A shorter time says little about a rate, and the average takes whole seconds.
const SHORTEST_SAMPLE: i64 = 1_000_000;

impl Measurement {
    const fn first(sample: &Sample) -> Self {
        let Sample { pending, taken, admitted, uncounted, at, floor: _ } = *sample;
        Self {
            pending,
            taken,
            admitted,
            uncounted,
            expired_holders: 0,
            refused: None,
            drain_rate: None,
            at,
            sequence: 1,
            pending_since: if pending.micros() > 0 { Some(at) } else { None },
            departed_at: None,
            still_since: None,
        }
    }

    /// Whether a clock that was far ahead made this measurement: nothing follows from the time since then.
    fn is_ahead_of(&self, sample: &Sample) -> bool {
        self.at > sample.at.after(CLOCK_ERROR * 2)
    }

    /// A measurement that does not depend on an earlier one; the rate stays.
    fn begin_anew(&self, sample: &Sample) -> Self {
        let sequence = self.sequence.saturating_add(1);
        Self {
            drain_rate: self.drain_rate,
            expired_holders: self.expired_holders,
            sequence,
            ..Self::first(sample)
        }
    }

    fn next(&self, sample: &Sample, expired_holders: i64) -> Self {
        let Sample { pending, taken, admitted, uncounted, at, floor: _ } = *sample;
        let departed = departures(self, sample);
        let is_still = departed == Some(Amount::ZERO)
            && admitted == self.admitted
            && taken > Amount::ZERO
            && taken == self.taken;
        Self {
            pending,
            taken,
            admitted,
            uncounted,
            expired_holders,
            refused: self.refused,
            drain_rate: drain_rate(self, sample, departed),
            at,
            sequence: self.sequence.saturating_add(1),
            pending_since: (pending > Amount::ZERO).then(|| self.pending_since.unwrap_or(at)),
            departed_at: if departed > Some(Amount::ZERO) { Some(at) } else { self.departed_at },
            still_since: is_still.then(|| self.still_since.unwrap_or(self.at)),
        }
    }

    /// Whether the bucket is idle and this measurement already says everything that `sample` says.
    fn is_unchanged_by(&self, sample: &Sample, expired_holders: i64) -> bool {
        let is_idle = |pending: Amount, taken: Amount| pending == Amount::ZERO && taken == Amount::ZERO;
        let is_as_it_was = self.admitted == sample.admitted && self.uncounted == sample.uncounted;
        let idle = is_idle(self.pending, self.taken) && is_idle(sample.pending, sample.taken);
        idle && is_as_it_was && self.expired_holders == expired_holders
    }
}

/// What departed between two measurements. `None` if a client does not count, or the bucket was recreated.
fn departures(last: &Measurement, sample: &Sample) -> Option<Amount> {
    let admitted = sample.admitted.minus(last.admitted);
    (admitted >= Amount::ZERO && sample.uncounted == last.uncounted)
        .then(|| admitted.minus(sample.pending.minus(last.pending)).max(Amount::ZERO))
}

fn drain_rate(last: &Measurement, sample: &Sample, departed: Option<Amount>) -> Option<Rate> {
    let span = sample.at.since(last.at);
    let (before, now) = (last.pending > Amount::ZERO, sample.pending > Amount::ZERO);
    let found = departed.filter(|_| before || now).and_then(|departed| Rate::per(departed, span));
    let rate = match (last.drain_rate, found) {
        (None, Some(found)) if before && now => Some(found),
        (Some(rate), Some(found)) if found > rate || (before && now) => Some(average(rate, found, span)),
        (rate, _) => rate,
    };
    rate.map(|rate| rate.max(sample.floor))
}
