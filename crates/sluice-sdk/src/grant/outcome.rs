//! The answer to an acquire: a grant, or a wait.

use std::sync::Arc;
use std::time::Duration;

use crate::api::refusal::RetryIn;
use crate::grant::Grant;
use crate::lane::inner::Inner;
use crate::lane::setback::Taken;
use crate::lane::unclaimed::UnclaimedGrant;

/// The answer to an acquire.
#[derive(Debug)]
#[must_use = "release a grant that is not used; after a refusal, wait as long as it says"]
pub enum Outcome {
    /// Call the vendor.
    Granted(Grant),
    /// Not now.
    RetryIn(RetryIn),
}

impl Outcome {
    /// Creates the outcome of an attempt that granted or refused. If `renews` is true, the client extends the
    /// leases by `lease_for`.
    pub(crate) fn of(
        inner: &Arc<Inner>,
        taken: Taken<UnclaimedGrant>,
        lease_for: Duration,
        renews: bool,
    ) -> Self {
        match taken {
            Taken::Granted(unclaimed) => {
                Self::Granted(Grant::new(Arc::clone(inner), unclaimed, lease_for, renews))
            }
            Taken::Refused(retry) => Self::RetryIn(retry),
        }
    }

    /// The grant, if there is one.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::RetryIn(_) => None,
        }
    }
}
