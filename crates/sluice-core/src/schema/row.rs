//! A row as it was read, whichever client wrote it: its attributes, and what is wrong with one.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::amount::Amount;
use crate::decimal::{self, DecimalError};
use crate::rate::Rate;
use crate::timestamp::Timestamp;

/// One attribute of a row, borrowed from whatever holds the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field<'a> {
    /// A string (S).
    Text(&'a str),
    /// A number (N), as text.
    Number(&'a str),
    /// Any other type.
    Other,
}

/// A row as it was read. Implemented for what the AWS SDK returns, and for plain maps in tests.
pub trait Row {
    /// The attribute `name`, or `None` if the row does not have it.
    fn field(&self, name: &str) -> Option<Field<'_>>;

    /// Calls `visit` for each entry of the map attribute `name`, with the entry's name and its attributes
    /// (`None` if the entry is not a map). Returns false if the attribute is not a map.
    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let _ = (name, visit);
        false
    }
}

/// What is wrong with an attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeFault {
    /// The row does not have the attribute.
    #[error("is missing")]
    Missing,
    /// The attribute has another type than the schema says.
    #[error("is not a {expected}")]
    WrongType {
        /// `number (N)`, `string (S)` or `map (M)`.
        expected: &'static str,
    },
    /// The row is for later versions of Sluice.
    #[error("is {needs}, and this version of Sluice knows {knows} at most")]
    TooNew {
        /// The protocol that the row requires.
        needs: i64,
        /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION).
        knows: i64,
    },
    /// The attribute has the right type, but its value makes no sense.
    #[error("is {text:?}: {reason}")]
    BadValue {
        /// The value as read.
        text: String,
        /// What is wrong with the value.
        reason: String,
    },
}

/// A row that cannot be read: the attribute, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute {attribute:?} {fault}")]
pub struct RowError {
    /// The attribute's name.
    pub attribute: &'static str,
    /// What is wrong with the attribute.
    pub fault: AttributeFault,
}

impl RowError {
    /// What to do about the row of a bucket that cannot be read.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self.fault {
            AttributeFault::TooNew { .. } => {
                "update this program: the table requires a later version (docs/reconciler.md, \"Versions\")"
            }
            _ => {
                "repair the attribute, or, if a full bucket does no harm, remove the bucket with `sluice buckets rm` and apply it again"
            }
        }
    }

    pub(crate) fn bad(attribute: &'static str, text: &str, reason: impl fmt::Display) -> Self {
        Self {
            attribute,
            fault: AttributeFault::BadValue { text: String::from(text), reason: alloc::format!("{reason}") },
        }
    }
}

/// A value read from the table. Its text is kept if parsing lost digits: a condition that compares for
/// equality must send back exactly what was read, whichever client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact<T> {
    value: T,
    text: Option<Box<str>>,
}

impl<T: Copy> Exact<T> {
    /// A value that this process made: its own text is exact.
    pub const fn new(value: T) -> Self {
        Self { value, text: None }
    }

    fn read(value: T, exact: bool, text: &str) -> Self {
        Self { value, text: (!exact).then(|| Box::from(text)) }
    }

    /// A number that is out of range: its text, and `value` to stand for it.
    pub(crate) fn unread(row: &impl Row, attribute: &'static str, value: T) -> Result<Self, RowError> {
        Ok(Self::read(value, false, number(row, attribute)?))
    }

    /// The value, rounded down.
    pub const fn get(&self) -> T {
        self.value
    }
}

impl<T: fmt::Display> fmt::Display for Exact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => self.value.fmt(f),
        }
    }
}

pub(crate) fn text<'a>(row: &'a (impl Row + ?Sized), attribute: &'static str) -> Result<&'a str, RowError> {
    match row.field(attribute) {
        Some(Field::Text(text)) => Ok(text),
        Some(_) => Err(RowError { attribute, fault: AttributeFault::WrongType { expected: "string (S)" } }),
        None => Err(RowError { attribute, fault: AttributeFault::Missing }),
    }
}

pub(crate) fn number<'a>(row: &'a (impl Row + ?Sized), attribute: &'static str) -> Result<&'a str, RowError> {
    match row.field(attribute) {
        Some(Field::Number(text)) => Ok(text),
        Some(_) => Err(RowError { attribute, fault: AttributeFault::WrongType { expected: "number (N)" } }),
        None => Err(RowError { attribute, fault: AttributeFault::Missing }),
    }
}

fn parsed<T>(
    row: &(impl Row + ?Sized),
    attribute: &'static str,
    parse: impl Fn(&str) -> Result<T, DecimalError>,
) -> Result<T, RowError> {
    let text = number(row, attribute)?;
    parse(text).map_err(|e| RowError::bad(attribute, text, e))
}

pub(crate) fn amount(row: &(impl Row + ?Sized), attribute: &'static str) -> Result<Exact<Amount>, RowError> {
    parsed(row, attribute, |text| Amount::parse(text).map(|(value, exact)| Exact::read(value, exact, text)))
}

pub(crate) fn rate(row: &(impl Row + ?Sized), attribute: &'static str) -> Result<Exact<Rate>, RowError> {
    parsed(row, attribute, |text| Rate::parse(text).map(|(value, exact)| Exact::read(value, exact, text)))
}

pub(crate) fn timestamp(
    row: &(impl Row + ?Sized),
    attribute: &'static str,
) -> Result<Exact<Timestamp>, RowError> {
    parsed(row, attribute, |text| {
        Timestamp::parse(text).map(|(value, exact)| Exact::read(value, exact, text))
    })
}

pub(crate) fn count(row: &(impl Row + ?Sized), attribute: &'static str) -> Result<i64, RowError> {
    parsed(row, attribute, |text| decimal::parse(text, 0).map(|scaled| scaled.value))
}

pub(crate) fn optional<T>(
    row: &impl Row,
    attribute: &'static str,
    read: impl Fn() -> Result<T, RowError>,
) -> Result<Option<T>, RowError> {
    row.field(attribute).map(|_| read()).transpose()
}
