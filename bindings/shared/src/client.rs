//! Operations on a client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::admission::Admit as AdmitAsked;
use sluice_sdk::core::{COMMON, ShareName};
use sluice_sdk::reservations::ReservationConfig;
use sluice_sdk::{Client, Dimension, LimitError, Outcome, Redeemed, SlotBuilder, Ticket};

use crate::answer::{Answer, Bytes, Kind, Operation, begin, operation};
use crate::arguments::{
    Asked, Head, Inside, Ms, NothingElse, Number, OwnReply, dimension, headers, read, time,
};
use crate::failure::Failure;
use crate::held::{HeldGrant, RunningSlot, UndeliveredGrant};
use crate::slot::delivered;
use crate::values::{instant, ms};
use crate::{http, limits};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Acquire {
    #[serde(flatten)]
    asked: Asked,
    ticket_within_ms: Option<Ms>,
    with_ticket: Option<String>,
    #[serde(flatten)]
    _rest: NothingElse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlotAsked {
    #[serde(flatten)]
    asked: Asked,
    max_wait_ms: Option<Ms>,
    timeout_ms: Option<Ms>,
    #[serde(default)]
    inside: Inside,
    #[serde(flatten)]
    _rest: NothingElse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Admit {
    dimension: String,
    cost: Option<Number>,
    slo_ms: Option<Ms>,
    backlog: Option<Number>,
    share: Option<String>,
}

#[derive(Deserialize)]
struct OfReply {
    #[serde(flatten)]
    asked: Asked,
    #[serde(flatten)]
    head: Head,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    dimension: String,
    #[serde(default)]
    ticket: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    factor: Option<f64>,
    pause_ms: Option<Ms>,
    within_ms: Option<Ms>,
    level: Option<Number>,
}

/// An operation by its name; `None` if there is no such.
pub(crate) fn call(client: &Client, name: &str, arguments: Value, bytes: Bytes) -> Option<Operation> {
    let client = client.clone();
    let named = |arguments| read::<Named>(name, arguments);
    Some(match name {
        "acquire" => begin(read::<Acquire>(name, arguments), |acquire| operation(acquired(client, acquire))),
        "slot" => begin(read::<SlotAsked>(name, arguments), |asked| {
            let (inside, slot) = slot(&client, asked);
            let started = async move { RunningSlot::start(slot).await.map(delivered) };
            operation(client.inside_slots(&inside, started))
        }),
        "slotGrant" => begin(read::<SlotAsked>(name, arguments), |asked| {
            let (inside, slot) = slot(&client, asked);
            let waited =
                async move { Ok::<_, LimitError>(granted(UndeliveredGrant::new(slot.grant().await?))) };
            operation(client.inside_slots(&inside, waited))
        }),
        "redeem" => begin(named(arguments), |Named { ticket, .. }| operation(redeemed(client, ticket))),
        "admit" => begin(read::<Admit>(name, arguments), |asked| {
            operation(async move {
                let Admit { dimension, cost, slo_ms, backlog, share } = asked;
                let asked = client.admit(&dimension, cost.unwrap_or(Number::Whole(1)), time(slo_ms));
                let asked = backlog.into_iter().fold(asked, AdmitAsked::backlog);
                share.into_iter().fold(asked, AdmitAsked::share).await
            })
        }),
        "observe" => begin(named(arguments), |of| {
            operation(async move { client.observe(&of.dimension, &headers(of.headers), None).await })
        }),
        "onRateLimited" => begin(read::<OfReply>(name, arguments), |of| {
            let reply = OwnReply::new(of.head, bytes);
            operation(async move { client.on_rate_limited(of.asked.request(), reply.as_reply()).await })
        }),
        "penalize" => begin(named(arguments), |of| {
            operation(async move { client.penalize(&of.dimension, of.factor.unwrap_or(f64::NAN)).await })
        }),
        "coolDown" => begin(named(arguments), |of| {
            operation(
                async move { client.cool_down(&of.dimension, time(of.pause_ms).unwrap_or_default()).await },
            )
        }),
        "endCoolDown" => {
            begin(named(arguments), |of| operation(async move { client.end_cool_down(&of.dimension).await }))
        }
        "refill" => {
            begin(named(arguments).and_then(|of| Ok((limits::level(of.level)?, of.dimension))), |of| {
                operation(async move { client.refill(&of.1, of.0).await })
            })
        }
        "limit" => begin(named(arguments), |of| operation(async move { client.limit(&of.dimension).await })),
        "finishHealing" => operation(async move {
            client.finish_healing().await;
            Ok::<_, Failure>(())
        }),
        "close" => begin(named(arguments), |of| {
            let within = time(of.within_ms).unwrap_or(Duration::from_secs(10));
            operation(async move { Ok::<_, Failure>(client.close(within).await) })
        }),
        _ => return None,
    })
}

async fn acquired(client: Client, acquire: Acquire) -> Result<Answer, Failure> {
    let mut request = acquire.asked.request();
    if let Some(Ms(within)) = acquire.ticket_within_ms {
        request = request.ticket_within(within);
    }
    // Without a ticket that can be read, the call is acquired anew.
    let request = request.with_ticket(acquire.with_ticket.and_then(|text| text.parse().ok()));
    Ok(match client.acquire(request).await? {
        Outcome::Granted(grant) => granted(UndeliveredGrant::new(grant)),
        Outcome::RetryIn(retry) => retry.into(),
    })
}

async fn redeemed(client: Client, ticket: String) -> Result<Answer, Failure> {
    let ticket: Ticket = ticket.parse().map_err(|unreadable| Failure::new("RedeemError", unreadable))?;
    let answer = |reason: &str| Answer { value: json!({ "notRedeemed": reason }), ..Answer::default() };
    Ok(match client.redeem(&ticket).await? {
        Redeemed::Granted(grant) => granted(UndeliveredGrant::new(grant)),
        Redeemed::RetryIn(retry) => retry.into(),
        Redeemed::Spent => answer("spent"),
        _ => answer("lapsed"),
    })
}

/// A grant, and what its caller is told about it.
fn granted(grant: UndeliveredGrant) -> Answer {
    let held = HeldGrant::of(grant);
    Answer { value: held.told(), made: Some(Kind::Grant(Arc::new(held)).into()), ..Answer::default() }
}

fn slot(client: &Client, asked: SlotAsked) -> (Vec<Dimension>, SlotBuilder) {
    let SlotAsked { asked, max_wait_ms, timeout_ms, inside, .. } = asked;
    let slot = client.slot(asked.request());
    let slot = time(max_wait_ms).into_iter().fold(slot, SlotBuilder::max_wait);
    (inside.limits(), time(timeout_ms).into_iter().fold(slot, SlotBuilder::timeout))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tracking {
    max_reservations: Option<usize>,
    max_reservation_age_ms: Option<Ms>,
    stale_cleanup_interval_ms: Option<Ms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Limiting {
    pub(crate) vendor: Option<String>,
    pub(crate) buckets: Option<Vec<String>>,
    pub(crate) share: Option<String>,
    pub(crate) patience_ms: Option<Ms>,
    #[serde(default)]
    pub(crate) ask_usage: bool,
}

/// What a client tells or makes without a wait.
pub(crate) fn look(client: &Client, name: &str, arguments: Value) -> Result<Answer, Failure> {
    let told = |value: Value| Ok(Answer { value, ..Answer::default() });
    match name {
        "told" => told(json!({
            "table": client.table(),
            "inlineRetryThresholdMs": ms(client.inline_retry_threshold()),
            "longestAcquireMs": ms(client.longest_acquire()),
        })),
        "now" => told(instant(client.now())),
        "reservations" => {
            let asked: Tracking = read(name, arguments)?;
            let mut config = ReservationConfig::default();
            if let Some(most) = asked.max_reservations {
                config.max_reservations = most;
            }
            time(asked.max_reservation_age_ms).into_iter().for_each(|age| config.max_reservation_age = age);
            time(asked.stale_cleanup_interval_ms)
                .into_iter()
                .for_each(|every| config.stale_cleanup_interval = every);
            Ok(Answer::made(Kind::Tracker(client.reservations(config))))
        }
        "limiter" => {
            let asked: Limiting = read(name, arguments)?;
            asked.buckets.iter().flatten().try_for_each(|name| dimension(name).map(drop))?;
            if let Some(name) = asked.share.as_deref().filter(|name| *name != COMMON) {
                ShareName::new(name).map_err(|error| Failure::argument(error.to_string()))?;
            }
            Ok(Answer::made(Kind::Limiter(http::limiter(client.clone(), asked), client.clone())))
        }
        _ => Err(Failure::argument(format!("a client has no operation {name:?}"))),
    }
}

/// What is kept of a call until its end.
pub(crate) type Kept<T> = Arc<Mutex<Option<T>>>;
