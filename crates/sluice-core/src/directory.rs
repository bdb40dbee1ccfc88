//! The directory: one row that names the concurrency buckets, so that a sweep can read them before its scan.
//!
//! A sweep writes it from what its scan found. It is a hint: a bucket that it does not name is recounted by
//! the next sweep, and a name without a bucket is found to be gone.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

use crate::dimension::Dimension;
use crate::schema::{self, BUCKETS, DIRECTORY_KEY, Row};
use crate::statement::{Operand, Statement, Update};

/// The concurrency buckets of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    names: BTreeSet<Dimension>,
    as_read: String,
}

/// The largest text, about 10,000 names: the row stays below DynamoDB's 400 KB for an item.
const MOST_BYTES: usize = 300_000;

/// Interleaving that the condition stops: another sweep wrote a newer directory, and this write would bring
/// back the older one. A directory that cannot be read is replaced.
static WRITE: Statement = Statement::fixed(
    "SET #buckets = :buckets",
    "attribute_not_exists(#buckets) OR NOT attribute_type(#buckets, :string) OR #buckets = :read_buckets",
    &[BUCKETS],
);

impl Directory {
    /// Reads the row. A text that is not a dimension is left out.
    #[must_use]
    pub fn read(row: &impl Row) -> Self {
        let Ok(text) = schema::text(row, BUCKETS) else { return Self::default() };
        let names = text.split_whitespace().filter_map(|name| Dimension::new(name).ok());
        Self { names: names.collect(), as_read: text.to_string() }
    }

    /// The buckets, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Dimension> {
        self.names.iter()
    }

    /// How many of `found` do not fit into the row and are not recounted; `None` if all fit.
    #[must_use]
    pub fn left_out(&self, found: &BTreeSet<Dimension>) -> Option<usize> {
        let left_out = found.len() - listed(found).split_whitespace().count();
        (left_out > 0).then_some(left_out)
    }

    /// The write that makes the directory name `found` instead, as many as fit; `None` if it does already.
    #[must_use]
    pub fn update(&self, found: &BTreeSet<Dimension>) -> Option<Update> {
        let names = listed(found);
        (names != self.as_read).then(|| Update {
            key: DIRECTORY_KEY.to_string(),
            statement: Cow::Borrowed(&WRITE),
            values: alloc::vec![
                (":buckets", Operand::text(names)),
                (":read_buckets", Operand::text(&self.as_read)),
                (":string", Operand::text("S")),
            ],
        })
    }
}

fn listed(names: &BTreeSet<Dimension>) -> String {
    let mut list = String::new();
    for name in names {
        if list.len() + name.as_str().len() < MOST_BYTES {
            list.push_str(if list.is_empty() { "" } else { " " });
            list.push_str(name.as_str());
        }
    }
    list
}
