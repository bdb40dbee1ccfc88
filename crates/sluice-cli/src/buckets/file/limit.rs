//! The limit of a declared bucket. `counted` makes that of a vendor that counts in windows.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, LimitType, Rate};

use super::declared::{Declared, WINDOW};
use super::place::{Faulty, Field, Place};
use super::{check_cost, counted};

pub(super) fn limit(place: &Place<'_>, declared: &Declared) -> Result<Limit, Faulty> {
    let limit_type = declared.limit_type.value;
    let cost = declared.cost_per_call.as_ref().map_or(Cost::ONE, |cost| cost.value);
    if limit_type == LimitType::Concurrent {
        return concurrent(place, declared, cost);
    }
    match counted::counts(place, declared)? {
        Some(counts) => counted::limit(place, declared, counts, limit_type, cost),
        None => bucket(place, declared, limit_type, cost),
    }
}

/// The limit of a vendor that refills continuously.
fn bucket(
    place: &Place<'_>,
    declared: &Declared,
    limit_type: LimitType,
    cost: Cost,
) -> Result<Limit, Faulty> {
    let (written, rate) = match (&declared.capacity, &declared.limit) {
        (capacity, Some(limit)) => {
            (capacity.as_ref().unwrap_or(limit), rate_of_limit(place, declared, limit)?)
        }
        (Some(capacity), None) => (capacity, rate_of_capacity(place, declared, capacity.value)?),
        (None, None) => return Err(no_capacity(place, declared)),
    };
    check_cost(place, declared, written, written.value, cost)?;
    Limit::rate(limit_type, written.value, rate, cost).map_err(|error| place.fault(written, error))
}

fn concurrent(place: &Place<'_>, declared: &Declared, cost: Cost) -> Result<Limit, Faulty> {
    let by_time = "because slots come back by release";
    let no_window = format!("leave it out: a concurrent limit has no window and no refill_rate, {by_time}");
    // Each that does not belong here is noted.
    let windows = [&declared.window, &declared.arrival_jitter].into_iter().flatten();
    let faults: Vec<Faulty> = windows
        .map(|written| place.fault(written, &no_window))
        .chain(declared.counts.iter().map(|written| place.fault(written, &no_window)))
        .chain(declared.refill_rate.iter().map(|written| {
            place.fault(written, format_args!("leave it out: a concurrent limit has none, {by_time}"))
        }))
        .chain(declared.limit.iter().map(|written| {
            place.fault(written, "write it as capacity: a concurrent limit is its number of slots")
        }))
        .collect();
    if !faults.is_empty() {
        return Err(Faulty);
    }
    let Some(written) = &declared.capacity else { return Err(no_capacity(place, declared)) };
    if !written.value.is_whole() {
        return Err(place.fault(written, "it must be a whole number of slots"));
    }
    check_cost(place, declared, written, written.value, cost)?;
    Limit::concurrent(written.value, cost).map_err(|error| place.fault(written, error))
}

fn no_capacity(place: &Place<'_>, declared: &Declared) -> Faulty {
    let reason = "it has no capacity: state capacity = the largest burst (for type = \"concurrent\": the number of slots), or \
                  limit = what the vendor allows in each window";
    place.fault(&declared.dimension, reason)
}

/// What flows back if `limit` does in each window.
fn rate_of_limit(place: &Place<'_>, declared: &Declared, limit: &Field<Amount>) -> Result<Rate, Faulty> {
    if let Some(rate) = &declared.refill_rate {
        return Err(place.fault(rate, "leave it out: limit and window say how much flows back"));
    }
    let Some(window) = &declared.window else {
        return Err(place.fault(limit, "it needs window = \"1m\", the time in which the vendor allows it"));
    };
    rate_in(place, window, limit.value)
}

fn rate_of_capacity(place: &Place<'_>, declared: &Declared, capacity: Amount) -> Result<Rate, Faulty> {
    match (&declared.window, &declared.refill_rate) {
        (Some(window), None) => rate_in(place, window, capacity),
        (None, Some(written)) => Ok(written.value),
        (Some(window), Some(_)) => Err(place.fault(window, "give a window or a refill_rate, not both")),
        (None, None) => Err(place.fault(
            &declared.dimension,
            "it has no window: a rate limit needs window = \"1m\", or refill_rate = tokens a second",
        )),
    }
}

fn rate_in(place: &Place<'_>, window: &Field<Duration>, amount: Amount) -> Result<Rate, Faulty> {
    let rate = Rate::per(amount, window.value).filter(|rate| !rate.is_zero());
    rate.ok_or_else(|| place.fault(window, format_args!("it must be {WINDOW}")))
}
