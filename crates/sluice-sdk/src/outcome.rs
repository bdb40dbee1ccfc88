//! What an acquire answers.

use crate::grant::Grant;
use crate::refusal::RetryIn;

/// The answer to an acquire.
#[derive(Debug)]
#[must_use = "a grant that is not used should be released, and a refusal waited for"]
pub enum Outcome {
    /// Call the vendor.
    Granted(Grant),
    /// Not now.
    RetryIn(RetryIn),
}

impl Outcome {
    /// The grant, if it is one.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::RetryIn(_) => None,
        }
    }
}
