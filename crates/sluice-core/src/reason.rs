//! What DynamoDB says about each action of a cancelled transaction.

use alloc::string::String;

/// One entry of `CancellationReasons`, in the order of the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancellationReason {
    /// The meaning of the entry.
    pub cause: CancellationCause,
    /// The code and message as sent, for the cases that are reported.
    pub message: String,
}

/// What a reason means for the writer. In every case, the whole transaction changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancellationCause {
    /// This action was not the cause.
    Passed,
    /// The condition was false: the row is not as the plan assumed.
    ConditionFailed,
    /// Another transaction held the item. This says nothing about the item; the write is retryable.
    Conflict,
    /// The table or partition is over its throughput, whatever the item: retryable, later.
    Throttled,
    /// The request itself is wrong, and stays wrong.
    Permanent,
}

impl CancellationCause {
    /// The meaning of a code, as listed for `TransactWriteItems` in the DynamoDB API reference.
    #[must_use]
    pub fn from_code(code: &str) -> Self {
        match code {
            "" | "None" => Self::Passed,
            "ConditionalCheckFailed" => Self::ConditionFailed,
            "TransactionConflict" => Self::Conflict,
            "ThrottlingError" | "ProvisionedThroughputExceeded" => Self::Throttled,
            _ => Self::Permanent,
        }
    }

    /// Whether the same request may succeed a moment later.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Conflict | Self::Throttled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_never_read_as_a_false_condition() {
        assert_eq!(CancellationCause::from_code("TransactionConflict"), CancellationCause::Conflict);
        assert_eq!(CancellationCause::from_code("ThrottlingError"), CancellationCause::Throttled);
        assert_eq!(
            CancellationCause::from_code("ProvisionedThroughputExceeded"),
            CancellationCause::Throttled
        );
        assert_eq!(
            CancellationCause::from_code("ConditionalCheckFailed"),
            CancellationCause::ConditionFailed
        );
        for code in ["ValidationError", "ItemCollectionSizeLimitExceeded", "SomethingNew"] {
            assert_eq!(CancellationCause::from_code(code), CancellationCause::Permanent);
        }
    }
}
