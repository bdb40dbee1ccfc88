//! A slot whose call runs in the other language. The SDK runs the slot in a task, whose closure waits for the end of the
//! call.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::{Dimension, LimitError, Slot, SlotBuilder};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::arguments::{Number, OwnReply, headers, read, usage};
use crate::failure::Failure;
use crate::grant::OfReply;
use crate::target::{Answer, Bytes, Kind, Operation, begin, operation};
use crate::values::{basis, instant, ms};

/// How the closure of a slot ended without success.
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

/// A slot that is under way. If it is dropped before its end, the slot is given back, and its tokens stay as taken: the
/// vendor may have counted them.
pub(crate) struct RunningSlot {
    slot: Slot,
    end: Option<(oneshot::Sender<bool>, Running)>,
}

/// A slot that the caller has.
pub(crate) struct HeldSlot {
    slot: Slot,
    running: Mutex<Option<RunningSlot>>,
}

impl RunningSlot {
    /// Waits for the start. If this future is dropped, nothing is held.
    pub(crate) async fn start(builder: SlotBuilder) -> Result<Self, LimitError> {
        let (started, starts) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let run = builder.run(async move |slot: Slot| {
            let _ = started.send(slot);
            match ended.await {
                Ok(true) => Err(NoSuccess::CallFailed),
                _ => Ok(()),
            }
        });
        // Callers wait in the order in which they came: the wait begins here, and not when a task is scheduled.
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

    pub(crate) fn delivered(self) -> Answer {
        let slot = self.slot.clone();
        let value = json!({
            "acquiringMs": ms(slot.acquiring()),
            "startAt": instant(slot.start_at()),
            "basis": basis(slot.basis()),
            "concurrencyLimits": slot.concurrency_limits().iter().map(Dimension::as_str).collect::<Vec<_>>(),
        });
        let made = Kind::Slot(Arc::new(HeldSlot { slot, running: Mutex::new(Some(self)) }));
        Answer { value, made: Some(made.into()), ..Answer::default() }
    }
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        if let Some((_, task)) = self.end.take() {
            task.abort();
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    has_failed: bool,
}

#[derive(Deserialize)]
struct Observe {
    dimension: String,
    headers: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Used {
    dimension: String,
    used: Number,
}

pub(crate) fn call(held: &Arc<HeldSlot>, name: &str, arguments: Value, bytes: Bytes) -> Option<Operation> {
    let held = Arc::clone(held);
    Some(match name {
        // Waits until what the slot held is given back, 3 s at most. The second time, it does nothing.
        "end" => begin(read::<End>(name, arguments), |End { has_failed }| {
            operation(async move {
                let running = held.running.lock().take().and_then(|mut running| running.end.take());
                let Some((end, task)) = running else { return Ok(()) };
                let _ = end.send(has_failed);
                match task.await {
                    Ok(Err(NoSuccess::Limit(error))) => Err(error),
                    _ => Ok(()),
                }
            })
        }),
        "observe" => begin(read::<Observe>(name, arguments), |of| {
            operation(async move { held.slot.observe(&of.dimension, &headers(of.headers)).await })
        }),
        "reply" => begin(read::<OfReply>(name, arguments), |OfReply { head, used }| {
            let reply = OwnReply::new(head, bytes);
            operation(async move { held.slot.reply(reply.as_reply(), usage(used)).await })
        }),
        _ => return None,
    })
}

/// What is told or done without a wait. `abandon` gives the slot back, and its tokens stay as they were taken.
pub(crate) fn look(held: &HeldSlot, name: &str, arguments: Value) -> Result<Answer, Failure> {
    let told = |value: Value| Ok(Answer { value, ..Answer::default() });
    match name {
        "used" => {
            let Used { dimension, used } = read(name, arguments)?;
            held.slot.used(&dimension, used)?;
            told(Value::Null)
        }
        "abandon" => {
            drop(held.running.lock().take());
            told(Value::Null)
        }
        "isLeaseLost" => told(json!(held.slot.is_lease_lost())),
        "startIn" => {
            let dimension: String = read(name, arguments)?;
            told(json!(held.slot.start_in(&dimension).map(instant)))
        }
        _ => Err(Failure::argument(format!("a slot has no operation {name:?}"))),
    }
}
