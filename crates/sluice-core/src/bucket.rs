//! A bucket row, parsed: the line that its level follows.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::dimension::Dimension;
use crate::limit::{Limit, LimitType};
use crate::rate::Rate;
use crate::recount::Note;
use crate::schema::{
    self, ADMITTED, BLOCKED_UNTIL, CAPACITY, CAPPED, COST_PER_CALL, COUNTED, Exact, KEY, LAST_REFILL_AT, LIMIT_TYPE,
    REFILL_RATE, Row, RowError, TOKENS, VERSION,
};
use crate::statement::{Operand, Put, Statement};
use crate::timestamp::Timestamp;

/// A bucket as one reply of DynamoDB showed it.
///
/// With A the anchor, T the tokens at A, R the refill rate and C the capacity, its level at t is `min(C, T + (t - A) * R)`:
/// a straight line, capped. The line is not clamped for t < A, so that a caller whose clock lags reads a lower level, and
/// errors of clocks cannot add up. R is 0 for concurrency, where the level is the number of free slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    dimension: Dimension,
    limit: Limit,
    capacity: Exact<Amount>,
    rate: Exact<Rate>,
    tokens: Amount,
    anchor: Exact<Timestamp>,
    version: i64,
    blocked_until: Option<Timestamp>,
    admitted: Option<Amount>,
    counted: i64,
    capped: Option<Amount>,
    note: Option<Note>,
}

/// Interleaving that the condition stops: two processes create the bucket, and the later one resets a level in use.
static CREATE: Statement = Statement { update: "", condition: "attribute_not_exists(#pk)", names: &[("#pk", KEY)] };

impl Bucket {
    /// A full bucket that no row stands for yet.
    #[must_use]
    pub fn full(dimension: Dimension, limit: Limit, now: Timestamp) -> Self {
        Self {
            dimension,
            limit,
            capacity: Exact::new(limit.capacity()),
            rate: Exact::new(limit.refill_rate()),
            tokens: limit.capacity(),
            anchor: Exact::new(now),
            version: 0,
            blocked_until: None,
            admitted: None,
            counted: 0,
            capped: None,
            note: None,
        }
    }

    /// Reads a bucket row.
    ///
    /// # Errors
    /// [`RowError`] names the attribute that is missing, has another type, or makes no sense.
    pub fn read(dimension: &Dimension, row: &impl Row) -> Result<Self, RowError> {
        let capacity = schema::amount(row, CAPACITY)?;
        let rate = schema::rate(row, REFILL_RATE)?;
        let limit = read_limit(row, capacity.get(), rate.get())?;
        let blocked = schema::optional(row, BLOCKED_UNTIL, || schema::timestamp(row, BLOCKED_UNTIL))?;
        let admitted = schema::optional(row, ADMITTED, || schema::amount(row, ADMITTED))?;
        Ok(Self {
            dimension: dimension.clone(),
            limit,
            capacity,
            rate,
            tokens: schema::amount(row, TOKENS)?.get(),
            anchor: schema::timestamp(row, LAST_REFILL_AT)?,
            version: schema::count(row, VERSION)?,
            blocked_until: blocked.map(|at| at.get()),
            admitted: admitted.map(|amount| amount.get()),
            counted: schema::optional(row, COUNTED, || schema::count(row, COUNTED))?.unwrap_or(0),
            capped: schema::optional(row, CAPPED, || schema::amount(row, CAPPED))?.map(|amount| amount.get()),
            note: Note::read(row),
        })
    }

    /// The write that makes the row of a bucket that the table does not have.
    #[must_use]
    pub fn create(&self) -> Put {
        let item: Vec<(&'static str, Operand)> = alloc::vec![
            (KEY, Operand::text(&self.dimension)),
            (CAPACITY, Operand::number(&self.capacity)),
            (TOKENS, Operand::number(self.tokens)),
            (REFILL_RATE, Operand::number(&self.rate)),
            (LAST_REFILL_AT, Operand::number(&self.anchor)),
            (COST_PER_CALL, Operand::number(self.limit.cost_per_call())),
            (LIMIT_TYPE, Operand::text(self.limit.limit_type())),
            (VERSION, Operand::number(self.version)),
        ];
        Put { item, statement: &CREATE }
    }

    /// Its name.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// Its limits.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Tokens at the anchor; free slots, for concurrency. Below zero where starts are booked ahead.
    #[must_use]
    pub const fn tokens(&self) -> Amount {
        self.tokens
    }

    /// The anchor.
    #[must_use]
    pub const fn anchor(&self) -> Timestamp {
        self.anchor.get()
    }

    /// Number of writes so far.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.version
    }

    /// Nothing is granted before this instant.
    #[must_use]
    pub const fn blocked_until(&self) -> Option<Timestamp> {
        self.blocked_until
    }

    /// Slots granted so far, where every client of the bucket counts them.
    #[must_use]
    pub const fn admitted(&self) -> Option<Amount> {
        self.admitted
    }

    /// Writes by clients that count what they admit.
    pub(crate) const fn counted(&self) -> i64 {
        self.counted
    }

    /// Cost of leases that was deleted without its slots, since the bucket had no room.
    #[must_use]
    pub const fn capped(&self) -> Option<Amount> {
        self.capped
    }

    /// Slots that the sweep before found lost, or minted (below zero), for the next to confirm.
    #[must_use]
    pub fn noted_drift(&self) -> Option<Amount> {
        self.note.as_ref().map(Note::drift)
    }

    /// What the sweep before found to be amiss.
    pub(crate) const fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The level at `now`, rounded down: never above the capacity, below zero where starts are booked ahead.
    #[must_use]
    pub fn level(&self, now: Timestamp) -> Amount {
        self.line(now).min(self.limit.capacity())
    }

    /// When the level reaches `amount`, rounded up; `None` where it never does.
    #[must_use]
    pub fn reaches(&self, amount: Amount) -> Option<Timestamp> {
        let wait = self.limit.refill_rate().micros_for(amount.minus(self.tokens));
        (wait < i64::MAX).then(|| Timestamp::from_micros(self.anchor().micros().saturating_add(wait)))
    }

    /// The same bucket after `cost` was taken by a write whose reply does not show the row.
    #[must_use]
    pub fn after_taking(&self, cost: Cost) -> Self {
        self.less(cost.amount())
    }

    pub(crate) fn less(&self, amount: Amount) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.minus(amount);
        after.version = self.version.saturating_add(1);
        after
    }

    /// The same bucket after `cost` was given back.
    #[must_use]
    pub fn after_giving_back(&self, cost: Cost) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.plus(cost.amount());
        after.version = self.version.saturating_add(1);
        after
    }

    /// The same bucket, moved to the line through `tokens` at `anchor`.
    pub(crate) fn moved(&self, tokens: Amount, anchor: Timestamp) -> Self {
        let mut after = self.clone();
        after.tokens = tokens;
        after.anchor = Exact::new(anchor);
        after.version = self.version.saturating_add(1);
        after
    }

    /// The uncapped line, rounded down.
    pub(crate) fn line(&self, now: Timestamp) -> Amount {
        self.tokens.plus(self.limit.refill_rate().accrued_floor(now.micros_since(self.anchor())))
    }

    /// How long `now` is before the end of a cool-down, if one holds.
    pub(crate) fn cooling_down(&self, now: Timestamp) -> Option<Duration> {
        self.blocked_until.filter(|until| *until > now).map(|until| until.since(now))
    }

    pub(crate) fn key(&self) -> String {
        self.dimension.to_string()
    }

    pub(crate) const fn anchor_as_read(&self) -> &Exact<Timestamp> {
        &self.anchor
    }

    pub(crate) const fn capacity_as_read(&self) -> &Exact<Amount> {
        &self.capacity
    }

    pub(crate) const fn rate_as_read(&self) -> &Exact<Rate> {
        &self.rate
    }
}

fn read_limit(row: &impl Row, capacity: Amount, rate: Rate) -> Result<Limit, RowError> {
    let limit_type = schema::text(row, LIMIT_TYPE)?;
    let parsed: LimitType = limit_type.parse().map_err(|e| RowError::bad(LIMIT_TYPE, limit_type, e))?;
    let cost = schema::number(row, COST_PER_CALL)?;
    let cost_per_call: Cost = cost.parse().map_err(|e| RowError::bad(COST_PER_CALL, cost, e))?;
    let limit = if parsed == LimitType::Concurrent {
        // A refill rate on a concurrency row means nothing, whoever wrote it: slots come back by release alone.
        Limit::concurrent(capacity, cost_per_call)
    } else {
        Limit::rate(parsed, capacity, rate, cost_per_call)
    };
    limit.map_err(|e| match e {
        crate::limit::LimitError::Cost { .. } => RowError::bad(COST_PER_CALL, cost, e),
        crate::limit::LimitError::Capacity(_) => RowError::bad(CAPACITY, &capacity.to_string(), e),
        _ => RowError::bad(REFILL_RATE, &rate.to_string(), e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Fault, Field};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone)]
    struct Sample(BTreeMap<&'static str, Option<Operand>>);

    impl Row for Sample {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            self.0.get(name).map(|value| match value {
                Some(Operand::Text(text)) => Field::Text(text),
                Some(Operand::Number(text)) => Field::Number(text),
                None => Field::Other,
            })
        }
    }

    /// The row of another client: whole seconds, a float's noise, none of our own attributes.
    fn sample() -> Sample {
        let number = |text: &str| Some(Operand::Number(text.into()));
        Sample(BTreeMap::from([
            (KEY, Some(Operand::Text("openai#rpm".into()))),
            (CAPACITY, number("100")),
            (TOKENS, number("46.99999999999999")),
            (REFILL_RATE, number("1.667")),
            (LAST_REFILL_AT, number("1709550002")),
            (COST_PER_CALL, number("1")),
            (LIMIT_TYPE, Some(Operand::Text("requests".into()))),
            (VERSION, number("42")),
        ]))
    }

    fn read(row: &Sample) -> Result<Bucket, RowError> {
        Bucket::read(&Dimension::new("openai#rpm").unwrap(), row)
    }

    #[test]
    fn another_clients_row_is_read_rounding_down() {
        let bucket = read(&sample()).unwrap();
        assert_eq!(bucket.tokens(), Amount::from_micros(46_999_999));
        assert_eq!(bucket.version(), 42);
        assert_eq!(bucket.blocked_until(), None);
        let later = Timestamp::from_secs(1_709_550_012);
        assert_eq!(bucket.level(later).to_string(), "63.669999");
        assert_eq!(bucket.level(Timestamp::from_secs(1_709_560_000)), Amount::from_tokens(100));
    }

    #[test]
    fn what_a_condition_compares_is_sent_back_as_it_was_read() {
        let mut row = sample();
        row.0.insert(LAST_REFILL_AT, Some(Operand::Number("1709550002.1234567".into())));
        let bucket = read(&row).unwrap();
        assert_eq!(bucket.anchor(), Timestamp::from_micros(1_709_550_002_123_456));
        assert_eq!(bucket.anchor_as_read().to_string(), "1709550002.1234567");
    }

    #[test]
    fn a_faulty_row_names_the_attribute() {
        for name in [CAPACITY, TOKENS, REFILL_RATE, LAST_REFILL_AT, COST_PER_CALL, LIMIT_TYPE, VERSION] {
            let mut missing = sample();
            missing.0.remove(name);
            assert_eq!(read(&missing).unwrap_err(), RowError { attribute: name, fault: Fault::Missing });
            let mut mistyped = sample();
            mistyped.0.insert(name, None);
            let error = read(&mistyped).unwrap_err();
            assert_eq!(error.attribute, name);
            assert!(matches!(error.fault, Fault::WrongType { .. }), "{error}");
        }
        for (name, text) in [(CAPACITY, "0"), (REFILL_RATE, "0"), (REFILL_RATE, "-1"), (COST_PER_CALL, "101")] {
            let mut senseless = sample();
            senseless.0.insert(name, Some(Operand::Number(text.into())));
            let error = read(&senseless).unwrap_err();
            assert_eq!(error.attribute, name, "{error}");
            assert!(matches!(error.fault, Fault::BadValue { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_level_is_never_above_capacity(
            tokens in -1_000_000_000_i64..1_000_000_000, capacity in 1_i64..1_000_000_000,
            window_ms in 1_u64..10_000_000, at in -1_000_000_000_000_i64..1_000_000_000_000,
        ) {
            let capacity = Amount::from_micros(capacity);
            let rate = Rate::per(capacity, Duration::from_millis(window_ms)).unwrap();
            prop_assume!(!rate.is_zero());
            let cost = Cost::new(Amount::from_micros(1)).unwrap();
            let limit = Limit::rate(LimitType::Tokens, capacity, rate, cost).unwrap();
            let bucket = Bucket::full(Dimension::new("a#b").unwrap(), limit, Timestamp::from_micros(0))
                .moved(Amount::from_micros(tokens), Timestamp::from_micros(0));
            prop_assert!(bucket.level(Timestamp::from_micros(at)) <= capacity);
        }
    }
}
