//! The TOML file that declares buckets. Every fault is reported at once, in the order of the file, with line,
//! value and what is accepted, before anything is applied.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use sluice_core::{Amount, Dimension, OnLowerLimit, Split};
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
#[cfg(test)]
mod tests;

use declared::Declared;
use place::{Faulty, Place, TWO_BRACKETS};

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
        let text = std::fs::read_to_string(path).map_err(|error| Failure::new(unread(&name, &error)))?;
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
            let declared = Declared::read(&place, bucket, at);
            // A fault is noted; the other buckets are read all the same.
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

    /// Adds a bucket whose fields make sense together. All that is wrong with it is noted.
    fn add(&mut self, place: &Place<'_>, declared: &Declared) -> Result<(), Faulty> {
        if !place.is_toml() {
            return Ok(());
        }
        let dimension = self.new_dimension(place, declared);
        let limit = limit::limit(place, declared);
        let at_least = floor::floor(place, declared, limit);
        let split = shares::split(place, declared, limit);
        let (dimension, at_least, split) = (dimension?, at_least?, split?);
        if let Some(at_least) = at_least {
            self.adopting.insert(dimension.clone(), at_least);
        }
        self.limits.push((dimension, split));
        Ok(())
    }

    /// The name of the bucket, which no bucket before it has.
    fn new_dimension(&mut self, place: &Place<'_>, declared: &Declared) -> Result<Dimension, Faulty> {
        let dimension = declared.dimension.get()?.ok_or(Faulty)?;
        if let Some(first) = self.lines.get(&dimension.value) {
            return Err(place.fault(dimension, format_args!("declared twice, first in line {first}")));
        }
        self.lines.insert(dimension.value.clone(), place.line_of(dimension));
        Ok(dimension.value.clone())
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

/// Why the file cannot be read, and what to do.
fn unread(name: &str, error: &std::io::Error) -> String {
    use std::io::ErrorKind::{InvalidData, IsADirectory, NotFound};
    match error.kind() {
        NotFound => format!(
            "{name}: there is no such file; name the file that declares the buckets, or write one with `sluice init`"
        ),
        IsADirectory => format!("{name}: this is a folder; name the file in it that declares the buckets"),
        InvalidData => format!("{name}: this is no text in UTF-8; save it as UTF-8"),
        _ => format!("{name}: it cannot be read: {error}"),
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
            ("bucket", DeValue::Table(_)) => format!("write {TWO_BRACKETS}"),
            // Of a file that is not TOML, the line above may be there, and unreadable.
            _ if !place.is_toml() => continue,
            (_, DeValue::Table(_) | DeValue::Array(_)) => {
                format!("{name} is nothing that a file of limits has: a bucket begins with [[bucket]]")
            }
            _ => format!("{name} is in no bucket: write [[bucket]] in a line above it"),
        };
        place.note(at, fault);
    }
    tables
}
