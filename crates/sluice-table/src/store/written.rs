//! What became of a write.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::CancellationReason;

/// A row as the AWS SDK returns it.
pub type Item = HashMap<String, AttributeValue>;

/// The answer to a conditional write.
#[derive(Debug)]
pub enum Written {
    /// Applied; the row as it is now.
    Applied(Item),
    /// The condition was false; the row as it is, if there is one.
    ConditionFailed(Option<Item>),
}

/// Whether a write may be sent a second time when it is not known whether the first was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAmbiguous {
    /// Its condition, or its harmlessness, makes a second application safe.
    SendAgain,
    /// Applying it twice would be wrong.
    Stop,
}

/// The answer to a transaction.
#[derive(Debug)]
pub enum Transacted {
    /// All of its writes were applied.
    Committed,
    /// Nothing was applied; one entry for each action, in order.
    Cancelled(Vec<Cancelled>),
}

/// Why an action of a transaction was not applied.
#[derive(Debug)]
pub struct Cancelled {
    /// What DynamoDB says of it.
    pub reason: CancellationReason,
    /// The row whose condition was false, where there is one.
    pub row: Option<Item>,
}
