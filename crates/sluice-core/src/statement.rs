//! Conditional writes as plain values: what a plan returns, and all that the SDK has to translate.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::schema::{INLINE_ENDS, KEY, USED_NOW};

/// The fixed part of a write: expressions, and the attribute names behind their `#` placeholders. Every name
/// has a placeholder, so that DynamoDB's reserved words never matter. Nearly all statements are constants in
/// the source; a statement that changes inline leases is built for the leases in it.
///
/// A placeholder is the name of its attribute, or of what its value is: `:now`, `:read_version` (as it was
/// read), `:anchor` (as the write leaves it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The update expression; empty for puts and deletes.
    pub update: Cow<'static, str>,
    /// The condition that carries the safety of the write.
    pub condition: Cow<'static, str>,
    /// The attributes behind the `#` placeholders.
    pub names: AttributeNames,
}

/// The attributes in an expression. Each is used at least once: DynamoDB rejects unused ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeNames {
    pub(crate) attributes: Cow<'static, [&'static str]>,
    /// Entries of maps, by their placeholders: the ids of inline leases, a caller.
    pub(crate) leases: Vec<(&'static str, String)>,
}

impl AttributeNames {
    /// These attributes.
    #[must_use]
    pub const fn of(attributes: &'static [&'static str]) -> Self {
        Self { attributes: Cow::Borrowed(attributes), leases: Vec::new() }
    }

    /// Each placeholder with its name.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str)> {
        let attributes = self.attributes.iter().map(|name| (placeholder(name), *name));
        attributes.chain(self.leases.iter().map(|(placeholder, id)| ((*placeholder).to_string(), id.as_str())))
    }

    /// The name behind a placeholder.
    #[must_use]
    pub fn get(&self, placeholder: &str) -> Option<&str> {
        self.iter().find(|(other, _)| other == placeholder).map(|(_, name)| name)
    }
}

/// The placeholder of an attribute: its name, unless the name does not say what the attribute is.
fn placeholder(attribute: &str) -> String {
    match attribute {
        KEY => String::from("#key"),
        INLINE_ENDS => String::from("#ends"),
        USED_NOW => String::from("#used_now"),
        name => ["#", name].concat(),
    }
}

impl Statement {
    /// A change: its update and its condition.
    pub(crate) const fn fixed(update: &'static str, condition: &'static str, names: &'static [&'static str]) -> Self {
        Self { update: Cow::Borrowed(update), condition: Cow::Borrowed(condition), names: AttributeNames::of(names) }
    }

    /// The condition of a put or a delete.
    pub(crate) const fn guard(condition: &'static str, names: &'static [&'static str]) -> Self {
        Self::fixed("", condition, names)
    }
}

/// A value that a write sends to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
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
pub enum Write {
    /// Changes a row.
    Update(Update),
    /// Creates a row.
    Put(Put),
    /// Removes a row.
    Delete(Delete),
}
