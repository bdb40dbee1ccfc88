//! What goes wrong on the way to DynamoDB, drawn from the seed: each kind by name, so that a run can say
//! which of them it met.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use sluice_testkit::{Alteration, Call, Fault, Operation};

use crate::wire::is_give_back;

/// A fault, and whether its sender cannot know what became of the request.
pub(crate) struct Drawn {
    pub(crate) name: &'static str,
    pub(crate) fault: Fault,
    pub(crate) in_doubt: bool,
}

/// Every kind of fault of the network and of DynamoDB. A run over many seeds in which one never fired has
/// failed.
pub(crate) const KINDS: [&str; 21] = [
    "connection reset, request lost",
    "connection reset, reply lost",
    "delivered twice",
    "delivered late",
    "delayed request",
    "delayed reply",
    "no answer",
    "token forgotten",
    "conflict (single write)",
    "conflict (cancellation)",
    "throttled (cancellation)",
    "mixed reasons",
    CONFLICT_BESIDE_CONDITION,
    "validation error (cancellation)",
    "transaction in progress",
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "HTTP 500, not applied",
    "HTTP 500, applied",
    "HTTP 503",
];

/// An action whose condition failed beside one in conflict. Counted where there was such an action.
pub(crate) const CONFLICT_BESIDE_CONDITION: &str = "a conflict beside a failed condition";

/// Draws a kind until one fits the request. `told` is called when an answer turns out to be one that can be
/// altered.
pub(crate) fn draw(rng: &mut Rng, call: Call<'_>, told: impl Fn() + Clone + Send + Sync + 'static) -> Drawn {
    loop {
        // It also shows where a condition fails, which is rare enough.
        let is_rare = call.operation == Operation::TransactWriteItems && rng.u32(0..6) == 0;
        let name = if is_rare { CONFLICT_BESIDE_CONDITION } else { KINDS[rng.usize(0..KINDS.len())] };
        let fault = match name {
            CONFLICT_BESIDE_CONDITION if call.operation == Operation::TransactWriteItems => {
                Some(conflict_beside_condition(told.clone()))
            }
            CONFLICT_BESIDE_CONDITION => None,
            _ => make(name, rng, call),
        };
        if let Some(fault) = fault {
            let is_write =
                !matches!(call.operation, Operation::GetItem | Operation::BatchGetItem | Operation::Scan);
            return Drawn { name, fault, in_doubt: is_write && leaves_doubt(name) };
        }
    }
}

/// Whether the request may have been applied without its sender knowing, or twice.
fn leaves_doubt(name: &str) -> bool {
    let kinds = [
        "connection reset, reply lost",
        "delivered twice",
        "delivered late",
        "delayed request",
        "delayed reply",
        "token forgotten",
        "HTTP 500, applied",
    ];
    kinds.contains(&name)
}

fn make(name: &'static str, rng: &mut Rng, call: Call<'_>) -> Option<Fault> {
    let transaction = call.operation == Operation::TransactWriteItems;
    let single_write =
        matches!(call.operation, Operation::PutItem | Operation::UpdateItem | Operation::DeleteItem);
    Some(match name {
        "connection reset, request lost" => Fault::LoseRequest,
        "connection reset, reply lost" => Fault::LoseReply,
        // A return of tokens is the one write that must not be repeated; its sender never does, and nothing
        // on the way may.
        "delivered twice" if transaction || (single_write && !is_give_back(call)) => Fault::Repeat,
        "delivered late" => Fault::Late(Duration::from_millis(rng.u64(1..=10_000))),
        // Up to beyond the second after which its sender gives up.
        "delayed request" => Fault::Delay(Duration::from_millis(rng.u64(100..=3_000))),
        "delayed reply" => Fault::DelayReply(Duration::from_millis(rng.u64(100..=3_000))),
        "no answer" => Fault::Hang,
        "token forgotten" if transaction => Fault::LoseReplyAndToken,
        "conflict (single write)" if single_write => Fault::conflict(),
        "conflict (cancellation)" if transaction => cancelled(rng, call, &["None", "TransactionConflict"]),
        "throttled (cancellation)" if transaction => {
            cancelled(rng, call, &["None", "ThrottlingError", "ProvisionedThroughputExceeded"])
        }
        "mixed reasons" if transaction => {
            let codes = ["None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
            cancelled(rng, call, &codes)
        }
        "validation error (cancellation)" if transaction && rng.u32(0..4) == 0 => cancelled(
            rng,
            call,
            &["None", "TransactionConflict", "ItemCollectionSizeLimitExceeded", "ValidationError"],
        ),
        "transaction in progress" if transaction => service("TransactionInProgressException", 400),
        "ThrottlingException" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded" => {
            service(name, 400)
        }
        "HTTP 500, not applied" => service("InternalServerError", 500),
        "HTTP 500, applied" => Fault::FailAfterwards,
        "HTTP 503" => service("ServiceUnavailable", 503),
        _ => return None,
    })
}

fn service(exception: &str, status: u16) -> Fault {
    Fault::service(exception, status, json!({ "message": "injected" }))
}

/// One code for each action of the transaction; the last of `codes` is among them, and of several actions two
/// differ where there are two codes that are no `None`.
fn cancelled(rng: &mut Rng, call: Call<'_>, codes: &[&'static str]) -> Fault {
    let request: serde_json::Value = serde_json::from_slice(call.body).unwrap_or_default();
    let actions = request["TransactItems"].as_array().map_or(1, Vec::len);
    let mut drawn: Vec<&str> = (0..actions).map(|_| codes[rng.usize(0..codes.len())]).collect();
    let faults: Vec<&str> = codes.iter().copied().filter(|code| *code != "None").rev().take(2).collect();
    for (action, code) in drawn.iter_mut().zip(faults) {
        *action = code;
    }
    rng.shuffle(&mut drawn);
    Fault::cancelled(&drawn)
}

/// Where a condition failed, every other action says that it met a conflict: nothing is known of those.
fn conflict_beside_condition(told: impl Fn() + Send + Sync + 'static) -> Fault {
    Fault::Alter(Alteration::new(move |body| {
        let Ok(mut reply) = serde_json::from_slice::<serde_json::Value>(body) else { return body.to_vec() };
        let Some(reasons) = reply["CancellationReasons"].as_array_mut() else { return body.to_vec() };
        if reasons.iter().any(|reason| reason["Code"] == "ConditionalCheckFailed") {
            for reason in reasons.iter_mut().filter(|reason| reason["Code"] == "None") {
                *reason = json!({ "Code": "TransactionConflict", "Message": "injected" });
                told();
            }
        }
        reply.to_string().into_bytes()
    }))
}

/// What a healthy request takes, one way.
pub(crate) fn latency(rng: &mut Rng) -> Fault {
    let takes = Duration::from_micros(rng.u64(500..=30_000));
    if rng.bool() { Fault::Delay(takes) } else { Fault::DelayReply(takes) }
}
