//! Reads the row of a bucket, whichever client wrote it.

use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use core::time::Duration;

use super::Bucket;
use super::lender::Loans;
use super::lines::{LineRead, read_lines};
use super::note::Note;
use super::slot_shares::read_slot_shares;
use crate::amount::{Amount, Cost};
use crate::dimension::Dimension;
use crate::inline::InlineLeases;
use crate::limit::{Limit, LimitType};
use crate::rate::Rate;
use crate::schema::{
    self, ADMITTED, ADMITTED_INLINE, ADOPT_AT_LEAST, ADOPTS_LIMIT, AttributeFault, BLOCKED_UNTIL, BORROWED,
    CAPACITY, CAPPED, COST_PER_CALL, COUNTED, LAST_REFILL_AT, LENT, LIMIT_TYPE, LOTS, OBSERVED,
    OBSERVED_VERSION, PROTOCOL, PROTOCOL_VERSION, REFILL_RATE, REPAIRED_AT, RETURNED, Row, RowError, SERVED,
    SHARES, TOKENS, VENDOR_LIMIT, VENDOR_LIMIT_AT, VENDOR_LIMIT_WINDOW, VERSION, WAITED_UNTIL,
};
use crate::timestamp::Timestamp;
use crate::vendor_limit::VendorLimit;

/// Far from the numbers that can be counted with.
const MOST_SERVED: i64 = i64::MAX / 4;

impl Bucket {
    /// Reads a bucket row.
    ///
    /// # Errors
    /// [`RowError`] names the attribute that is missing, has another type, or makes no sense.
    pub fn read(dimension: &Dimension, row: &impl Row) -> Result<Self, RowError> {
        let protocol = read_protocol(row)?;
        let capacity = schema::amount(row, CAPACITY)?;
        let rate = schema::rate(row, REFILL_RATE)?;
        let limit = read_limit(row, capacity.get(), rate.get())?;
        let blocked = schema::optional(row, BLOCKED_UNTIL, || schema::timestamp(row, BLOCKED_UNTIL))?;
        let admitted = schema::optional(row, ADMITTED, || schema::amount(row, ADMITTED))?;
        let admitted_inline =
            schema::optional(row, ADMITTED_INLINE, || schema::amount(row, ADMITTED_INLINE))?;
        let tokens = schema::amount(row, TOKENS)?;
        let anchor = schema::timestamp(row, LAST_REFILL_AT)?;
        let lots = schema::optional(row, LOTS, || schema::count(row, LOTS))?.unwrap_or(0);
        let returned = schema::optional(row, RETURNED, || schema::amount(row, RETURNED))?
            .map_or(Amount::ZERO, |sum| sum.get());
        let repaired_at =
            schema::optional(row, REPAIRED_AT, || schema::timestamp(row, REPAIRED_AT))?.map(|at| at.get());
        let lines = if limit.is_concurrent() || row.field(SHARES).is_none() {
            None
        } else {
            let (capacity, rate, tokens, anchor) =
                (capacity.clone(), rate.clone(), tokens.clone(), anchor.clone());
            let loans = Loans::read(row, LENT, BORROWED);
            read_lines(
                row,
                LineRead { limit, capacity, rate, tokens, anchor, lots, returned, repaired_at, loans },
            )?
        };
        Ok(Self {
            dimension: dimension.clone(),
            limit,
            capacity,
            rate,
            tokens: tokens.get(),
            anchor,
            version: schema::count(row, VERSION)?,
            protocol,
            blocked_until: blocked.map(|at| at.get()),
            admitted: admitted.map(|amount| amount.get()),
            admitted_inline: admitted_inline.map(|amount| amount.get()),
            counted: schema::optional(row, COUNTED, || schema::count(row, COUNTED))?.unwrap_or(0),
            capped: schema::optional(row, CAPPED, || schema::amount(row, CAPPED))?,
            lots,
            returned,
            repaired_at,
            observed: schema::optional(row, OBSERVED, || schema::amount(row, OBSERVED))?
                .map_or(Amount::ZERO, |sum| sum.get()),
            observed_version: schema::optional(row, OBSERVED_VERSION, || {
                schema::count(row, OBSERVED_VERSION)
            })?,
            vendor_limit: schema::optional(row, VENDOR_LIMIT, || read_vendor_limit(row))?.map(Box::new),
            adopts_limit: schema::optional(row, ADOPTS_LIMIT, || schema::count(row, ADOPTS_LIMIT))?
                == Some(1),
            adopt_at_least: schema::optional(row, ADOPT_AT_LEAST, || schema::amount(row, ADOPT_AT_LEAST))?
                .map(|least| Box::new(least.get())),
            note: Note::read(row).map(Box::new),
            // Of the order of those that wait, and of no slot: the bucket can be used without them.
            served: match row.field(SERVED) {
                None => Some(0),
                Some(_) => schema::count(row, SERVED)
                    .ok()
                    .filter(|served| (-MOST_SERVED..=MOST_SERVED).contains(served)),
            },
            waited_until: schema::timestamp(row, WAITED_UNTIL).ok().map(|at| at.get()),
            inline: if limit.is_concurrent() { InlineLeases::read(row)?.map(Arc::new) } else { None },
            lines,
            share: None,
            slot_shares: if limit.is_concurrent() { read_slot_shares(dimension, row)? } else { None },
        })
    }
}

/// Other attributes may not mean what this version takes them for: nothing else is read of a later row.
fn read_protocol(row: &impl Row) -> Result<Option<i64>, RowError> {
    let stated = schema::optional(row, PROTOCOL, || schema::count(row, PROTOCOL))?;
    let needs = stated.unwrap_or(1);
    let fault = AttributeFault::TooNew { needs, knows: PROTOCOL_VERSION };
    if needs > PROTOCOL_VERSION { Err(RowError { attribute: PROTOCOL, fault }) } else { Ok(stated) }
}

fn read_vendor_limit(row: &impl Row) -> Result<VendorLimit, RowError> {
    let window =
        schema::optional(row, VENDOR_LIMIT_WINDOW, || schema::count(row, VENDOR_LIMIT_WINDOW))?.unwrap_or(0);
    let at = schema::optional(row, VENDOR_LIMIT_AT, || schema::timestamp(row, VENDOR_LIMIT_AT))?;
    Ok(VendorLimit {
        limit: schema::amount(row, VENDOR_LIMIT)?.get(),
        window: Duration::from_secs(u64::try_from(window).unwrap_or(0)),
        at: at.map_or(Timestamp::from_micros(0), |at| at.get()),
    })
}

fn read_limit(row: &impl Row, capacity: Amount, rate: Rate) -> Result<Limit, RowError> {
    let limit_type = schema::text(row, LIMIT_TYPE)?;
    let parsed: LimitType = limit_type.parse().map_err(|e| RowError::bad(LIMIT_TYPE, limit_type, e))?;
    let cost = schema::number(row, COST_PER_CALL)?;
    let cost_per_call: Cost = cost.parse().map_err(|e| RowError::bad(COST_PER_CALL, cost, e))?;
    let limit = if parsed == LimitType::Concurrent {
        // A refill rate on a concurrency row means nothing: slots come back by release alone.
        Limit::concurrent(capacity, cost_per_call)
    } else {
        Limit::rate(parsed, capacity, rate, cost_per_call)
    };
    limit.map_err(|e| match e {
        crate::limit::InvalidLimit::Cost { .. } => RowError::bad(COST_PER_CALL, cost, e),
        crate::limit::InvalidLimit::Capacity(_) => RowError::bad(CAPACITY, &capacity.to_string(), e),
        _ => RowError::bad(REFILL_RATE, &rate.to_string(), e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{DRIFT, Field, KEY, LEASES, OF_BUCKET};
    use crate::statement::Operand;
    use crate::timestamp::Timestamp;
    use core::cell::RefCell;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone)]
    struct Sample(BTreeMap<&'static str, Option<Operand>>);

    impl Row for Sample {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            self.0.get(name).map(|value| match value {
                Some(Operand::Text(text)) => Field::Text(text),
                Some(Operand::Number(text)) => Field::Number(text),
                Some(Operand::Map(_)) | None => Field::Other,
            })
        }
    }

    /// A row of another client: whole seconds, floating-point noise, none of Sluice's own attributes.
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
            assert_eq!(
                read(&missing).unwrap_err(),
                RowError { attribute: name, fault: AttributeFault::Missing }
            );
            let mut mistyped = sample();
            mistyped.0.insert(name, None);
            let error = read(&mistyped).unwrap_err();
            assert_eq!(error.attribute, name);
            assert!(matches!(error.fault, AttributeFault::WrongType { .. }), "{error}");
        }
        for (name, text) in [(CAPACITY, "0"), (REFILL_RATE, "0"), (REFILL_RATE, "-1"), (COST_PER_CALL, "101")]
        {
            let mut senseless = sample();
            senseless.0.insert(name, Some(Operand::Number(text.into())));
            let error = read(&senseless).unwrap_err();
            assert_eq!(error.attribute, name, "{error}");
            assert!(matches!(error.fault, AttributeFault::BadValue { .. }), "{error}");
        }
    }

    /// A row that records which attributes are read of it.
    struct Watched<'a>(&'a Sample, RefCell<BTreeSet<String>>);

    impl Row for Watched<'_> {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            self.1.borrow_mut().insert(name.to_owned());
            self.0.field(name)
        }

        fn entries(&self, name: &str, _: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
            self.1.borrow_mut().insert(name.to_owned());
            true
        }
    }

    #[test]
    fn a_row_for_later_versions_says_so_and_nothing_else() {
        let mut row = sample();
        for known in [PROTOCOL_VERSION, 0] {
            row.0.insert(PROTOCOL, Some(Operand::number(known)));
            assert!(read(&row).is_ok(), "{known}");
        }
        row.0.insert(PROTOCOL, Some(Operand::number(PROTOCOL_VERSION + 1)));
        row.0.remove(CAPACITY);
        let error = read(&row).unwrap_err();
        assert!(matches!(error.fault, AttributeFault::TooNew { .. }), "{error}");
        assert!(
            error.to_string().contains("this version of Sluice knows 1") && error.advice().contains("update")
        );
    }

    #[test]
    fn counts_of_those_that_wait_that_make_no_sense_leave_the_bucket_usable() {
        for (text, counts) in [("7", true), ("-9223372036854775808", false), ("9223372036854775807", false)] {
            let mut row = sample();
            row.0.insert(SERVED, Some(Operand::Number(text.into())));
            row.0.insert(WAITED_UNTIL, Some(Operand::Text("tomorrow".into())));
            let bucket = read(&row).unwrap();
            assert_eq!((bucket.counts_served(), bucket.waited_until()), (counts, None), "{text}");
        }
    }

    #[test]
    fn a_scan_of_whole_buckets_reads_every_attribute() {
        let (mut rate, mut slots) = (sample(), sample());
        rate.0.insert(VENDOR_LIMIT, Some(Operand::Number("50".into())));
        rate.0.insert(DRIFT, Some(Operand::Number("1".into())));
        rate.0.insert(SHARES, Some(Operand::Map([].into())));
        slots.0.insert(LIMIT_TYPE, Some(Operand::Text("concurrent".into())));
        slots.0.insert(LEASES, Some(Operand::Map([].into())));
        let mut all = BTreeSet::new();
        for row in [rate, slots] {
            let row = Watched(&row, RefCell::default());
            Bucket::read(&Dimension::new("openai#rpm").unwrap(), &row).unwrap();
            all.extend(row.1.into_inner());
        }
        assert_eq!(all, OF_BUCKET.map(str::to_owned).into());
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
