//! The operations of DynamoDB that are used.

/// An operation of DynamoDB's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    GetItem,
    BatchGetItem,
    Scan,
    PutItem,
    UpdateItem,
    DeleteItem,
    TransactWriteItems,
}

impl Operation {
    pub(crate) const ALL: [Self; 7] = [
        Self::GetItem,
        Self::BatchGetItem,
        Self::Scan,
        Self::PutItem,
        Self::UpdateItem,
        Self::DeleteItem,
        Self::TransactWriteItems,
    ];

    /// The index of this operation in tables with one entry for each operation.
    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }

    /// DynamoDB's name for the operation.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::GetItem => "GetItem",
            Self::BatchGetItem => "BatchGetItem",
            Self::Scan => "Scan",
            Self::PutItem => "PutItem",
            Self::UpdateItem => "UpdateItem",
            Self::DeleteItem => "DeleteItem",
            Self::TransactWriteItems => "TransactWriteItems",
        }
    }

    /// Whether the operation only reads.
    pub(crate) const fn reads(self) -> bool {
        matches!(self, Self::GetItem | Self::BatchGetItem | Self::Scan)
    }
}
