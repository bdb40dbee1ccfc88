//! The TOML file that declares buckets. An invalid entry is reported with file, line, value and what is
//! accepted, before anything is applied.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, OnLowerLimit, Rate};
use toml::{Spanned, Value};

use crate::failure::Failure;

// The fuzzer takes this file by its path, and looks beside it.
#[path = "file/floor.rs"]
mod floor;
#[cfg(test)]
mod properties;

/// Buckets that are declared and checked.
#[derive(Debug)]
pub(crate) struct BucketsFile {
    name: String,
    pub(crate) limits: Vec<(Dimension, Limit)>,
    /// Buckets that adopt a lower limit if their vendor reports one, with the least limit that they adopt.
    adopting: BTreeMap<Dimension, Amount>,
    lines: BTreeMap<Dimension, usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    bucket: Vec<Spanned<Declared>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    dimension: Spanned<String>,
    #[serde(rename = "type")]
    limit_type: Spanned<String>,
    capacity: Spanned<Value>,
    window: Option<Spanned<String>>,
    refill_rate: Option<Spanned<Value>>,
    cost_per_call: Option<Spanned<Value>>,
    #[serde(default)]
    adopt_lower_limit: bool,
    adopt_at_least: Option<Spanned<Value>>,
}

/// The file, for messages with a line number.
struct Place<'a> {
    name: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn fault<T: fmt::Display>(&self, at: &Spanned<T>, field: &str, reason: impl fmt::Display) -> Failure {
        let line = self.line(at.span().start);
        Failure::new(format!("{}:{line}: {field} = {}: {reason}", self.name, at.as_ref()))
    }
}

impl BucketsFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Failure::new(format!("{name}: {error}")))?;
        Self::parse(&name, &text)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let place = Place { name, text };
        let document: Document = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| place.line(span.start));
            Failure::new(format!("{name}:{line}: {}", error.message()))
        })?;
        if document.bucket.is_empty() {
            return Err(Failure::new(format!("{name}: it declares no bucket; a bucket begins with [[bucket]]")));
        }
        let (mut limits, mut adopting) = (Vec::new(), BTreeMap::new());
        let mut lines = BTreeMap::new();
        for declared in document.bucket {
            let declared = declared.into_inner();
            let written = &declared.dimension;
            let dimension = Dimension::new(written.as_ref());
            let dimension = dimension.map_err(|error| {
                place.fault(
                    written,
                    "dimension",
                    format!("{}; use the form vendor#metric or vendor#model#metric", error.reason),
                )
            })?;
            let line = place.line(written.span().start);
            if let Some(first) = lines.insert(dimension.clone(), line) {
                return Err(place.fault(written, "dimension", format!("declared twice, first in line {first}")));
            }
            let limit = limit(&place, &declared)?;
            if let Some(at_least) = floor::floor(&place, &declared, &limit)? {
                adopting.insert(dimension.clone(), at_least);
            }
            limits.push((dimension, limit));
        }
        Ok(Self { name: name.to_owned(), limits, adopting, lines })
    }

    /// What the bucket does if its vendor reports a lower limit.
    pub(crate) fn on_lower_limit(&self, dimension: &Dimension) -> OnLowerLimit {
        match self.adopting.get(dimension) {
            Some(at_least) => OnLowerLimit::Adopt { at_least: *at_least },
            None => OnLowerLimit::Report,
        }
    }

    pub(crate) fn at(&self, dimension: &Dimension, error: impl fmt::Display) -> Failure {
        let line = self.lines.get(dimension).copied().unwrap_or(1);
        Failure::new(format!("{}:{line}: {error}", self.name))
    }
}

fn limit(place: &Place<'_>, declared: &Declared) -> Result<Limit, Failure> {
    let written = &declared.limit_type;
    let limit_type: LimitType = written
        .as_ref()
        .parse()
        .map_err(|_| place.fault(written, "type", "it must be \"requests\", \"tokens\" or \"concurrent\""))?;
    let capacity: Amount = number(place, &declared.capacity, "capacity", "a number above 0")?;
    if capacity <= Amount::ZERO {
        return Err(place.fault(&declared.capacity, "capacity", "it must be a number above 0"));
    }
    let cost: Cost = match &declared.cost_per_call {
        Some(written) => number(place, written, "cost_per_call", "a number above 0")?,
        None => Cost::ONE,
    };
    if cost.amount() > capacity {
        let written = declared.cost_per_call.as_ref().unwrap_or(&declared.capacity);
        return Err(place.fault(
            written,
            "cost_per_call",
            format!("it is above the capacity {capacity}, so no call could ever be granted"),
        ));
    }
    let made = if limit_type == LimitType::Concurrent {
        check_concurrent(place, declared, capacity)?;
        Limit::concurrent(capacity, cost)
    } else {
        Limit::rate(limit_type, capacity, rate(place, declared, capacity)?, cost)
    };
    made.map_err(|error| place.fault(&declared.capacity, "capacity", error))
}

fn check_concurrent(place: &Place<'_>, declared: &Declared, capacity: Amount) -> Result<(), Failure> {
    let reason =
        "leave it out: a concurrent limit has no window and no refill_rate, because slots come back by release";
    if let Some(window) = &declared.window {
        return Err(place.fault(window, "window", reason));
    }
    if let Some(rate) = &declared.refill_rate {
        return Err(place.fault(rate, "refill_rate", reason));
    }
    if !capacity.is_whole() {
        return Err(place.fault(&declared.capacity, "capacity", "it must be a whole number of slots"));
    }
    Ok(())
}

fn rate(place: &Place<'_>, declared: &Declared, capacity: Amount) -> Result<Rate, Failure> {
    match (&declared.window, &declared.refill_rate) {
        (Some(window), None) => {
            let takes = "it must be a time above 0, as in \"1m\" (a minute) or \"24h\"";
            let rate = span(window.as_ref()).and_then(|span| Rate::per(capacity, span)).filter(|rate| !rate.is_zero());
            rate.ok_or_else(|| place.fault(window, "window", takes))
        }
        (None, Some(written)) => {
            let rate: Rate = number(place, written, "refill_rate", "a number of tokens a second, above 0")?;
            if rate.is_zero() {
                return Err(place.fault(written, "refill_rate", "it must be a number of tokens a second, above 0"));
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

/// Reads a window. To humantime `M` is a month; somebody who writes `1M` means a minute, so it is not accepted.
fn span(window: &str) -> Option<Duration> {
    humantime::parse_duration(window).ok().filter(|_| !window.contains('M'))
}

/// Reads an integer or a float from its text, so that no digit is lost.
fn number<T: std::str::FromStr>(
    place: &Place<'_>,
    written: &Spanned<Value>,
    field: &str,
    takes: &str,
) -> Result<T, Failure> {
    let text = match written.as_ref() {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => return Err(place.fault(written, field, format!("it must be {takes}"))),
    };
    text.parse().map_err(|_| place.fault(written, field, format!("it must be {takes}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        BucketsFile::parse("limits.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn the_sample_is_what_it_says() {
        let file = BucketsFile::parse("sample.toml", include_str!("sample.toml")).unwrap();
        assert_eq!(file.limits.len(), 4);
        assert_eq!(file.limits[1].1.cost_per_call().to_string(), "1000");
        assert_eq!(file.limits[0].1.refill_rate().to_string(), "8.333333333333");
    }

    /// For each fault: the text under `[[bucket]]`, its position, and what the message says is accepted.
    const FAULTS: [(&str, &str, &str); 15] = [
        (
            "dimension = \"lease#x\"\ntype = \"requests\"\ncapacity = 1",
            "limits.toml:2: dimension = lease#x",
            "reserved",
        ),
        ("dimension = \"a#b\"\ntype = \"request\"\ncapacity = 1", "limits.toml:3: type = request", "\"requests\""),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = -5\nwindow = \"1m\"",
            "limits.toml:4: capacity = -5",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = nan\nwindow = \"1m\"",
            "limits.toml:4: capacity = nan",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = \"9\"\nwindow = \"1m\"",
            "limits.toml:4: capacity = \"9\"",
            "number",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"0s\"",
            "limits.toml:5: window = 0s",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1M\"",
            "limits.toml:5: window = 1M",
            "\"1m\" (a minute)",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nrefill_rate = -1",
            "limits.toml:5: refill_rate = -1",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1m\"\nrefill_rate = 1",
            "limits.toml:5: window = 1m",
            "not both",
        ),
        ("dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5", "limits.toml:2: dimension = a#b", "window = \"1m\""),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 5\nwindow = \"1m\"",
            "limits.toml:5: window = 1m",
            "no window",
        ),
        ("dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2.5", "limits.toml:4: capacity = 2.5", "whole number"),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost_per_call = 3",
            "limits.toml:5: cost_per_call = 3",
            "capacity 2",
        ),
        ("dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost = 3", "limits.toml:5:", "cost"),
        ("dimension = \"a#b\"\ntype = \"concurrent\"", "limits.toml:1:", "capacity"),
    ];

    #[test]
    fn a_fault_names_file_line_value_and_what_is_taken() {
        for (body, place, takes) in FAULTS {
            let error = fault(&format!("[[bucket]]\n{body}\n"));
            assert!(error.contains(place) && error.contains(takes), "{body}\n-> {error}");
        }
        assert!(fault("").contains("no bucket"));
        let one = "[[bucket]]\ndimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\n";
        assert!(
            fault(&format!("{one}{one}")).contains("limits.toml:6: dimension = a#b: declared twice, first in line 2")
        );
    }
}
