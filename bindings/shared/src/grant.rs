//! Operations on a grant.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::LimitError;

use crate::answer::{Answer, Bytes, Operation, begin, operation};
use crate::arguments::{Costs, Head, Number, OwnReply, headers, read, usage};
use crate::failure::Failure;
use crate::held::HeldGrant;
use crate::values::instant;

#[derive(Deserialize)]
struct Settle {
    dimension: String,
    used: Number,
}

#[derive(Deserialize)]
pub(crate) struct Observe {
    pub(crate) dimension: String,
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Deserialize)]
pub(crate) struct OfReply {
    #[serde(flatten)]
    pub(crate) head: Head,
    #[serde(default)]
    pub(crate) used: Option<Costs>,
}

pub(crate) fn call(held: &Arc<HeldGrant>, name: &str, arguments: Value, bytes: Bytes) -> Option<Operation> {
    let held = Arc::clone(held);
    Some(match name {
        "release" => operation(async move { Ok::<_, Failure>(held.take().await?.release().await?) }),
        "failed" => operation(async move { Ok::<_, Failure>(held.take().await?.failed().await?) }),
        "cancel" => operation(async move {
            held.take().await?.cancel().await;
            Ok::<_, Failure>(())
        }),
        "renew" => operation(async move {
            let mut held = held.0.lock().await;
            Ok::<_, Failure>(held.as_mut().ok_or_else(Failure::ended)?.renew().await?)
        }),
        "settle" => begin(read::<Settle>(name, arguments), |Settle { dimension, used }| {
            operation(async move {
                let mut held = held.0.lock().await;
                Ok::<_, Failure>(held.as_mut().ok_or_else(Failure::ended)?.settle(&dimension, used).await?)
            })
        }),
        "observe" => begin(read::<Observe>(name, arguments), |of| {
            operation(async move {
                let held = held.0.lock().await;
                let grant = held.as_ref().ok_or_else(Failure::ended)?;
                Ok::<_, Failure>(grant.observe(&of.dimension, &headers(of.headers)).await?)
            })
        }),
        "reply" => begin(read::<OfReply>(name, arguments), |OfReply { head, used }| {
            let reply = OwnReply::new(head, bytes);
            operation(async move {
                let mut held = held.0.lock().await;
                let grant = held.as_mut().ok_or_else(Failure::ended)?;
                let replied: Result<_, LimitError> = grant.reply(reply.as_reply(), usage(used)).await;
                Ok::<_, Failure>(replied?)
            })
        }),
        _ => return None,
    })
}

/// What changes while the grant is held.
pub(crate) fn look(held: &HeldGrant, name: &str) -> Result<Answer, Failure> {
    if name != "state" {
        return Err(Failure::argument(format!("a grant has no operation {name:?}")));
    }
    let value = match held.0.try_lock() {
        Ok(held) => match held.as_ref() {
            Some(grant) => json!({
                "hasEnded": false,
                "isLeaseLost": grant.is_lease_lost(),
                "leaseEnds": grant.lease_ends().map(instant),
            }),
            None => json!({ "hasEnded": true, "isLeaseLost": false, "leaseEnds": null }),
        },
        // An operation uses the grant.
        Err(_) => json!({ "hasEnded": false, "isLeaseLost": false, "leaseEnds": null }),
    };
    Ok(Answer { value, ..Answer::default() })
}
