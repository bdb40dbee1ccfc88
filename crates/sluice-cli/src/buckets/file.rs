//! The TOML file that declares buckets. An invalid entry is reported with file, line, value and what is
//! accepted, before anything is applied.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use sluice_core::{Amount, Cost, Dimension, OnLowerLimit, Split};
use toml::{Spanned, Value};

use crate::failure::Failure;

// The fuzzer takes this file by its path, and looks beside it.
#[path = "file/counted.rs"]
pub(super) mod counted;
#[path = "file/floor.rs"]
mod floor;
#[path = "file/limit.rs"]
mod limit;
#[cfg(test)]
mod properties;
#[path = "file/shares.rs"]
mod shares;

/// Buckets that are declared and checked.
#[derive(Debug)]
pub(crate) struct BucketsFile {
    name: String,
    pub(crate) limits: Vec<(Dimension, Split)>,
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
    capacity: Option<Spanned<Value>>,
    limit: Option<Spanned<Value>>,
    window: Option<Spanned<String>>,
    refill_rate: Option<Spanned<Value>>,
    counts: Option<Spanned<String>>,
    arrival_jitter: Option<Spanned<String>>,
    cost_per_call: Option<Spanned<Value>>,
    #[serde(default)]
    adopt_lower_limit: bool,
    adopt_at_least: Option<Spanned<Value>>,
    #[serde(default)]
    shares: BTreeMap<Spanned<String>, Spanned<Value>>,
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
            let limit = limit::limit(&place, &declared)?;
            if let Some(at_least) = floor::floor(&place, &declared, &limit)? {
                adopting.insert(dimension.clone(), at_least);
            }
            limits.push((dimension, shares::split(&place, &declared, limit)?));
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

const WINDOW: &str = "it must be a time above 0, as in \"1m\" (a minute) or \"24h\"";

/// Reads a window. To humantime `M` is a month; somebody who writes `1M` means a minute, so it is not accepted.
fn span(window: &str) -> Option<Duration> {
    humantime::parse_duration(window).ok().filter(|_| !window.contains('M'))
}

/// Fails if the bucket (`written`) has no room for one call.
fn check_cost(
    place: &Place<'_>,
    declared: &Declared,
    (field, written): (&str, &Spanned<Value>),
    capacity: Amount,
    cost: Cost,
) -> Result<(), Failure> {
    if cost.amount() <= capacity {
        return Ok(());
    }
    Err(match &declared.cost_per_call {
        Some(cost) => {
            let reason = format!("it is above the capacity {capacity}, so no call could ever be granted");
            place.fault(cost, "cost_per_call", reason)
        }
        None => {
            place.fault(written, field, "it has no room for one call, which takes 1: state a cost_per_call below it")
        }
    })
}

/// Reads a number above 0.
fn amount(place: &Place<'_>, written: &Spanned<Value>, field: &str) -> Result<Amount, Failure> {
    let takes = "a number above 0";
    let amount: Amount = number(place, written, field, takes)?;
    if amount > Amount::ZERO { Ok(amount) } else { Err(place.fault(written, field, format!("it must be {takes}"))) }
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
        assert_eq!(file.limits[1].1.whole().cost_per_call().to_string(), "1000");
        assert_eq!(file.limits[0].1.whole().refill_rate().to_string(), "8.333333333333");
    }

    /// The first block is a whole file.
    #[test]
    fn the_example_of_the_documentation_is_a_file() {
        let page = include_str!("../../../../docs/buckets.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let file = BucketsFile::parse("buckets.md", example).unwrap();
        let limits: Vec<_> =
            file.limits.iter().map(|(name, limit)| format!("{name} {}", limit.whole().capacity())).collect();
        assert_eq!(limits, ["openai#rpm 10", "acme#rpm 3", "openai#tpm 30000", "elevenlabs#concurrent 5"]);
    }

    /// For each fault: the text under `[[bucket]]`, its position, and what the message says is accepted.
    const FAULTS: [(&str, &str, &str); 17] = [
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
        ("dimension = \"a#b\"\ntype = \"concurrent\"", "limits.toml:2: dimension = a#b", "no capacity"),
        ("dimension = \"a#b\"\ntype = \"requests\"", "limits.toml:2: dimension = a#b", "no capacity"),
        (
            "dimension = \"a#b\"\ntype = \"tokens\"\ncapacity = 0.5\nwindow = \"1m\"",
            "limits.toml:4: capacity = 0.5",
            "one call",
        ),
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
