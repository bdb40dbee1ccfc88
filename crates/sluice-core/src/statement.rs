//! Conditional writes as plain values: what a plan returns, and all that the SDK has to translate.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::schema::{
    BORROWED, INLINE_ENDS, KEY, LAST_REFILL_AT, LENT, LINE_ANCHOR, LINE_BORROWED, LINE_LENT, LINE_LOTS,
    LINE_REPAIRED_AT, LINE_RETURNED, LINE_TOKENS, LOTS, REPAIRED_AT, RETURNED, SHARES, TOKENS, USED_NOW,
};
use crate::share::ShareName;

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
    /// Entries of maps, and attributes in them, by their placeholders: the ids of inline leases, a caller, a
    /// share.
    pub(crate) entries: Vec<(&'static str, String)>,
}

impl AttributeNames {
    /// These attributes.
    #[must_use]
    pub const fn of(attributes: &'static [&'static str]) -> Self {
        Self { attributes: Cow::Borrowed(attributes), entries: Vec::new() }
    }

    /// Each placeholder with its name.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str)> {
        let attributes = self.attributes.iter().map(|name| (placeholder(name), *name));
        attributes
            .chain(self.entries.iter().map(|(placeholder, name)| ((*placeholder).to_string(), name.as_str())))
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
    pub(crate) const fn fixed(
        update: &'static str,
        condition: &'static str,
        names: &'static [&'static str],
    ) -> Self {
        Self {
            update: Cow::Borrowed(update),
            condition: Cow::Borrowed(condition),
            names: AttributeNames::of(names),
        }
    }

    /// The same change of the line of `share`, in place of the row's own line.
    pub(crate) fn in_share(&self, share: &ShareName) -> Self {
        let (mut attributes, mut entries) = (alloc::vec![SHARES], alloc::vec![(SHARE, share.to_string())]);
        for name in self.names.attributes.iter() {
            match OF_LINE.iter().find(|(of_row, ..)| of_row == name) {
                Some((_, placeholder, of_line)) => entries.push((placeholder, (*of_line).to_string())),
                None => attributes.push(name),
            }
        }
        let names = AttributeNames { attributes: attributes.into(), entries };
        Self { update: in_line(&self.update).into(), condition: in_line(&self.condition).into(), names }
    }

    /// The same, which also adds `:lent` to what `borrower` has borrowed, a share or the common line.
    ///
    /// Interleaving that the condition stops: an operator removed the borrower's share since the reading.
    /// DynamoDB takes an update of a path that is not there for an invalid request, and not for a failed
    /// condition. So the reply would not contain the row.
    pub(crate) fn and_counted_by(mut self, borrower: Option<&ShareName>) -> Self {
        let names = &mut self.names;
        let count = match borrower {
            None => {
                names.attributes.to_mut().push(BORROWED);
                "#borrowed"
            }
            Some(share) => {
                if !names.attributes.contains(&SHARES) {
                    names.attributes.to_mut().push(SHARES);
                }
                names.entries.push(("#borrower", share.to_string()));
                names.entries.push(("#borrowed", String::from(LINE_BORROWED)));
                self.condition.to_mut().push_str(" AND attribute_exists(#shares.#borrower)");
                "#shares.#borrower.#borrowed"
            }
        };
        let adds = [", ", count, " = if_not_exists(", count, ", :0) + :lent"].concat();
        self.update.to_mut().push_str(&adds);
        self
    }

    /// The condition of a put or a delete.
    pub(crate) const fn guard(condition: &'static str, names: &'static [&'static str]) -> Self {
        Self::fixed("", condition, names)
    }
}

/// The placeholder of a share's name.
const SHARE: &str = "#share";

/// The attributes that each line has of its own: in the row, their placeholder, and in the line of a share.
const OF_LINE: [(&str, &str, &str); 6] = [
    (TOKENS, "#tokens", LINE_TOKENS),
    (LAST_REFILL_AT, "#last_refill_at", LINE_ANCHOR),
    (LOTS, "#lots", LINE_LOTS),
    (RETURNED, "#returned", LINE_RETURNED),
    (REPAIRED_AT, "#repaired_at", LINE_REPAIRED_AT),
    (LENT, "#lent", LINE_LENT),
];

/// `expression` with the path of each attribute of a line. No other placeholder begins with one of theirs.
fn in_line(expression: &str) -> String {
    OF_LINE.iter().fold(expression.to_string(), |text, (_, placeholder, _)| {
        text.replace(placeholder, &["#shares.#share.", placeholder].concat())
    })
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
