//! The limit of a declared bucket. `counted` makes that of a vendor that counts in windows. Every check runs
//! that has its fields, so that one fault hides no other.

use std::time::Duration;

use sluice_core::{Amount, Cost, InvalidLimit, Limit, LimitType, Rate};

use super::counted;
use super::declared::{CountedIn, Declared, WINDOW};
use super::place::{Faulty, Field, Place, Written};

pub(super) fn limit(place: &Place<'_>, declared: &Declared) -> Result<Limit, Faulty> {
    let cost = declared.cost_per_call.get().map(|written| written.map_or(Cost::ONE, |cost| cost.value));
    let cost = cost.and_then(|cost| fits(place, declared, cost).map(|()| cost));
    let limit_type = *declared.limit_type.value().ok_or(Faulty)?;
    if limit_type == LimitType::Concurrent {
        return concurrent(place, declared, cost);
    }
    match declared.counts.get() {
        Ok(Some(counts)) if counts.value == CountedIn::AnyWindow => {
            counted::limit(place, declared, counts, limit_type, cost)
        }
        Ok(_) => bucket(place, declared, limit_type, cost),
        Err(faulty) => {
            // However the vendor counts.
            let _: Option<&Field<Duration>> =
                declared.limit.get()?.map(|_| declared.window_of_limit(place)).transpose()?;
            Err(faulty)
        }
    }
}

/// Fails if the bucket has no room for one call.
fn fits(place: &Place<'_>, declared: &Declared, cost: Cost) -> Result<(), Faulty> {
    let is_concurrent = declared.limit_type.value() == Some(&LimitType::Concurrent);
    let is_counted = declared.counts.value() == Some(&CountedIn::AnyWindow);
    let holds = match (&declared.capacity, &declared.limit) {
        // Slots that are not whole are a fault of their own.
        (Written::Sound(capacity), _) if !is_concurrent || capacity.value.is_whole() => capacity,
        (Written::Missing, Written::Sound(limit)) if !is_counted => limit,
        _ => return Ok(()),
    };
    if cost.amount() <= holds.value {
        return Ok(());
    }
    Err(match &declared.cost_per_call {
        Written::Sound(cost) => place.fault(
            cost,
            format_args!("it is above the capacity {}, so no call could ever be granted", holds.value),
        ),
        _ => place.fault(holds, "it has no room for one call, which takes 1: state a cost_per_call below it"),
    })
}

/// The limit of a vendor that refills continuously.
fn bucket(
    place: &Place<'_>,
    declared: &Declared,
    limit_type: LimitType,
    cost: Result<Cost, Faulty>,
) -> Result<Limit, Faulty> {
    let (capacity, limit) = (declared.capacity.get(), declared.limit.get());
    let rate = match limit {
        Ok(None) => rate_of_capacity(place, declared, capacity),
        limit => declared
            .window_of_limit(place)
            .and_then(|window| rate_in(place, window, limit?.ok_or(Faulty)?.value)),
    };
    let Some(written) = capacity?.or(limit?) else { return Err(no_capacity(place, declared)) };
    let _: Option<&Field<Rate>> = declared.refill_rate.get()?;
    Limit::rate(limit_type, written.value, rate?, cost?).map_err(|error| place.fault(written, error))
}

fn concurrent(place: &Place<'_>, declared: &Declared, cost: Result<Cost, Faulty>) -> Result<Limit, Faulty> {
    let Some(written) = declared.capacity.get()? else {
        // What stands in another field is noted there.
        return Err(if declared.limit.get().is_ok() { no_capacity(place, declared) } else { Faulty });
    };
    if !written.value.is_whole() {
        return Err(place.fault(written, "it must be a whole number of slots"));
    }
    Limit::concurrent(written.value, cost?).map_err(|error| place.fault(written, error))
}

fn no_capacity(place: &Place<'_>, declared: &Declared) -> Faulty {
    let reason = "it has no capacity: state capacity = the largest burst (for type = \"concurrent\": the number of slots), or \
                  limit = what the vendor allows in each window";
    declared.fault(place, reason)
}

fn rate_of_capacity(
    place: &Place<'_>,
    declared: &Declared,
    capacity: Result<Option<&Field<Amount>>, Faulty>,
) -> Result<Rate, Faulty> {
    const NOT_BOTH: &str = "give a window or a refill_rate, not both";
    match (declared.window.get(), declared.refill_rate.get()) {
        (Ok(Some(window)), Ok(None)) => rate_in(place, window, capacity?.ok_or(Faulty)?.value),
        (Ok(None), rate) => match rate? {
            Some(written) => Ok(written.value),
            None => Err(declared.fault(
                place,
                "it has no window: a rate limit needs window = \"1m\", or refill_rate = tokens a second",
            )),
        },
        (Ok(Some(window)), _) => Err(place.fault(window, NOT_BOTH)),
        (Err(_), Ok(Some(written))) => Err(place.fault(written, NOT_BOTH)),
        (Err(faulty), _) => Err(faulty),
    }
}

fn rate_in(place: &Place<'_>, window: &Field<Duration>, amount: Amount) -> Result<Rate, Faulty> {
    match Rate::per(amount, window.value) {
        Some(rate) if !rate.is_zero() => Ok(rate),
        None if !window.value.is_zero() => {
            Err(place.fault(window, InvalidLimit::TooFast { amount, window: window.value }))
        }
        _ => Err(place.fault(window, format_args!("it must be {WINDOW}"))),
    }
}
