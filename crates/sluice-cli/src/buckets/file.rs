//! The TOML file that declares buckets. Every fault is reported at once, in the order of the file, with line,
//! value and what is accepted, before anything is applied.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use sluice_core::{Amount, Cost, Dimension, OnLowerLimit, Split};
use toml::de::{DeTable, DeValue};

use crate::failure::Failure;

// The fuzzer takes this file by its path, and looks beside it.
#[path = "file/counted.rs"]
pub(super) mod counted;
#[path = "file/declared.rs"]
mod declared;
#[path = "file/floor.rs"]
mod floor;
#[path = "file/limit.rs"]
mod limit;
#[path = "file/place.rs"]
mod place;
#[cfg(test)]
mod properties;
#[path = "file/shares.rs"]
mod shares;

use declared::Declared;
use place::{Faulty, Field, Place};

/// Buckets that are declared and checked.
#[derive(Debug)]
pub(crate) struct BucketsFile {
    name: String,
    pub(crate) limits: Vec<(Dimension, Split)>,
    /// Buckets that adopt a lower limit if their vendor reports one, with the least limit that they adopt.
    adopting: BTreeMap<Dimension, Amount>,
    lines: BTreeMap<Dimension, usize>,
}

impl BucketsFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Failure::new(format!("{name}: {error}")))?;
        Self::parse(&name, &text)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let place = Place::new(name, text);
        let (document, errors) = DeTable::parse_recoverable(text);
        errors.iter().for_each(|error| place.note_syntax(error));
        let mut file = Self {
            name: name.to_owned(),
            limits: Vec::new(),
            adopting: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        for (at, bucket) in tables(&place, document.get_ref()) {
            // A fault is noted; the other buckets are read all the same.
            let Ok(declared) = Declared::read(&place, bucket, at) else { continue };
            let _: Result<(), Faulty> = file.add(&place, &declared);
        }
        match place.failure() {
            Some(failure) => Err(failure),
            None if file.limits.is_empty() => {
                Err(Failure::new(format!("{name}: it declares no bucket; a bucket begins with [[bucket]]")))
            }
            None => Ok(file),
        }
    }

    fn add(&mut self, place: &Place<'_>, declared: &Declared) -> Result<(), Faulty> {
        if !place.is_toml() {
            return Ok(());
        }
        let dimension = &declared.dimension;
        if let Some(first) = self.lines.get(&dimension.value) {
            return Err(place.fault(dimension, format_args!("declared twice, first in line {first}")));
        }
        self.lines.insert(dimension.value.clone(), place.line_of(dimension));
        let limit = limit::limit(place, declared)?;
        if let Some(at_least) = floor::floor(place, declared, &limit)? {
            self.adopting.insert(dimension.value.clone(), at_least);
        }
        self.limits.push((dimension.value.clone(), shares::split(place, declared, limit)?));
        Ok(())
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

/// The tables of all buckets, each with where it begins. What else the file has is noted as a fault.
fn tables<'a>(place: &Place<'_>, document: &'a DeTable<'a>) -> Vec<(usize, &'a DeTable<'a>)> {
    let mut tables = Vec::new();
    for (key, value) in document {
        let (at, name) = (key.span().start, key.get_ref());
        let fault = match (name.as_ref(), value.get_ref()) {
            ("bucket", DeValue::Array(buckets)) => {
                for bucket in buckets {
                    let at = bucket.span().start;
                    match bucket.get_ref() {
                        DeValue::Table(table) => tables.push((at, table)),
                        _ => _ = place.note(at, "write [[bucket]], and below it a line for each field"),
                    }
                }
                continue;
            }
            ("bucket", DeValue::Table(_)) => "write [[bucket]], with two brackets on each side".to_owned(),
            (_, DeValue::Table(_) | DeValue::Array(_)) => {
                format!("{name} is nothing that a file of limits has: a bucket begins with [[bucket]]")
            }
            _ => format!("{name} is in no bucket: write [[bucket]] in a line above it"),
        };
        place.note(at, fault);
    }
    tables
}

/// Fails if the bucket (`written`) has no room for one call.
fn check_cost(
    place: &Place<'_>,
    declared: &Declared,
    written: &Field<Amount>,
    capacity: Amount,
    cost: Cost,
) -> Result<(), Faulty> {
    if cost.amount() <= capacity {
        return Ok(());
    }
    Err(match &declared.cost_per_call {
        Some(cost) => place.fault(
            cost,
            format_args!("it is above the capacity {capacity}, so no call could ever be granted"),
        ),
        None => {
            place.fault(written, "it has no room for one call, which takes 1: state a cost_per_call below it")
        }
    })
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
            "limits.toml:2: dimension = \"lease#x\"",
            "reserved",
        ),
        (
            "dimension = \"a#b\"\ntype = \"request\"\ncapacity = 1",
            "limits.toml:3: type = \"request\"",
            "\"requests\"",
        ),
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
            "limits.toml:5: window = \"0s\"",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1M\"",
            "limits.toml:5: window = \"1M\"",
            "\"1m\" (a minute)",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nrefill_rate = -1",
            "limits.toml:5: refill_rate = -1",
            "above 0",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1m\"\nrefill_rate = 1",
            "limits.toml:5: window = \"1m\"",
            "not both",
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5",
            "limits.toml:2: dimension = \"a#b\"",
            "window = \"1m\"",
        ),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 5\nwindow = \"1m\"",
            "limits.toml:5: window = \"1m\"",
            "no window",
        ),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2.5",
            "limits.toml:4: capacity = 2.5",
            "whole number",
        ),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost_per_call = 3",
            "limits.toml:5: cost_per_call = 3",
            "capacity 2",
        ),
        ("dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost = 3", "limits.toml:5:", "cost"),
        ("dimension = \"a#b\"\ntype = \"concurrent\"", "limits.toml:2: dimension = \"a#b\"", "no capacity"),
        ("dimension = \"a#b\"\ntype = \"requests\"", "limits.toml:2: dimension = \"a#b\"", "no capacity"),
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
            fault(&format!("{one}{one}"))
                .contains("limits.toml:6: dimension = \"a#b\": declared twice, first in line 2")
        );
    }

    /// A file with a mistake in nearly every line, each of which once took a run of its own.
    #[test]
    fn all_faults_are_told_at_once_in_the_order_of_the_file() {
        let text = r#"window = "1m"

[[bucket]]
dimension = "openai"
type = "request"
capacity = "9"
windw = "1m"

[[bucket]]
type = "concurrent"
capacity = 2.5
window = "1m"

[[bucket]]
dimension = "acme#rpm"
type = "requests"
capacity = 0.5
window = "60 parsecs"

[[buckets]]
dimension = "acme#tpm"

[[bucket]]
dimension = "acme#tpm"
type = "tokens"
capacity = 5
"#;
        let said = fault(text);
        let places: Vec<_> = said.lines().map(|line| line.split(':').nth(1).unwrap()).collect();
        assert_eq!(places, ["1", "4", "5", "6", "7", "9", "18", "20", "24"], "{said}");
        for part in [
            "1: window is in no bucket: write [[bucket]]",
            "4: dimension = \"openai\": ",
            "6: capacity = \"9\": it must be a number above 0",
            "7: windw: a bucket has no such field; it has dimension, type, capacity, limit, window",
            "9: this bucket has no dimension: add dimension = \"openai#rpm\"",
            "18: window = \"60 parsecs\": it must be a time above 0, as in \"60s\"",
            "20: buckets is nothing that a file of limits has: a bucket begins with [[bucket]]",
        ] {
            assert!(said.contains(part), "{part}\n-> {said}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_as_it_should_be_written() {
        let text = "[[bucket]]\ndimension = openai#rpm\ntype = requests\ncapacity = 5\nwindow = 60s\nrefill_rate = -1\n";
        let said = fault(text);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "limits.toml:2: dimension = openai#rpm: write it in quotes: dimension = \"openai#rpm\"",
                "limits.toml:3: type = requests: write it in quotes: type = \"requests\"",
                "limits.toml:5: window = 60s: write it in quotes: window = \"60s\"",
                "limits.toml:6: refill_rate = -1: it must be a number of tokens a second, above 0",
            ]
        );
        assert!(
            fault("[bucket]\ndimension = \"a#b\"")
                .starts_with("limits.toml:1: write [[bucket]], with two brackets")
        );
        assert!(fault("bucket = 5").starts_with("limits.toml:1: bucket is in no bucket"));
    }
}
