//! What callers pass: dimensions with costs, times, replies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_sdk::{Dimension, Quantity, Reply, Request, Usage};

use crate::failure::Failure;

/// Reads the arguments of an operation.
pub(crate) fn read<T: DeserializeOwned>(operation: &str, arguments: Value) -> Result<T, Failure> {
    serde_json::from_value(arguments).map_err(|error| Failure::argument(format!("{operation}: {error}")))
}

/// Tokens or slots: a whole number, or one with a fraction.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Whole(i64),
    Fraction(f64),
}

impl From<Number> for Quantity {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(whole) => whole.into(),
            Number::Fraction(fraction) => fraction.into(),
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(formatter),
            Self::Fraction(fraction) => fraction.fmt(formatter),
        }
    }
}

/// Numbers by dimension.
pub(crate) type Costs = BTreeMap<String, Number>;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    pub(crate) dimensions: Vec<String>,
    #[serde(default)]
    pub(crate) costs: Option<Costs>,
    share: Option<String>,
}

/// What is left when all fields were read: nothing. A misspelt option would be ignored in silence.
#[derive(Debug)]
pub(crate) struct NothingElse;

impl<'de> Deserialize<'de> for NothingElse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rest = BTreeMap::<String, IgnoredAny>::deserialize(deserializer)?;
        match rest.into_keys().next() {
            Some(name) => Err(D::Error::custom(format!("unknown option `{name}`"))),
            None => Ok(Self),
        }
    }
}

impl Asked {
    pub(crate) fn request(self) -> Request<'static> {
        let Self { dimensions, costs, share } = self;
        let request = match <[String; 1]>::try_from(dimensions) {
            Ok([only]) => Request::from(&only).into_owned(),
            Err(dimensions) => Request::from(dimensions),
        };
        let request = share.into_iter().fold(request, Request::share);
        costs.unwrap_or_default().into_iter().fold(request, |request, (name, cost)| request.cost(name, cost))
    }
}

/// What a call used, by dimension.
pub(crate) fn usage(used: Option<Costs>) -> Usage {
    let used = used.unwrap_or_default().into_iter().map(|(name, used)| (name, Quantity::from(used)));
    Usage::from(used.collect::<Vec<_>>())
}

/// The concurrency limits of the slots in which the caller's code runs: `concurrencyLimits` of each that has
/// not ended. The caller's language knows them, and the task that calls the SDK does not.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Inside(Vec<String>);

impl Inside {
    pub(crate) fn limits(&self) -> Vec<Dimension> {
        self.0.iter().filter_map(|name| Dimension::new(name).ok()).collect()
    }
}

pub(crate) fn dimension(name: &str) -> Result<Dimension, Failure> {
    Dimension::new(name).map_err(Failure::argument)
}

/// A time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ms(pub(crate) Duration);

impl<'de> Deserialize<'de> for Ms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        let wrong = |_| D::Error::custom(format!("{ms} ms: a time must be zero or more"));
        Duration::try_from_secs_f64(ms / 1e3).map(Self).map_err(wrong)
    }
}

pub(crate) fn time(ms: Option<Ms>) -> Option<Duration> {
    ms.map(|Ms(time)| time)
}

/// A vendor's reply, as the caller passed it; its body comes apart.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: Vec<(String, String)>,
}

/// A reply with its body, if that was read.
pub(crate) struct OwnReply {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl OwnReply {
    pub(crate) fn new(head: Head, body: Option<Vec<u8>>) -> Self {
        Self { status: head.status, headers: headers(head.headers), body }
    }

    pub(crate) fn as_reply(&self) -> Reply<'_, Vec<(String, Vec<u8>)>> {
        let reply = Reply::new(self.status, &self.headers);
        match &self.body {
            Some(body) => reply.with_body(body),
            None => reply,
        }
    }
}

pub(crate) fn headers(pairs: Vec<(String, String)>) -> Vec<(String, Vec<u8>)> {
    pairs.into_iter().map(|(name, value)| (name, value.into_bytes())).collect()
}
