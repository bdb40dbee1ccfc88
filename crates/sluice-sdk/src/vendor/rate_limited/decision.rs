//! What becomes of a call that the vendor refused.

use std::time::Duration;

use crate::api::refusal::delay_seconds;

/// What to do with a call that the vendor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Sleep for the wait, acquire again, and call again.
    RetryInline {
        /// From now; at most `SLUICE_INLINE_RETRY_THRESHOLD`.
        wait: Duration,
    },
    /// Put the work back into its queue: the wait is longer than a worker should sleep.
    Requeue {
        /// From now.
        wait: Duration,
        /// The value for SQS's `DelaySeconds`: one second more than the wait, at most 900 (15 minutes).
        delay_seconds: u32,
    },
    /// No wait helps: the account's allowance is used up or not paid for (notify people), or the call is
    /// larger than the vendor's limit.
    GiveUp,
    /// The reply is not a refusal for load. Nothing was done.
    NotRefused,
}

impl Decision {
    /// How long to wait; `None` if no wait helps or none is needed.
    #[must_use]
    pub const fn wait(self) -> Option<Duration> {
        match self {
            Self::RetryInline { wait } | Self::Requeue { wait, .. } => Some(wait),
            Self::GiveUp | Self::NotRefused => None,
        }
    }

    /// The wait as the value for SQS's `DelaySeconds`: one second more, at most 900 (15 minutes). `None` if
    /// no wait helps or none is needed.
    #[must_use]
    pub fn delay_seconds(self) -> Option<u32> {
        self.wait().map(delay_seconds)
    }
}

/// Sleep for `wait` if it is at most `inline_at_most`; else requeue.
pub(super) fn decide(wait: Duration, inline_at_most: Duration) -> Decision {
    if wait <= inline_at_most {
        return Decision::RetryInline { wait };
    }
    Decision::Requeue { wait, delay_seconds: delay_seconds(wait) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_above_the_threshold_goes_back_into_the_queue() {
        let five = Duration::from_secs(5);
        assert_eq!(decide(five, five), Decision::RetryInline { wait: five });
        let requeued = |millis| decide(Duration::from_millis(millis), five);
        assert!(matches!(requeued(5_001), Decision::Requeue { delay_seconds: 6, .. }));
        assert!(matches!(requeued(898_999), Decision::Requeue { delay_seconds: 899, .. }));
        assert!(matches!(requeued(899_000), Decision::Requeue { delay_seconds: 900, .. }));
        assert!(matches!(requeued(86_400_000), Decision::Requeue { delay_seconds: 900, .. }));
    }
}
