//! What a grant is based on.

/// What a grant is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// The table.
    Table,
    /// The process's own share of the limits, while DynamoDB is unavailable.
    LocalShare,
    /// Nothing: DynamoDB is unavailable, and the client is set to allow.
    Unchecked,
    /// In shadow mode: of at least one bucket the grant holds nothing, because the bucket would have refused,
    /// or could not be asked. Of the others it holds what the table gave.
    Shadow,
}
