//! The write of a sweep that has counted the leases of a bucket.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::String;

use super::average::average;
use super::{Load, Measurement};
use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::rate::Rate;
use crate::schema::{
    self, ADMITTED, DEPARTED_AT, DRAIN_RATE, MEASURED_AT, PENDING, PENDING_SINCE, Row, SEQUENCE, STILL_SINCE, TAKEN,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// What a sweep found of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Cost of the leases that live, those with rows of their own and inline ones together.
    pub pending: Amount,
    /// Slots that are not free.
    pub taken: Amount,
    /// The bucket's count of slots granted; `None` where not every client counts.
    pub admitted: Option<Amount>,
    /// When it was found.
    pub at: Timestamp,
    /// The drain rate is never below this: a bucket in which nothing departs would else shed for ever.
    pub floor: Rate,
}

/// A load row before it is measured anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    dimension: Dimension,
    load: Option<Load>,
    /// As read, where it is a number.
    sequence: Option<String>,
}

/// A measurement that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The row as the write leaves it.
    pub load: Load,
    /// The write.
    pub update: Update,
}

const CHANGE: &str = "SET #p = :p, #k = :k, #a = :a, #r = :r, #m = :m, #q = :q, #s = :s, #d = :d, #i = :i";
const NAMES: &[(&str, &str)] = &[
    ("#p", PENDING),
    ("#k", TAKEN),
    ("#a", ADMITTED),
    ("#r", DRAIN_RATE),
    ("#m", MEASURED_AT),
    ("#q", SEQUENCE),
    ("#s", PENDING_SINCE),
    ("#d", DEPARTED_AT),
    ("#i", STILL_SINCE),
];

/// Interleaving that the condition stops: two sweeps measure for the first time, and the later write is not the first (q). A
/// sequence that cannot be read is replaced.
static FIRST: Statement = Statement::fixed(CHANGE, "attribute_not_exists(#q) OR NOT attribute_type(#q, :t)", NAMES);

/// Interleaving that the condition stops: two sweeps measure against the same row, and the later write takes the time of the
/// earlier's sample into its own once more (q).
static NEXT: Statement = Statement::fixed(CHANGE, "#q = :seen", NAMES);

impl Before {
    /// The row of `dimension` as it was read, if there is one. What cannot be read counts as not measured.
    #[must_use]
    pub fn read(dimension: &Dimension, row: Option<&impl Row>) -> Self {
        let load = row.and_then(|row| Load::read(dimension, row).ok());
        let sequence = row.and_then(|row| schema::number(row, SEQUENCE).ok()).map(str::to_owned);
        Self { dimension: dimension.clone(), load, sequence }
    }

    /// The row as it was, where it could be read.
    #[must_use]
    pub const fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// The measurement that follows from `sample`; `None` less than a second after the last, which another sweep took meanwhile.
    #[must_use]
    pub fn measure(&self, sample: &Sample) -> Option<Measured> {
        let last = self.load.as_ref().and_then(|load| load.measured);
        if last.is_some_and(|last| sample.at.micros_since(last.at) < SHORTEST_SAMPLE) {
            return None;
        }
        let measured = match last {
            Some(last) => next(&last, sample),
            None => first(sample),
        };
        let load = Load {
            dimension: self.dimension.clone(),
            measured: Some(measured),
            healed_at: self.load.as_ref().and_then(Load::healed_at),
            refused: self.load.as_ref().map_or(0, Load::refused),
            outlived: self.load.as_ref().map_or(0, Load::outlived),
        };
        Some(Measured { update: self.write(&measured), load })
    }

    fn write(&self, measured: &Measurement) -> Update {
        let time = |at: Option<Timestamp>| Operand::number(at.unwrap_or_default());
        let mut values = alloc::vec![
            (":p", Operand::number(measured.pending)),
            (":k", Operand::number(measured.taken)),
            (":a", Operand::number(measured.admitted.unwrap_or(UNCOUNTED))),
            (":r", Operand::number(measured.drain_rate.unwrap_or_default())),
            (":m", Operand::number(measured.at)),
            (":q", Operand::number(measured.sequence)),
            (":s", time(measured.pending_since)),
            (":d", time(measured.departed_at)),
            (":i", time(measured.still_since)),
        ];
        let statement = match &self.sequence {
            Some(seen) => {
                values.push((":seen", Operand::Number(seen.clone())));
                &NEXT
            }
            None => {
                values.push((":t", Operand::text("N")));
                &FIRST
            }
        };
        Update { key: Load::key(&self.dimension), statement: Cow::Borrowed(statement), values }
    }
}

/// A shorter time says little of a rate, and the average takes whole seconds.
const SHORTEST_SAMPLE: i64 = 1_000_000;

/// Stands for a count that nobody keeps.
const UNCOUNTED: Amount = Amount::from_tokens(-1);

fn first(sample: &Sample) -> Measurement {
    Measurement {
        pending: sample.pending,
        taken: sample.taken,
        admitted: sample.admitted,
        drain_rate: None,
        at: sample.at,
        sequence: 1,
        pending_since: (sample.pending > Amount::ZERO).then_some(sample.at),
        departed_at: None,
        still_since: None,
    }
}

fn next(last: &Measurement, sample: &Sample) -> Measurement {
    let has_work = sample.pending > Amount::ZERO;
    let departed = departures(last, sample);
    let is_still = departed == Some(Amount::ZERO)
        && sample.admitted == last.admitted
        && sample.taken > Amount::ZERO
        && sample.taken == last.taken;
    Measurement {
        pending: sample.pending,
        taken: sample.taken,
        admitted: sample.admitted,
        drain_rate: drain_rate(last, sample, departed),
        at: sample.at,
        sequence: last.sequence.saturating_add(1),
        pending_since: has_work.then(|| last.pending_since.unwrap_or(sample.at)),
        departed_at: if departed > Some(Amount::ZERO) { Some(sample.at) } else { last.departed_at },
        still_since: is_still.then(|| last.still_since.unwrap_or(last.at)),
    }
}

/// What departed between two measurements; `None` where not every client counts what it takes, or the bucket was made anew.
fn departures(last: &Measurement, sample: &Sample) -> Option<Amount> {
    let admitted = sample.admitted?.minus(last.admitted?);
    (admitted >= Amount::ZERO).then(|| admitted.minus(sample.pending.minus(last.pending)).max(Amount::ZERO))
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
