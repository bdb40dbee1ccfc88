//! What a ticket holds of one bucket: the line as the booking left it.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::line::Line;
use crate::plan::receipt::RateReceipt;
use crate::rate::Rate;
use crate::schema::{
    self, BOOKED, CAPACITY, COST, Exact, LAST_REFILL_AT, LOTS, REFILL_RATE, RETURNED, Row, RowError, SHARE,
    TOKENS,
};
use crate::share::ShareName;
use crate::statement::Operand;
use crate::timestamp::Timestamp;

/// What a ticket holds of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    dimension: Dimension,
    share: Option<ShareName>,
    cost: Cost,
    /// The line, as the booking left it for those behind it.
    tokens: Amount,
    anchor: Exact<Timestamp>,
    returned: Amount,
    lots: i64,
    capacity: Amount,
    rate: Rate,
}

impl Booked {
    /// The bucket whose tokens this part holds.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// What this part holds.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    pub(super) fn of(receipt: &RateReceipt) -> Self {
        let (bucket, limit) = (receipt.after(), receipt.after().limit());
        Self {
            dimension: bucket.dimension().clone(),
            share: bucket.share().cloned(),
            cost: receipt.cost(),
            tokens: receipt.left(),
            anchor: bucket.anchor_as_read().clone(),
            returned: bucket.returned(),
            lots: bucket.lots(),
            capacity: limit.capacity(),
            rate: limit.refill_rate(),
        }
    }

    /// When the line is at zero, rounded up: the booked start, or an instant before the take if the tokens
    /// were there.
    pub(super) fn start(&self) -> Timestamp {
        self.reaches(Amount::ZERO)
    }

    pub(super) fn use_by(&self) -> Timestamp {
        self.reaches(self.capacity.minus(self.cost.amount()))
    }

    fn reaches(&self, amount: Amount) -> Timestamp {
        self.line().reaches(amount).unwrap_or(Timestamp::from_micros(i64::MAX))
    }

    const fn line(&self) -> Line {
        Line::new(self.tokens, self.anchor.get(), self.rate)
    }

    /// The receipt of the booking, if it may be used at `now`. It allows the same returns.
    pub(super) fn receipt(&self, bucket: &Bucket, now: Timestamp) -> Option<RateReceipt> {
        let bucket = &bucket.clone().seen_from(self.share.as_ref());
        let limit = bucket.limit();
        let is_as_booked = *bucket.dimension() == self.dimension
            && bucket.share() == self.share.as_ref()
            && !limit.is_concurrent()
            && limit.capacity() == self.capacity
            && limit.refill_rate() == self.rate
            && bucket.returned() >= self.returned;
        let since = bucket.returned().minus(self.returned);
        // The lines are compared where both rise. The bucket may have an anchor since that is ahead of this
        // clock, and its line stands still before that anchor. Up to an anchor that is far ahead, because a
        // clock was wrong, the ticket's line would have risen above all that the bucket can hold.
        let at = bucket.line().both_rise(now);
        if !is_as_booked || bucket.line().at(at) > self.line().at_most(at).plus(since) {
            return None;
        }
        let left = bucket.as_left(self.tokens, self.anchor.clone(), self.returned, self.lots);
        // Foreseen: callers behind this start may have called before it, so a vendor's reply does not show
        // whose calls it counts.
        let receipt = RateReceipt::foreseen(Arc::new(left), Amount::ZERO, self.cost);
        (receipt.room(now).minus(since) >= self.cost.amount()).then_some(receipt)
    }

    pub(super) fn operand(&self) -> Operand {
        let values = [
            (COST, Operand::number(self.cost)),
            (TOKENS, Operand::number(self.tokens)),
            (LAST_REFILL_AT, Operand::number(&self.anchor)),
            (RETURNED, Operand::number(self.returned)),
            (LOTS, Operand::number(self.lots)),
            (CAPACITY, Operand::number(self.capacity)),
            (REFILL_RATE, Operand::number(self.rate)),
        ];
        let share = self.share.iter().map(|share| (SHARE, Operand::text(share)));
        Operand::Map(
            values.into_iter().chain(share).map(|(name, value)| (Cow::Borrowed(name), value)).collect(),
        )
    }
}

/// The share that an entry or a row names, if any.
pub(super) fn read_share(row: &(impl Row + ?Sized)) -> Result<Option<ShareName>, RowError> {
    let Some(_) = row.field(SHARE) else { return Ok(None) };
    let name = schema::text(row, SHARE)?;
    ShareName::new(name).map(Some).map_err(|error| RowError::bad(SHARE, name, error))
}

pub(super) fn read_part(name: &str, entry: Option<&dyn Row>) -> Result<Booked, RowError> {
    let bad = |reason: String| RowError::bad(BOOKED, name, reason);
    let dimension = Dimension::new(name).map_err(|error| bad(error.reason.to_owned()))?;
    let entry = entry.ok_or_else(|| bad("it is not a map".to_owned()))?;
    let read = || {
        let cost = schema::amount(entry, COST)?.get();
        Ok(Booked {
            dimension,
            share: read_share(entry)?,
            cost: Cost::new(cost).map_err(|error| RowError::bad(COST, &cost.to_string(), error))?,
            tokens: schema::amount(entry, TOKENS)?.get(),
            anchor: schema::timestamp(entry, LAST_REFILL_AT)?,
            returned: schema::amount(entry, RETURNED)?.get(),
            lots: schema::count(entry, LOTS)?,
            capacity: schema::amount(entry, CAPACITY)?.get(),
            rate: schema::rate(entry, REFILL_RATE)?.get(),
        })
    };
    read().map_err(|error: RowError| bad(error.to_string()))
}
