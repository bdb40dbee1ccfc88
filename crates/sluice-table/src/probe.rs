//! Requests that examine a table and change nothing. Each is sent once, and its result is of plain types.

use aws_sdk_dynamodb::Client as Dynamo;

mod description;
mod probed;
mod rights;
mod row;

pub use description::{Provisioned, TableDescription};
pub use probed::Probed;
pub use row::RowState;

/// Examines one table, through a connection that the program already has.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    dynamo: &'a Dynamo,
    table: &'a str,
}

impl<'a> Probe<'a> {
    /// Examines `table` through `dynamo`.
    #[must_use]
    pub const fn new(dynamo: &'a Dynamo, table: &'a str) -> Self {
        Self { dynamo, table }
    }

    /// The name of the table.
    #[must_use]
    pub const fn table(self) -> &'a str {
        self.table
    }
}
