//! The answer to a write.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::CancellationReason;

use super::error::StoreError;

/// A row as the AWS SDK returns it.
pub type Item = HashMap<String, AttributeValue>;

/// The answer to a conditional write.
#[derive(Debug)]
pub enum Written {
    /// The write was applied; the row after it.
    Applied(Item),
    /// The condition was false; the row as it is, if it exists.
    ConditionFailed(Option<Item>),
}

/// The answer to a request, and what its tries may have done.
#[derive(Debug)]
pub struct Attempted<T, E = StoreError> {
    /// The answer to the last try.
    pub answer: Result<T, E>,
    /// Whether a try without an answer may have been applied, now or later.
    pub maybe_applied: bool,
    /// Whether the last try was throttled: the row takes no more writes at present.
    pub was_throttled: bool,
}

impl<T, E> Attempted<T, E> {
    pub(super) fn map<U, F>(self, answer: impl FnOnce(Result<T, E>) -> Result<U, F>) -> Attempted<U, F> {
        let Self { answer: of, maybe_applied, was_throttled } = self;
        Attempted { answer: answer(of), maybe_applied, was_throttled }
    }
}

/// After which failures a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Always. A second application is safe because of the condition, or because it is harmless.
    Always,
    /// Not after an ambiguous reply: the write must not be applied twice.
    UnlessAmbiguous,
    /// Not after a conflict or throttling, unless an earlier try may have been applied: the caller reads the
    /// row and plans the write again.
    UnlessContended,
}

/// The answer to a transaction.
#[derive(Debug)]
pub enum Transacted {
    /// All of its writes were applied.
    Committed,
    /// Nothing was applied. One entry for each action, in order.
    Cancelled(Vec<Cancelled>),
}

/// Why an action of a transaction was not applied.
#[derive(Debug)]
pub struct Cancelled {
    /// The reason that DynamoDB gives.
    pub reason: CancellationReason,
    /// The row whose condition was false, if it exists.
    pub row: Option<Item>,
}
