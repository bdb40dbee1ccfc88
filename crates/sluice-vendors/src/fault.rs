//! Headers and parts of bodies that could not be read.

/// A header, or a part of a body, that could not be read. It has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {name}: {fault}")]
pub struct Unreadable {
    /// The header's name, in lower case; `retryDelay` for the field of a body.
    pub name: String,
    /// Why it could not be read.
    pub fault: HeaderFault,
}

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The bytes are not text.
    #[error("it is not text")]
    NotText,
    /// The text is not a number that an amount can hold.
    #[error("it must be a number, as in 60")]
    NotANumber,
    /// The number is below zero.
    #[error("it is below zero")]
    Negative,
    /// The text is not a span of time.
    #[error("it must be a span of time, as in 34.07s")]
    NotASpan,
    /// The text is neither a span of time nor a point in time.
    #[error("it must be a span of time or a point in time, as in 6m0s, 60 or 2026-01-31T12:00:00Z")]
    NotAReset,
    /// The text is neither seconds nor a date.
    #[error("it must be seconds or an HTTP date")]
    NeitherSecondsNorDate,
    /// The span of time, or the text, is longer than is believed.
    #[error("it is too long to be plausible")]
    TooLong,
}
