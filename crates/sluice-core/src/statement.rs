//! Conditional writes as plain values. What a plan returns, and all that the SDK has to translate.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The fixed part of a write: expressions, and the attribute names behind their `#` placeholders (every name has one, so that
/// no reserved word of DynamoDB can ever matter).
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// The update expression; empty for puts and deletes.
    pub update: &'static str,
    /// The condition that carries the safety of the write.
    pub condition: &'static str,
    /// Placeholder and attribute name, each used at least once: DynamoDB refuses unused ones.
    pub names: &'static [(&'static str, &'static str)],
}

/// A value on its way to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operand {
    /// A string (S).
    Text(String),
    /// A number (N).
    Number(String),
}

impl Operand {
    pub(crate) fn number(value: impl fmt::Display) -> Self {
        Self::Number(value.to_string())
    }

    pub(crate) fn text(value: impl fmt::Display) -> Self {
        Self::Text(value.to_string())
    }
}

/// Values by placeholder.
pub(crate) type Values = Vec<(&'static str, Operand)>;

/// `UpdateItem`, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Partition key of the row.
    pub key: String,
    /// Its expressions.
    pub statement: &'static Statement,
    /// Values by placeholder.
    pub values: Vec<(&'static str, Operand)>,
}

/// `PutItem`, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The attributes of the new row, key included.
    pub item: Vec<(&'static str, Operand)>,
    /// Its condition.
    pub statement: &'static Statement,
}

/// `DeleteItem`, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Partition key of the row.
    pub key: String,
    /// Its condition.
    pub statement: &'static Statement,
    /// Values by placeholder.
    pub values: Vec<(&'static str, Operand)>,
}

/// One conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// Changes a row.
    Update(Update),
    /// Makes a row.
    Put(Put),
    /// Removes a row.
    Delete(Delete),
}
