//! How a release ended.

/// How a release ended. Each outcome is fine for the caller; the last two show that something else was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Released {
    /// What was held is back. In an outage, a process with a share policy keeps slots for its next calls, and
    /// gives them back afterwards.
    GivenBack,
    /// There was no room for all of it: another client had restored slots. What there was room for came back.
    AlreadyCapped,
    /// The lease was gone: it ended, and a sweep gave the slot back, perhaps to another, during the call.
    LeaseGone,
}

impl Released {
    /// The name of the outcome in metrics and spans.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GivenBack => "given_back",
            Self::AlreadyCapped => "already_capped",
            Self::LeaseGone => "lease_gone",
        }
    }
}
