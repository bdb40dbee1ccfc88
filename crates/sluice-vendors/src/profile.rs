//! What is known about a vendor independently of its replies.

use std::time::Duration;

use sluice_core::{Amount, LimitType};

use crate::quota::Quota;
use crate::vendor::Vendor;

mod facts;

/// What is known about a vendor independently of its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The vendor.
    pub vendor: Vendor,
    /// What a failed call keeps of the requests that it took.
    pub failed_requests: Stated<Kept>,
    /// What a failed call keeps of the tokens that it took.
    pub failed_tokens: Stated<Kept>,
    /// Which tokens of a call the vendor counts.
    pub tokens: Stated<Counted>,
    /// Shorter windows over which a limit per minute may be enforced: 60 a minute as 1 a second. A bucket
    /// with a large burst may be refused although its minute has room. Empty if none are documented.
    pub enforced_over: Stated<&'static [Duration]>,
    /// The quotas that the vendor reports in headers.
    pub reports: Stated<&'static [Quota]>,
    /// The unit to which a reported remainder of tokens is rounded (up or down), if the vendor rounds it.
    pub remaining_rounded_to: Option<Stated<Amount>>,
}

/// A fact, and the page that states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated<T> {
    /// The fact.
    pub value: T,
    /// The page's address. `None` if the vendor does not say, and `value` is an assumption of Sluice.
    pub source: Option<&'static str>,
}

/// What a failed call keeps of what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Everything: the vendor counts the call like any other.
    All,
    /// Nothing: the vendor does not count the call, so what it took is given back.
    Nothing,
}

/// Which tokens of a call a vendor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// What the call may use, estimated from its prompt and `max_tokens` when it arrives. The vendor does not
    /// say that unused tokens come back. A caller that settles by what was used therefore gives out more than
    /// the vendor has, and the vendor's headers say so.
    Estimated,
    /// What the call uses.
    Used,
}

impl Vendor {
    /// What is known about the vendor.
    #[must_use]
    pub const fn profile(self) -> &'static Profile {
        match self {
            Self::OpenAi => &facts::OPENAI,
            Self::AzureOpenAi => &facts::AZURE_OPENAI,
            Self::Anthropic => &facts::ANTHROPIC,
            Self::ElevenLabs => &facts::ELEVENLABS,
            Self::Gemini => &facts::GEMINI,
            Self::Groq => &facts::GROQ,
            Self::Other => &facts::OTHER,
        }
    }
}

impl Profile {
    /// What a failed call keeps of what it took from a bucket of this type. A slot is always given back: the
    /// call is over.
    #[must_use]
    pub const fn kept_by_failure(&self, limit_type: LimitType) -> Kept {
        match limit_type {
            LimitType::Requests => self.failed_requests.value,
            LimitType::Tokens => self.failed_tokens.value,
            LimitType::Concurrent => Kept::Nothing,
        }
    }
}
