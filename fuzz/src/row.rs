//! A row of the table as a fuzzer can write it: a line for each attribute.

use std::collections::BTreeMap;

use sluice_core::schema::{Field, Row};
use sluice_core::{Operand, Put};

/// A row. As text, each line is `name type value`: `tokens N 46.5`, `caller S audit-service`, `drift M`. A
/// name with slashes in it leads into a map: `leases/a3f8/c N 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item(BTreeMap<String, Attribute>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Attribute {
    Text(String),
    Number(String),
    Map(BTreeMap<String, Self>),
    Other,
}

impl Attribute {
    fn field(&self) -> Field<'_> {
        match self {
            Self::Text(text) => Field::Text(text),
            Self::Number(text) => Field::Number(text),
            Self::Map(_) | Self::Other => Field::Other,
        }
    }

    /// Puts `value` at the end of a path; what stands in the way of it goes.
    fn put(entries: &mut BTreeMap<String, Self>, path: &str, value: Self) {
        let Some((name, rest)) = path.split_once('/') else {
            entries.insert(path.to_owned(), value);
            return;
        };
        let entry = entries.entry(name.to_owned()).or_insert(Self::Other);
        if !matches!(entry, Self::Map(_)) {
            *entry = Self::Map(BTreeMap::new());
        }
        if let Self::Map(entries) = entry {
            Self::put(entries, rest, value);
        }
    }
}

impl Item {
    /// Reads a row; lines that are none are left out, and of two with one name the last counts.
    pub fn parse(text: &str) -> Self {
        let attribute = |line: &str| {
            let (name, rest) = line.split_once(' ')?;
            let (kind, value) = rest.split_once(' ').unwrap_or((rest, ""));
            let attribute = match kind {
                "S" => Attribute::Text(value.to_owned()),
                "N" => Attribute::Number(value.to_owned()),
                _ => Attribute::Other,
            };
            Some((name.to_owned(), attribute))
        };
        let mut row = BTreeMap::new();
        for (path, value) in text.split('\n').filter_map(attribute) {
            Attribute::put(&mut row, &path, value);
        }
        Self(row)
    }

    /// The row that a write makes.
    pub fn made_by(put: Put) -> Self {
        let attribute = |operand| match operand {
            Operand::Text(text) => Attribute::Text(text),
            Operand::Number(text) => Attribute::Number(text),
            other => panic!("core has no operand {other:?}"),
        };
        Self(put.item.into_iter().map(|(name, value)| (name.to_owned(), attribute(value))).collect())
    }

    /// The same row with one text attribute more, or another.
    #[must_use]
    pub fn with_text(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), Attribute::Text(value.to_owned()));
        self
    }

    /// The text of a number attribute.
    pub fn number(&self, name: &str) -> Option<&str> {
        match self.field(name) {
            Some(Field::Number(text)) => Some(text),
            _ => None,
        }
    }

    /// The text of a string attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.field(name) {
            Some(Field::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(Attribute::field)
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(Attribute::Map(entries)) = self.0.get(name) else { return false };
        for (name, value) in entries {
            match value {
                Attribute::Map(entry) => visit(name, Some(&Entry(entry))),
                _ => visit(name, None),
            }
        }
        true
    }
}

/// An entry of a map, itself a map.
struct Entry<'a>(&'a BTreeMap<String, Attribute>);

impl Row for Entry<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(Attribute::field)
    }
}
