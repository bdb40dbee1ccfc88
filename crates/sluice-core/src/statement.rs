//! Conditional writes as plain values: what a plan returns, and all that the SDK has to translate.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The fixed part of a write: expressions, and the attribute names behind their `#` placeholders. Every name
/// has a placeholder, so that DynamoDB's reserved words never matter. Nearly all statements are constants in
/// the source; a statement that changes inline leases is built for the leases in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The update expression; empty for puts and deletes.
    pub update: Cow<'static, str>,
    /// The condition that carries the safety of the write.
    pub condition: Cow<'static, str>,
    /// The names behind the placeholders.
    pub names: Names,
}

/// Placeholders and attribute names. Each is used at least once: DynamoDB rejects unused ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    fixed: &'static [(&'static str, &'static str)],
    made: Vec<(&'static str, Cow<'static, str>)>,
}

impl Names {
    /// Names that are known only when the write is made, such as the ids of leases.
    pub(crate) const fn made(made: Vec<(&'static str, Cow<'static, str>)>) -> Self {
        Self { fixed: &[], made }
    }

    /// Each placeholder with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let made = self.made.iter().map(|(placeholder, name)| (*placeholder, name.as_ref()));
        self.fixed.iter().copied().chain(made)
    }

    /// The name behind a placeholder.
    #[must_use]
    pub fn get(&self, placeholder: &str) -> Option<&str> {
        self.iter().find(|(short, _)| *short == placeholder).map(|(_, name)| name)
    }
}

impl Statement {
    /// A change: its update and its condition.
    pub(crate) const fn fixed(
        update: &'static str,
        condition: &'static str,
        names: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            update: Cow::Borrowed(update),
            condition: Cow::Borrowed(condition),
            names: Names { fixed: names, made: Vec::new() },
        }
    }

    /// The condition of a put or a delete.
    pub(crate) const fn guard(condition: &'static str, names: &'static [(&'static str, &'static str)]) -> Self {
        Self::fixed("", condition, names)
    }
}

/// A value that a write sends to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operand {
    /// A string (S).
    Text(String),
    /// A number (N).
    Number(String),
    /// A map (M): each name with its value.
    Map(Box<[(Cow<'static, str>, Self)]>),
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
    /// The expressions of the update.
    pub statement: Cow<'static, Statement>,
    /// Values by placeholder.
    pub values: Vec<(&'static str, Operand)>,
}

/// `PutItem`, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The attributes of the new row, key included.
    pub item: Vec<(&'static str, Operand)>,
    /// The condition of the put.
    pub statement: &'static Statement,
}

/// `DeleteItem`, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Partition key of the row.
    pub key: String,
    /// The condition of the delete.
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
    /// Creates a row.
    Put(Put),
    /// Removes a row.
    Delete(Delete),
}
