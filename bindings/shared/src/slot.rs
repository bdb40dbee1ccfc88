//! Operations on a slot.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::Dimension;

use crate::answer::{Answer, Bytes, Kind, Operation, begin, operation};
use crate::arguments::{Number, OwnReply, headers, read, usage};
use crate::failure::Failure;
use crate::grant::{Observe, OfReply};
use crate::held::{HeldSlot, RunningSlot};
use crate::values::{instant, ms};
use crate::words::basis;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    has_failed: bool,
}

#[derive(Deserialize)]
struct Used {
    dimension: String,
    used: Number,
}

/// A slot that has started, and what its caller is told about it.
pub(crate) fn delivered(running: RunningSlot) -> Answer {
    let slot = running.slot().clone();
    let value = json!({
        "acquiringMs": ms(slot.acquiring()),
        "startAt": instant(slot.start_at()),
        "basis": basis(slot.basis()),
        "concurrencyLimits": slot.concurrency_limits().iter().map(Dimension::as_str).collect::<Vec<_>>(),
    });
    let made = Kind::Slot(Arc::new(HeldSlot { slot, running: Mutex::new(Some(running)) }));
    Answer { value, made: Some(made.into()), ..Answer::default() }
}

pub(crate) fn call(held: &Arc<HeldSlot>, name: &str, arguments: Value, bytes: Bytes) -> Option<Operation> {
    let held = Arc::clone(held);
    Some(match name {
        // Waits until what the slot held is given back, 3 s at most. The second time, it does nothing.
        "end" => begin(read::<End>(name, arguments), |End { has_failed }| {
            operation(async move {
                let running = held.running.lock().take();
                match running {
                    Some(running) => running.end(has_failed).await,
                    None => Ok(()),
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

/// What is told or done without a wait. `abandon` gives the slot back, and its tokens stay as they were
/// taken.
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
