//! What is measured: a limiter that callers ask.

use std::time::Duration;

use sluice_sdk::{Client, Outcome, Request, RetryReason, SlotError};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;

/// What a limiter answers.
pub(crate) enum Answer<Held> {
    /// Call the vendor.
    Granted {
        held: Held,
        /// How long it took, where that is not the time until the answer.
        waited: Option<Duration>,
    },
    /// Not now, for want of quota.
    Refused { wait: Duration },
    /// Not now, because others were faster in every try.
    GaveUp,
}

impl<Held> Answer<Held> {
    pub(crate) const fn granted(held: Held) -> Self {
        Self::Granted { held, waited: None }
    }
}

/// A limiter as one process has it. Clones are one.
pub(crate) trait System: Clone + Send + Sync + 'static {
    /// What a grant is given back with.
    type Held: Send;

    /// Asks once.
    fn take(&self) -> impl Future<Output = Result<Answer<Self::Held>, Failure>> + Send;

    /// Gives back.
    fn finish(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Sluice, asked once: `acquire`.
#[derive(Clone)]
pub(crate) struct Sluice {
    pub(crate) client: Client,
    pub(crate) request: Request,
}

impl System for Sluice {
    type Held = sluice_sdk::Grant;

    async fn take(&self) -> Result<Answer<Self::Held>, Failure> {
        Ok(match self.client.acquire(self.request.clone()).await? {
            Outcome::Granted(grant) => Answer::granted(grant),
            Outcome::RetryIn(retry) if retry.reason() == RetryReason::Contended => Answer::GaveUp,
            Outcome::RetryIn(retry) => Answer::Refused { wait: retry.wait() },
        })
    }

    async fn finish(&self, grant: Self::Held) -> Result<(), Failure> {
        grant.release().await?;
        Ok(())
    }
}

/// Sluice, asked for a slot in which the caller stays for a time: `slot`, which waits in line.
#[derive(Clone)]
pub(crate) struct InLine {
    pub(crate) client: Client,
    pub(crate) request: Request,
    pub(crate) hold: Duration,
}

impl System for InLine {
    type Held = ();

    async fn take(&self) -> Result<Answer<()>, Failure> {
        let asked_at = Instant::now();
        let slot = self.client.slot(self.request.clone());
        let held = slot.run(async |_slot| {
            let waited = asked_at.elapsed();
            sleep(self.hold).await;
            Ok::<_, std::convert::Infallible>(waited)
        });
        match held.await {
            Ok(waited) => Ok(Answer::Granted { held: (), waited: Some(waited) }),
            Err(SlotError::Refused(retry)) if retry.reason() == RetryReason::Contended => Ok(Answer::GaveUp),
            Err(SlotError::Refused(retry)) => Ok(Answer::Refused { wait: retry.wait() }),
            Err(error) => Err(error.into()),
        }
    }

    async fn finish(&self, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}
