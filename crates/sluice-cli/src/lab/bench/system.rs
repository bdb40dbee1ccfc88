//! What the bench measures: a limiter that callers ask.

use std::time::Duration;

use sluice_sdk::{Client, LimitError, Outcome, Request, RetryReason};
pub(crate) use sluice_testkit::yardstick::TakeResult;
use sluice_testkit::yardstick::{LoneUpdate, OwnUpdate, Reference, ReferenceLease};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;

/// A limiter as one process uses it. Clones are one limiter.
pub(crate) trait System: Clone + Send + Sync + 'static {
    /// What a caller needs to give a grant back.
    type Held: Send;

    fn take(&self) -> impl Future<Output = Result<TakeResult<Self::Held>, Failure>> + Send;

    /// Gives back, if there is something to give back.
    fn finish(&self, _held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Sluice through `acquire`, which is asked once.
#[derive(Clone)]
pub(crate) struct Sluice {
    pub(crate) client: Client,
    /// The dimensions, each with its cost.
    pub(crate) dimensions: Vec<(String, u32)>,
}

impl System for Sluice {
    type Held = sluice_sdk::Grant;

    async fn take(&self) -> Result<TakeResult<Self::Held>, Failure> {
        let outcome = match &self.dimensions[..] {
            // The call that products use most.
            [(name, 1)] => self.client.acquire(name.as_str()).await?,
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                let request = Request::from(names);
                let request =
                    several.iter().fold(request, |request, (name, cost)| request.cost(name.as_str(), *cost));
                self.client.acquire(request).await?
            }
        };
        Ok(match outcome {
            Outcome::Granted(grant) => TakeResult::granted(grant),
            Outcome::RetryIn(retry) if retry.reason() == RetryReason::Contended => TakeResult::GaveUp,
            Outcome::RetryIn(retry) => TakeResult::Refused { wait: retry.wait() },
        })
    }

    async fn finish(&self, grant: Self::Held) -> Result<(), Failure> {
        grant.release().await?;
        Ok(())
    }
}

/// Sluice through `slot`, which waits in the queue; the caller holds the slot for a time.
#[derive(Clone)]
pub(crate) struct InLine {
    pub(crate) client: Client,
    pub(crate) dimension: String,
    pub(crate) hold: Duration,
}

impl System for InLine {
    type Held = ();

    async fn take(&self) -> Result<TakeResult<()>, Failure> {
        let asked_at = Instant::now();
        let slot = self.client.slot(self.dimension.as_str());
        let held = slot.run(async |_slot| {
            let waited = asked_at.elapsed();
            sleep(self.hold).await;
            Ok::<_, LimitError>(waited)
        });
        match held.await {
            Ok(waited) => Ok(TakeResult::Granted { held: (), waited: Some(waited) }),
            Err(LimitError::Refused(retry)) if retry.reason() == RetryReason::Contended => {
                Ok(TakeResult::GaveUp)
            }
            Err(LimitError::Refused(retry)) => Ok(TakeResult::Refused { wait: retry.wait() }),
            Err(error) => Err(error.into()),
        }
    }
}

impl System for Reference {
    type Held = Vec<ReferenceLease>;

    async fn take(&self) -> Result<TakeResult<Self::Held>, Failure> {
        Ok(self.acquire().await?)
    }

    async fn finish(&self, leases: Self::Held) -> Result<(), Failure> {
        Ok(self.release(leases).await?)
    }
}

impl System for LoneUpdate {
    type Held = ();

    async fn take(&self) -> Result<TakeResult<()>, Failure> {
        Ok(self.acquire().await?)
    }
}

impl System for OwnUpdate {
    type Held = ();

    async fn take(&self) -> Result<TakeResult<()>, Failure> {
        Ok(self.acquire().await?)
    }
}
