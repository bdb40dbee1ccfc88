//! Faults that make a history unfit to be judged.

use std::fmt;

use serde::Serialize;

/// An entry of the history that cannot have happened, or that was written wrongly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryFault {
    /// The file, if more than one was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, or the number of the event for a history that was fed from memory. Both begin at 1.
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
    /// A release without an earlier grant.
    #[error("{id} is released in {dimension} and was not granted there")]
    ReleaseWithoutGrant {
        /// The grant.
        id: String,
        /// The bucket.
        dimension: String,
    },
    /// A use without an earlier grant.
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
    /// A second grant with the same id in the same bucket.
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
        /// The value of that field.
        end_micros: i64,
        /// The field of the beginning.
        begin: &'static str,
        /// The value of that field.
        begin_micros: i64,
    },
    /// Grants of a bucket whose limit is missing in the history; only the first grant is named.
    #[error("{dimension} has grants and no limit")]
    UnknownDimension {
        /// The bucket.
        dimension: String,
    },
    /// A bucket of one kind that is recorded as another.
    #[error("{dimension} changes from a rate limit to a concurrency limit, or back")]
    KindChange {
        /// The bucket.
        dimension: String,
    },
    /// An impossible amount.
    #[error("{of}: {field} = {value} makes no sense")]
    Amount {
        /// The grant or the bucket.
        of: String,
        /// The field.
        field: &'static str,
        /// The value of that field.
        value: i64,
    },
    /// A file without an end record.
    #[error("the file has no end record after this line: it was cut off, or its writer died")]
    NoEnd,
    /// An end record that counts other events than are there.
    #[error(
        "the end record counts {counted} events before it, and there are {found}: lines were lost or added"
    )]
    WrongCount {
        /// The events that the end record counts.
        counted: u64,
        /// The events that are there.
        found: u64,
    },
    /// An event after the end record; only the first is named.
    #[error("an event after the end record")]
    AfterEnd,
    /// A header with a version that this checker does not read.
    #[error("version {version} of the format is not known, only {}", crate::event::FORMAT_VERSION)]
    Version {
        /// The version in the header.
        version: u32,
    },
}

impl fmt::Display for HistoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}, ")?;
        }
        write!(f, "line {}: {}", self.line, self.kind)
    }
}
