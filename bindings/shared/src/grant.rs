//! What a caller holds.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_sdk::{Grant, LimitError};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::arguments::{Costs, Head, Number, OwnReply, read, usage};
use crate::failure::Failure;
use crate::target::{Answer, Bytes, Operation, begin, operation};
use crate::values::{basis, instant, ms, tokens};

/// A grant that its caller does not have yet. If it never gets there, as after a cancellation, everything goes back.
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
pub(crate) struct HeldGrant(Mutex<Option<Grant>>);

impl HeldGrant {
    pub(crate) fn of(mut grant: UndeliveredGrant) -> Self {
        Self(Mutex::new(grant.0.take()))
    }

    pub(crate) fn new(grant: Grant) -> Self {
        Self(Mutex::new(Some(grant)))
    }

    /// What does not change while the grant is held.
    pub(crate) fn told(&self) -> Value {
        let Some(held) = self.0.try_lock().ok() else { return Value::Null };
        let Some(grant) = held.as_ref() else { return Value::Null };
        let cost = |name: &str| grant.cost(name).map(tokens).unwrap_or_default();
        let costs: Map<_, _> = grant.dimensions().map(|name| (name.to_string(), json!(cost(name.as_str())))).collect();
        json!({
            "costs": costs,
            "startAt": instant(grant.start_at()),
            "bookedWaitMs": ms(grant.booked_wait()),
            "basis": basis(grant.basis()),
        })
    }

    async fn take(&self) -> Result<Grant, Failure> {
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

#[derive(Deserialize)]
struct Settle {
    dimension: String,
    used: Number,
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
