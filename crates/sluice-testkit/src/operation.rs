//! The API operations of DynamoDB, as meters and faults distinguish them.

/// The API operations that Sluice uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Reads a row.
    GetItem,
    /// Reads up to 100 rows.
    BatchGetItem,
    /// Creates a row.
    PutItem,
    /// Changes a row.
    UpdateItem,
    /// Deletes a row.
    DeleteItem,
    /// Changes several rows together, or none.
    TransactWriteItems,
    /// Reads the table page by page.
    Scan,
    /// Describes the table: its state and its key.
    DescribeTable,
    /// Describes the table's TTL.
    DescribeTimeToLive,
    /// Describes the table's backups; the engine does not support this.
    DescribeContinuousBackups,
    /// Any other operation: creating tables, and what tests do apart from Sluice.
    Other,
}

impl Operation {
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "GetItem" => Self::GetItem,
            "BatchGetItem" => Self::BatchGetItem,
            "PutItem" => Self::PutItem,
            "UpdateItem" => Self::UpdateItem,
            "DeleteItem" => Self::DeleteItem,
            "TransactWriteItems" => Self::TransactWriteItems,
            "Scan" => Self::Scan,
            "DescribeTable" => Self::DescribeTable,
            "DescribeTimeToLive" => Self::DescribeTimeToLive,
            "DescribeContinuousBackups" => Self::DescribeContinuousBackups,
            _ => Self::Other,
        }
    }

    /// Whether the operation is about rows: the others cost no units.
    pub(crate) const fn is_metered(self) -> bool {
        !matches!(
            self,
            Self::DescribeTable | Self::DescribeTimeToLive | Self::DescribeContinuousBackups | Self::Other
        )
    }

    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::PutItem | Self::UpdateItem | Self::DeleteItem | Self::TransactWriteItems)
    }
}
