//! What could not be read.

/// A header, or a part of a body, that could not be read: nothing follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {name}: {fault}")]
pub struct Unreadable {
    /// The header's name, in lower case; `retryDelay` for the one in a body.
    pub name: &'static str,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Bytes that are no text.
    #[error("it is not text")]
    NotText,
    /// Not a number that an amount can hold.
    #[error("it takes a number, as in 60")]
    NotANumber,
    /// Less than nothing.
    #[error("it is below zero")]
    Negative,
    /// Not a span of time.
    #[error("it takes a span of time, as in 6m0s")]
    NotASpan,
    /// Not a point in time.
    #[error("it takes a point in time, as in 2026-01-31T12:00:00Z")]
    NotAnInstant,
    /// Neither seconds nor a date.
    #[error("it takes seconds or an HTTP date")]
    NeitherSecondsNorDate,
    /// A span of time, or a text, that is longer than is believed.
    #[error("it is longer than is believed")]
    TooLong,
}
