//! What callers pass: dimensions with costs, times, replies.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use sluice_sdk::{Dimension, Quantity, Reply, Request, Usage};

/// Dimensions, the costs of some, and the share that pays.
pub(crate) fn request(
    dimensions: Vec<String>,
    costs: Option<&Bound<'_, PyDict>>,
    share: Option<String>,
) -> PyResult<Request<'static>> {
    let with_cost =
        |request: Request<'static>, (dimension, cost): (String, Quantity)| request.cost(dimension, cost);
    let request = match <[String; 1]>::try_from(dimensions) {
        Ok([only]) => Request::from(&only).into_owned(),
        Err(dimensions) => Request::from(dimensions),
    };
    let request = share.into_iter().fold(request, Request::share);
    Ok(quantities(costs)?.into_iter().fold(request, with_cost))
}

/// What a call used, by dimension.
pub(crate) fn usage(used: Option<&Bound<'_, PyDict>>) -> PyResult<Usage> {
    Ok(Usage::from(quantities(used)?))
}

fn quantities(by_dimension: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, Quantity)>> {
    let Some(by_dimension) = by_dimension else { return Ok(Vec::new()) };
    by_dimension.iter().map(|(dimension, amount)| Ok((dimension.extract()?, quantity(&amount)?))).collect()
}

/// The concurrency limits of the slots in which the caller's code runs, as Python knows them.
pub(crate) fn limits_of(inside: &[String]) -> Vec<Dimension> {
    inside.iter().filter_map(|name| Dimension::new(name).ok()).collect()
}

/// A number of tokens: a whole number, or one with a fraction.
pub(crate) fn quantity(number: &Bound<'_, PyAny>) -> PyResult<Quantity> {
    if let Ok(whole) = number.extract::<i64>() {
        return Ok(Quantity::from(whole));
    }
    let number: f64 = number.extract().map_err(|_| {
        PyTypeError::new_err(format!("{number:?} is not a number of tokens: pass an int or a float"))
    })?;
    Ok(Quantity::from(number))
}

/// A time in seconds, or a `timedelta`.
pub(crate) fn duration(name: &str, time: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = |what: &str| PyValueError::new_err(format!("{name} = {time}: {what}"));
    if let Ok(seconds) = time.extract::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| wrong("it must be a number of seconds, zero or more"));
    }
    let negative = || wrong("it must be zero or more");
    let is_delta = time.hasattr("total_seconds")?;
    if !is_delta {
        return Err(PyTypeError::new_err(format!(
            "{name} = {time}: pass seconds as a number, or a timedelta"
        )));
    }
    time.extract().map_err(|_| negative())
}

pub(crate) fn optional_duration(name: &str, time: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    time.map(|time| duration(name, time)).transpose()
}

/// The headers of a reply, as pairs. Values that are neither text nor bytes are left out.
pub(crate) fn headers(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Vec<u8>)>> {
    let mut pairs = Vec::new();
    for pair in headers.try_iter()? {
        let pair = pair?.cast_into::<PyTuple>()?;
        let (name, value) = (bytes(&pair.get_item(0)?), bytes(&pair.get_item(1)?));
        if let (Some(Ok(name)), Some(value)) = (name.map(String::from_utf8), value) {
            pairs.push((name, value));
        }
    }
    Ok(pairs)
}

fn bytes(text: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    match text.cast::<PyBytes>() {
        Ok(bytes) => Some(bytes.as_bytes().to_vec()),
        // HTTP's headers are bytes, which most clients of Python decode as Latin-1.
        Err(_) => text.extract::<String>().ok().map(String::into_bytes),
    }
}

/// A vendor's reply, as the caller passed it.
pub(crate) struct OwnReply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl OwnReply {
    pub(crate) fn new(status: u16, of: &Bound<'_, PyAny>, body: Option<Vec<u8>>) -> PyResult<Self> {
        Ok(Self { status, headers: headers(of)?, body })
    }

    pub(crate) fn as_reply(&self) -> Reply<'_, Vec<(String, Vec<u8>)>> {
        let reply = Reply::new(self.status, &self.headers);
        match &self.body {
            Some(body) => reply.with_body(body),
            None => reply,
        }
    }
}
