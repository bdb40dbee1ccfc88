//! What a caller holds: a grant, or a slot whose call runs in the other language. The SDK runs the slot in a
//! task, whose closure waits for the end of the call.

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sluice_sdk::{Grant, LimitError, Slot, SlotBuilder};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::values::{instant, ms};
use crate::words::{basis, tokens};

/// A grant that its caller does not have yet. If it never gets there, as after a cancellation, everything
/// goes back.
pub(crate) struct UndeliveredGrant(Option<Grant>);

impl UndeliveredGrant {
    pub(crate) const fn new(grant: Grant) -> Self {
        Self(Some(grant))
    }
}

impl Drop for UndeliveredGrant {
    fn drop(&mut self) {
        if let (Some(grant), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(grant.cancel());
        }
    }
}

/// The grant until it ends.
pub(crate) struct HeldGrant(pub(crate) AsyncMutex<Option<Grant>>);

impl HeldGrant {
    pub(crate) fn of(mut grant: UndeliveredGrant) -> Self {
        Self(AsyncMutex::new(grant.0.take()))
    }

    pub(crate) fn new(grant: Grant) -> Self {
        Self(AsyncMutex::new(Some(grant)))
    }

    /// What does not change while the grant is held.
    pub(crate) fn told(&self) -> Value {
        let Some(held) = self.0.try_lock().ok() else { return Value::Null };
        let Some(grant) = held.as_ref() else { return Value::Null };
        let cost = |name: &str| grant.cost(name).map(tokens).unwrap_or_default();
        let costs: Map<_, _> =
            grant.dimensions().map(|name| (name.to_string(), json!(cost(name.as_str())))).collect();
        json!({
            "costs": costs,
            "startAt": instant(grant.start_at()),
            "bookedWaitMs": ms(grant.booked_wait()),
            "basis": basis(grant.basis()),
        })
    }

    pub(crate) async fn take(&self) -> Result<Grant, Failure> {
        self.0.lock().await.take().ok_or_else(Failure::ended)
    }

    /// Takes the grant out, if no operation uses it.
    pub(crate) fn try_take(&self) -> Result<Grant, Failure> {
        self.0.try_lock().ok().and_then(|mut held| held.take()).ok_or_else(Failure::ended)
    }

    pub(crate) fn put_back(&self, grant: Grant) {
        if let Ok(mut held) = self.0.try_lock() {
            *held = Some(grant);
        }
    }
}

/// How the closure of a slot ended without success.
#[derive(Debug)]
enum NoSuccess {
    /// The call failed.
    CallFailed,
    Limit(LimitError),
}

impl From<LimitError> for NoSuccess {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

/// The task that holds the slot.
type Running = JoinHandle<Result<(), NoSuccess>>;

/// A slot that is under way. If it is dropped before its end, the slot is given back, and its tokens stay as
/// taken: the vendor may have counted them.
#[derive(Debug)]
pub struct RunningSlot {
    slot: Slot,
    end: Option<(oneshot::Sender<bool>, Running)>,
}

/// A slot that the caller has.
pub(crate) struct HeldSlot {
    pub(crate) slot: Slot,
    pub(crate) running: Mutex<Option<RunningSlot>>,
}

impl RunningSlot {
    /// Waits for the start. If this future is dropped, nothing is held.
    ///
    /// # Errors
    /// [`LimitError`]: why the slot did not start.
    pub async fn start(builder: SlotBuilder) -> Result<Self, LimitError> {
        let (started, starts) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let run = builder.run(async move |slot: Slot| {
            let _ = started.send(slot);
            match ended.await {
                Ok(true) => Err(NoSuccess::CallFailed),
                _ => Ok(()),
            }
        });
        // Callers wait in the order in which they came: the wait begins here, and not when a task is
        // scheduled.
        let mut run = Box::pin(run);
        let started = tokio::select! {
            biased;
            slot = starts => slot,
            ended = &mut run => {
                return Err(match ended {
                    Err(NoSuccess::Limit(error)) => error,
                    _ => LimitError::Closed,
                });
            }
        };
        let slot = started.map_err(|_| LimitError::Closed)?;
        Ok(Self { slot, end: Some((end, tokio::spawn(run))) })
    }

    /// The slot, as its call has it.
    #[must_use]
    pub const fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Ends the call. Waits until what the slot held is given back, 3 s at most.
    ///
    /// # Errors
    /// [`LimitError`]: what the SDK says of the end of the slot.
    pub async fn end(mut self, has_failed: bool) -> Result<(), LimitError> {
        let Some((end, task)) = self.end.take() else { return Ok(()) };
        let _ = end.send(has_failed);
        match task.await {
            Ok(Err(NoSuccess::Limit(error))) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        if let Some((_, task)) = self.end.take() {
            task.abort();
        }
    }
}
