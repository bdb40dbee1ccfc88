//! Limits, as dataclasses.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_bindings::words::tokens;
use sluice_sdk::core::{Amount, Cost, DeclaredShare, Limit, LimitType, Rate, ShareName, Split};

use crate::arguments;
use crate::values::{IntoPython, instance};

/// A number of tokens or slots.
pub(crate) fn amount(name: &str, number: &Bound<'_, PyAny>) -> PyResult<Amount> {
    let text: String = number.str()?.extract()?;
    text.parse().map_err(|error| PyValueError::new_err(format!("{name} = {text}: {error}")))
}

/// The limit that a `Limit` of `sluice` describes.
pub(crate) fn limit(of: &Bound<'_, PyAny>) -> PyResult<Limit> {
    let limit_type: String = of.getattr("type")?.extract()?;
    let limit_type: LimitType = limit_type.parse().map_err(|_| {
        PyValueError::new_err(format!("type = {limit_type:?}: it must be requests, tokens or concurrent"))
    })?;
    let capacity = amount("capacity", &of.getattr("capacity")?)?;
    let cost = of.getattr("cost_per_call")?;
    let cost = if cost.is_none() {
        Cost::ONE
    } else {
        let of_call = amount("cost_per_call", &cost)?;
        Cost::new(of_call)
            .map_err(|error| PyValueError::new_err(format!("cost_per_call = {of_call}: {error}")))?
    };
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{of}: {error}"));
    if limit_type == LimitType::Concurrent {
        return Limit::concurrent(capacity, cost).map_err(|error| wrong(&error));
    }
    let window = arguments::duration("per", &of.getattr("per")?)?;
    let refilled = of.getattr("refill")?;
    let refilled = if refilled.is_none() { capacity } else { amount("refill", &refilled)? };
    let rate =
        Rate::per(refilled, window).ok_or_else(|| wrong(&"the refill in this time is out of range"))?;
    Limit::rate(limit_type, capacity, rate, cost).map_err(|error| wrong(&error))
}

/// A limit that is split into these shares: a part, or a `Share` of `sluice`, by name.
pub(crate) fn split(whole: Limit, shares: &Bound<'_, PyDict>) -> PyResult<Split> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let mut declared = Vec::with_capacity(shares.len());
    for (name, share) in shares {
        let name: String = name.extract()?;
        let name = ShareName::new(&name).map_err(|error| wrong(&error))?;
        let (part, floor, background) = match share.getattr_opt("part")? {
            Some(part) => (part, Some(share.getattr("floor")?), share.getattr("background")?.extract()?),
            None => (share, None, false),
        };
        let part: String = part.str()?.extract()?;
        let part = part.parse().map_err(|_| {
            wrong(&format!("share {name}: part = {part}: it must be above 0 and below 1, as in 0.3"))
        })?;
        let floor =
            floor.filter(|floor| !floor.is_none()).map(|floor| amount("floor", &floor)).transpose()?;
        declared.push(DeclaredShare { name, part, floor, background });
    }
    Split::new(whole, &declared).map_err(|error| wrong(&error))
}

/// As requests or tokens a minute, or slots.
impl IntoPython for Limit {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let cost = self.default_cost().map(|cost| tokens(cost.amount()));
        let capacity = tokens(self.capacity());
        if self.is_concurrent() {
            return instance(py, "Limit", ("concurrent", capacity, None::<f64>, None::<f64>, cost));
        }
        let refill = tokens(self.refill_rate().per_minute());
        instance(py, "Limit", (self.limit_type().as_str(), capacity, Some(60.0), Some(refill), cost))
    }
}
