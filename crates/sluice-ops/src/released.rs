//! How a release ended.

/// How a release ended. Each is fine for the caller; the last two say that something else was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Released {
    /// What was held is back.
    GivenBack,
    /// There was not room for all of it: another client had restored this slot, or others. What there was room for came back.
    AlreadyCapped,
    /// The lease was gone: it ended, and a sweep gave the slot back, perhaps to someone else while this holder still called.
    LeaseGone,
}

impl Released {
    /// The end as metrics and spans name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GivenBack => "given_back",
            Self::AlreadyCapped => "already_capped",
            Self::LeaseGone => "lease_gone",
        }
    }
}
