//! The API operations of DynamoDB, as meters and faults tell them apart.

/// The API operations that Sluice uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Reads a row.
    GetItem,
    /// Reads up to 100 rows.
    BatchGetItem,
    /// Makes a row.
    PutItem,
    /// Changes a row.
    UpdateItem,
    /// Removes a row.
    DeleteItem,
    /// Changes several rows, or none.
    TransactWriteItems,
    /// Reads the table.
    Scan,
    /// Tells of the table: its state, its key.
    DescribeTable,
    /// Tells of its TTL.
    DescribeTimeToLive,
    /// Tells of its backups; the engine cannot.
    DescribeContinuousBackups,
    /// Anything else: tables, and what tests do beside Sluice.
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

    /// Whether it is about rows: the rest costs no units.
    pub(crate) const fn is_metered(self) -> bool {
        !matches!(self, Self::DescribeTable | Self::DescribeTimeToLive | Self::DescribeContinuousBackups | Self::Other)
    }

    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::PutItem | Self::UpdateItem | Self::DeleteItem | Self::TransactWriteItems)
    }
}
