//! Rows with any attributes, and rows that were good before something happened to one attribute.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::schema::{Field, LINE_ANCHOR, LINE_CAPACITY, LINE_RATE, LINE_TOKENS, Row};
use sluice_core::{Operand, Put};

/// An attribute's value of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(String),
    Map(BTreeMap<String, Self>),
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item(pub(crate) BTreeMap<&'static str, Value>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            Value::Text(text) => Field::Text(text),
            Value::Number(text) => Field::Number(text),
            Value::Map(_) | Value::Other => Field::Other,
        })
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(Value::Map(entries)) = self.0.get(name) else { return false };
        for (name, value) in entries {
            match value {
                Value::Map(entry) => visit(name, Some(&Entry(entry))),
                _ => visit(name, None),
            }
        }
        true
    }
}

/// An entry of a map, itself a map.
struct Entry<'a>(&'a BTreeMap<String, Value>);

impl Row for Entry<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            Value::Text(text) => Field::Text(text),
            Value::Number(text) => Field::Number(text),
            Value::Map(_) | Value::Other => Field::Other,
        })
    }
}

impl Item {
    /// The row that a write makes.
    pub(crate) fn made_by(put: Put) -> Self {
        let value = |operand| match operand {
            Operand::Text(text) => Value::Text(text),
            Operand::Number(text) => Value::Number(text),
            other => panic!("core has no operand {other:?}"),
        };
        Self(put.item.into_iter().map(|(name, operand)| (name, value(operand))).collect())
    }

    /// The text of a number attribute.
    pub(crate) fn number(&self, name: &str) -> &str {
        match self.field(name) {
            Some(Field::Number(text)) => text,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// The same row after `change` happened to the attribute.
    pub(crate) fn with(mut self, name: &'static str, change: Option<Value>) -> Self {
        match change {
            Some(value) => self.0.insert(name, value),
            None => self.0.remove(name),
        };
        self
    }
}

/// Numbers as clients write them, with whatever decimals, and what only looks like one.
pub(crate) fn number_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "-?[0-9]{1,9}",
        4 => "-?[0-9]{1,9}\\.[0-9]{1,15}",
        2 => "[0-9]{1,4}[eE][+-]?[0-9]{1,3}",
        1 => Just(i64::MAX.to_string()),
        1 => Just(i64::MIN.to_string()),
        1 => "[-+0-9eE.]{0,30}",
        1 => "\\PC{0,10}",
    ]
}

/// What can happen to an attribute: gone, of another type, another value.
pub(crate) fn change() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Value::Other)),
        2 => "\\PC{0,20}".prop_map(|text| Some(Value::Text(text))),
        6 => number_text().prop_map(|text| Some(Value::Number(text))),
        2 => leases().prop_map(|leases| Some(Value::Map(leases))),
        2 => shares().prop_map(|shares| Some(Value::Map(shares))),
    ]
}

/// What a map of inline leases may be found to be.
fn leases() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let part = prop_oneof![
        4 => number_text().prop_map(Value::Number),
        2 => "[1-9]".prop_map(Value::Number),
        1 => "\\PC{0,5}".prop_map(Value::Text),
        1 => Just(Value::Other),
    ];
    let entry = prop_oneof![
        6 => prop::collection::btree_map("[ct]", part.clone(), 0..3).prop_map(Value::Map),
        1 => part,
    ];
    prop::collection::btree_map("\\PC{0,8}", entry, 0..6)
}

/// What a map of shares may be found to be: most have all that a line needs.
pub(crate) fn shares() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let number = || {
        prop_oneof![
            6 => "[1-9][0-9]{0,5}(\\.[0-9]{1,9})?",
            1 => number_text(),
        ]
    };
    let needed = (number(), number(), number(), number()).prop_map(|(capacity, tokens, rate, anchor)| {
        let of = |name: &str, text| (name.to_owned(), Value::Number(text));
        BTreeMap::from([
            of(LINE_CAPACITY, capacity),
            of(LINE_TOKENS, tokens),
            of(LINE_RATE, rate),
            of(LINE_ANCHOR, anchor),
        ])
    });
    let optional = prop_oneof![
        8 => number().prop_map(Value::Number),
        1 => Just(Value::Other),
    ];
    let optional = prop::collection::btree_map("[tacrfbxlunp]", optional, 0..4);
    let entry = prop_oneof![
        8 => (needed, optional).prop_map(|(mut line, optional)| {
            line.extend(optional);
            Value::Map(line)
        }),
        1 => number().prop_map(Value::Number),
    ];
    let name = prop_oneof![8 => "[a-z]{1,4}", 1 => "\\PC{0,8}"];
    prop::collection::btree_map(name, entry, 0..4)
}

/// Any attributes out of `names`, with any values.
pub(crate) fn any_row(names: &'static [&'static str]) -> impl Strategy<Value = Item> {
    prop::collection::vec((prop::sample::select(names), change()), 0..names.len() * 2).prop_map(|changes| {
        changes.into_iter().fold(Item(BTreeMap::new()), |row, (name, to)| row.with(name, to))
    })
}
