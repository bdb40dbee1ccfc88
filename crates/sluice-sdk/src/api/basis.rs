//! What a grant rests on.

/// What a grant rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// The table.
    Table,
    /// The process's own share of the limits, while DynamoDB is out.
    LocalShare,
    /// Nothing: DynamoDB is out, and the client is set to allow.
    Unchecked,
}
