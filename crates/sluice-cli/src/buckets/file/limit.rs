//! The limit of a declared bucket. `counted` makes that of a vendor that counts in windows.

use sluice_core::{Amount, Cost, Limit, LimitType, Rate};
use toml::{Spanned, Value};

use super::{Declared, Place, WINDOW, amount, check_cost, counted, number, span};
use crate::failure::Failure;

const RATE: &str = "a number of tokens a second, above 0";

pub(super) fn limit(place: &Place<'_>, declared: &Declared) -> Result<Limit, Failure> {
    let written = &declared.limit_type;
    let limit_type: LimitType = written
        .as_ref()
        .parse()
        .map_err(|_| place.fault(written, "type", "it must be \"requests\", \"tokens\" or \"concurrent\""))?;
    let cost: Cost = match &declared.cost_per_call {
        Some(written) => number(place, written, "cost_per_call", "a number above 0")?,
        None => Cost::ONE,
    };
    if limit_type == LimitType::Concurrent {
        return concurrent(place, declared, cost);
    }
    match counted::counts(place, declared)? {
        Some(counts) => counted::limit(place, declared, counts, limit_type, cost),
        None => bucket(place, declared, limit_type, cost),
    }
}

/// The limit of a vendor that refills continuously.
fn bucket(place: &Place<'_>, declared: &Declared, limit_type: LimitType, cost: Cost) -> Result<Limit, Failure> {
    let (field, written, rate) = match (&declared.capacity, &declared.limit) {
        (capacity, Some(limit)) => {
            let rate = rate_of_limit(place, declared, limit)?;
            capacity.as_ref().map_or(("limit", limit, rate), |capacity| ("capacity", capacity, rate))
        }
        (Some(capacity), None) => {
            let rate = rate_of_capacity(place, declared, amount(place, capacity, "capacity")?)?;
            ("capacity", capacity, rate)
        }
        (None, None) => return Err(no_capacity(place, declared)),
    };
    let capacity = amount(place, written, field)?;
    check_cost(place, declared, (field, written), capacity, cost)?;
    Limit::rate(limit_type, capacity, rate, cost).map_err(|error| place.fault(written, field, error))
}

fn concurrent(place: &Place<'_>, declared: &Declared, cost: Cost) -> Result<Limit, Failure> {
    let by_time = "because slots come back by release";
    for (field, written) in
        [("window", &declared.window), ("counts", &declared.counts), ("arrival_jitter", &declared.arrival_jitter)]
    {
        if let Some(written) = written {
            let reason = format!("leave it out: a concurrent limit has no window and no refill_rate, {by_time}");
            return Err(place.fault(written, field, reason));
        }
    }
    if let Some(rate) = &declared.refill_rate {
        return Err(place.fault(rate, "refill_rate", format!("leave it out: a concurrent limit has none, {by_time}")));
    }
    if let Some(limit) = &declared.limit {
        return Err(place.fault(limit, "limit", "write it as capacity: a concurrent limit is its number of slots"));
    }
    let Some(written) = &declared.capacity else { return Err(no_capacity(place, declared)) };
    let capacity = amount(place, written, "capacity")?;
    if !capacity.is_whole() {
        return Err(place.fault(written, "capacity", "it must be a whole number of slots"));
    }
    check_cost(place, declared, ("capacity", written), capacity, cost)?;
    Limit::concurrent(capacity, cost).map_err(|error| place.fault(written, "capacity", error))
}

fn no_capacity(place: &Place<'_>, declared: &Declared) -> Failure {
    let reason = "it has no capacity: state capacity = the largest burst (or calls at once), or limit = what the vendor \
                  allows in each window";
    place.fault(&declared.dimension, "dimension", reason)
}

/// What flows back if `limit` does in each window.
fn rate_of_limit(place: &Place<'_>, declared: &Declared, limit: &Spanned<Value>) -> Result<Rate, Failure> {
    if let Some(rate) = &declared.refill_rate {
        return Err(place.fault(rate, "refill_rate", "leave it out: limit and window say how much flows back"));
    }
    let Some(window) = &declared.window else {
        return Err(place.fault(limit, "limit", "it needs window = \"1m\", the time in which the vendor allows it"));
    };
    rate_in(place, window, amount(place, limit, "limit")?)
}

fn rate_of_capacity(place: &Place<'_>, declared: &Declared, capacity: Amount) -> Result<Rate, Failure> {
    match (&declared.window, &declared.refill_rate) {
        (Some(window), None) => rate_in(place, window, capacity),
        (None, Some(written)) => {
            let rate: Rate = number(place, written, "refill_rate", RATE)?;
            if rate.is_zero() {
                return Err(place.fault(written, "refill_rate", format!("it must be {RATE}")));
            }
            Ok(rate)
        }
        (Some(window), Some(_)) => Err(place.fault(window, "window", "give a window or a refill_rate, not both")),
        (None, None) => Err(place.fault(
            &declared.dimension,
            "dimension",
            "it has no window: a rate limit needs window = \"1m\", or refill_rate = tokens a second",
        )),
    }
}

fn rate_in(place: &Place<'_>, window: &Spanned<String>, amount: Amount) -> Result<Rate, Failure> {
    let rate = span(window.as_ref()).and_then(|span| Rate::per(amount, span)).filter(|rate| !rate.is_zero());
    rate.ok_or_else(|| place.fault(window, "window", WINDOW))
}
