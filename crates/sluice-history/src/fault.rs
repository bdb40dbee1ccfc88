//! What makes a history unfit to be judged.

use std::fmt;

use serde::Serialize;

/// Something in the history that cannot have happened, or that was written wrongly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The file, where more than one was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line; for a history that was fed from memory, the number of the event. Both begin at 1.
    pub line: u64,
    /// What is wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A release of what was not granted before it.
    #[error("{id} is released in {dimension} and was not granted there")]
    ReleaseWithoutGrant {
        /// The grant.
        id: String,
        /// The bucket.
        dimension: String,
    },
    /// What was used of what was not granted before.
    #[error("{id} is settled in {dimension} and was not granted there")]
    SettledWithoutGrant {
        /// The grant.
        id: String,
        /// The bucket.
        dimension: String,
    },
    /// A second release.
    #[error("{id} is released in {dimension} a second time")]
    ReleasedTwice {
        /// The grant.
        id: String,
        /// The bucket.
        dimension: String,
    },
    /// A second grant of one id in one bucket.
    #[error("{id} is granted in {dimension} a second time")]
    GrantedTwice {
        /// The grant.
        id: String,
        /// The bucket.
        dimension: String,
    },
    /// An interval of negative length.
    #[error("{id}: {end} ({end_micros}) is before {begin} ({begin_micros})")]
    EndsBeforeItBegins {
        /// The grant, or the bucket of a limit.
        id: String,
        /// The field of the end.
        end: &'static str,
        /// What it says.
        end_micros: i64,
        /// The field of the beginning.
        begin: &'static str,
        /// What it says.
        begin_micros: i64,
    },
    /// Grants of a bucket whose limit the history does not tell; only the first is named.
    #[error("{dimension} has grants and no limit")]
    UnknownDimension {
        /// The bucket.
        dimension: String,
    },
    /// A bucket of one kind that is told as another.
    #[error("{dimension} turns from a limit over time into one on calls at once, or back")]
    KindChange {
        /// The bucket.
        dimension: String,
    },
    /// An amount that cannot be.
    #[error("{of}: {field} = {value} makes no sense")]
    Amount {
        /// The grant or the bucket.
        of: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// A header in a version that this checker does not read.
    #[error("version {version} of the format is not known")]
    Version {
        /// What it says.
        version: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}, ")?;
        }
        write!(f, "line {}: {}", self.line, self.kind)
    }
}
