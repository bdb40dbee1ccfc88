//! One caller: takes a slot, calls the vendor in it, and passes the vendor's reply to Sluice.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use sluice_sdk::reactions::{ObservedLevel, ObservedLimit};
use sluice_sdk::{Clock, Decision, LimitError, Replied, Reply, Slot};
use tokio::time::{Instant, sleep};

use super::{JobEnd, Worker};
use crate::failure::Failure;
use crate::lab::demo::limits::Api;
use crate::lab::demo::vendor::Call;

/// How long a caller waits for a slot; if it gets none, it asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a call that was made can fail.
enum CallError {
    /// The vendor answered with 429, and Sluice decided this.
    Refused(Decision),
    Failed(Failure),
}

/// Why there is no good reply.
enum NoReply {
    Limit(LimitError),
    Call(CallError),
}

impl From<LimitError> for NoReply {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl<E: Into<Failure>> From<E> for CallError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Worker {
    /// A job that gets no slot, or is refused, is tried again until it is done.
    pub(super) async fn take_slots_until_stop(&self, of: usize, api: &Api) {
        let waiting = &self.counts.waiting[of];
        let mut wanted = Instant::now();
        while Clock::system().now() < self.stop {
            let used = api.tokens.map_or(0, |tokens| fastrand::u32(tokens.used.0..=tokens.used.1));
            let mut slot = self.sluice.slot(api.limits).max_wait(PATIENCE);
            if let Some(tokens) = api.tokens {
                slot = slot.cost(tokens.limit, tokens.reserved);
            }
            waiting.fetch_add(1, Relaxed);
            let mut waits = true;
            let called = slot
                .run(async |slot| {
                    waiting.fetch_sub(1, Relaxed);
                    waits = false;
                    let micros = u64::try_from(slot.acquiring().as_micros()).unwrap_or(u64::MAX);
                    self.counts.acquire_micros.lock().push(micros);
                    if Clock::system().now() >= self.stop {
                        return Ok(());
                    }
                    self.counts.granted.fetch_add(1, Relaxed);
                    self.call_in(&slot, api, used).await.map_err(NoReply::Call)?;
                    self.ended(of, wanted, JobEnd::Done);
                    wanted = Instant::now();
                    Ok(())
                })
                .await;
            if waits {
                waiting.fetch_sub(1, Relaxed);
            }
            match called {
                Ok(()) => {}
                Err(NoReply::Limit(LimitError::Refused(retry))) => {
                    self.counts.refused.fetch_add(1, Relaxed);
                    sleep(retry.wait()).await;
                }
                // The demo has no queue to put the work back into: the caller waits, and takes other work.
                Err(NoReply::Call(CallError::Refused(
                    Decision::RetryInline { wait } | Decision::Requeue { wait, .. },
                ))) => sleep(wait).await,
                Err(NoReply::Call(CallError::Refused(decision))) => {
                    self.failed(&format!("after a 429 the decision was {decision:?}")).await;
                }
                Err(NoReply::Call(CallError::Failed(error))) => self.failed(&error).await,
                Err(NoReply::Limit(error)) => self.failed(&error).await,
            }
        }
    }

    /// Calls the vendor, and passes its reply to Sluice.
    async fn call_in(&self, slot: &Slot, api: &Api, used: u32) -> Result<(), CallError> {
        let start_at = match api.starts_by {
            Some(limit) => slot
                .start_in(limit)
                .ok_or_else(|| Failure::new(format!("the slot has no start in {limit}")))?,
            None => slot.start_at(),
        };
        let start_at = u64::try_from(start_at.micros())?;
        let tokens = api.tokens.map_or(0, |tokens| tokens.counted(used));
        self.start_late().await;
        let (status, headers, body) =
            self.send(api, &Call { tokens, start_at, process: self.process }).await?;
        let is_refused = status == StatusCode::TOO_MANY_REQUESTS;
        let usage = api.tokens.filter(|_| !is_refused).map(|tokens| (tokens.limit, used));
        let reply = Reply::new(status.as_u16(), &headers).with_body(&body);
        let decision = match self.deaf(status) {
            Some(decision) => decision,
            None => self.replied(slot, reply, usage).await?,
        };
        match decision {
            Decision::NotRefused => Ok(()),
            refused => Err(CallError::Refused(refused)),
        }
    }

    /// Passes the reply to Sluice.
    async fn replied(
        &self,
        slot: &Slot,
        reply: Reply<'_, HeaderMap>,
        usage: Option<(&str, u32)>,
    ) -> Result<Decision, CallError> {
        let Replied { decision, observed, .. } = slot.reply(reply, usage).await?;
        for (_, observed) in &observed {
            let is_lowered = matches!(observed.level, ObservedLevel::Lowered(_));
            if is_lowered || matches!(observed.limit, ObservedLimit::Adopted(_)) {
                self.counts.lowered.fetch_add(1, Relaxed);
            }
        }
        Ok(decision)
    }
}
