//! The reservation tracker, and the estimator of tokens.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::core::Timestamp;
use sluice_sdk::reservations::{ReservationTracker, Tracked};
use sluice_sdk::{EstimatorConfig, TokenEstimator};

use crate::answer::{Answer, Kind, Operation, Target, operation};
use crate::arguments::{Ms, read};
use crate::failure::Failure;
use crate::held::HeldGrant;
use crate::values::ToJson as _;

pub(crate) fn call(tracker: &ReservationTracker, name: &str, _arguments: Value) -> Option<Operation> {
    let tracker = tracker.clone();
    Some(match name {
        "releaseStale" => operation(async move { Ok::<_, Failure>(tracker.release_stale().await) }),
        "stop" => operation(async move {
            tracker.stop().await;
            Ok::<_, Failure>(())
        }),
        _ => return None,
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ids {
    #[serde(default)]
    request_id: String,
    bucket_id: Option<String>,
    /// Since 1970.
    stored_before: Option<Ms>,
}

/// What the tracker does without a wait. `grant` is that of `store`.
pub(crate) fn look(
    tracker: &ReservationTracker,
    name: &str,
    arguments: Value,
    grant: Option<&Arc<HeldGrant>>,
) -> Result<Answer, Failure> {
    let told = |value: Value| Ok(Answer { value, ..Answer::default() });
    let Ids { request_id: request, bucket_id, stored_before } =
        if arguments.is_null() { Ids::default() } else { read(name, arguments)? };
    let bucket = bucket_id.as_deref().unwrap_or_default();
    let taken = |tracked: Vec<Tracked>| {
        Ok(Answer { more: tracked.into_iter().map(of).collect(), ..Answer::default() })
    };
    match (name, grant) {
        ("store", Some(held)) => {
            // After an error, the caller still holds the grant.
            match tracker.store(&request, bucket, held.try_take()?) {
                Ok(id) => told(json!(id.to_string())),
                Err(refused) => {
                    let failure = Failure::from(&refused);
                    held.put_back(refused.into_grant());
                    Err(failure)
                }
            }
        }
        ("get", _) => told(tracker.get(&request, bucket).to_json()),
        ("take", _) if bucket_id.is_none() => taken(tracker.take_oldest(&request).into_iter().collect()),
        ("take", _) => taken(tracker.take(&request, bucket).into_iter().collect()),
        ("takeRequest", _) => taken(tracker.take_request(&request)),
        ("takeStale", _) => taken(match stored_before {
            Some(Ms(since)) => tracker.take_stored_before(Timestamp::from_micros(0).after(since)),
            None => tracker.take_stale(),
        }),
        ("staleReport", _) => told(tracker.stale_report().to_json()),
        ("compact", _) => told(json!(tracker.compact())),
        ("start", _) => {
            tracker.start();
            told(Value::Null)
        }
        ("counts", _) => told(json!({
            "staleEntryRatio": tracker.stale_entry_ratio(),
            "reservationCount": tracker.reservation_count(),
            "requestCount": tracker.request_count(),
        })),
        _ => Err(Failure::argument(format!("a tracker has no operation {name:?}"))),
    }
}

fn of(tracked: Tracked) -> (Value, Target) {
    let Tracked { reservation, grant, .. } = tracked;
    let held = HeldGrant::new(grant);
    let value = json!({ "reservation": reservation.to_json(), "grant": held.told() });
    (value, Kind::Grant(Arc::new(held)).into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Estimating {
    quantile: Option<f64>,
    half_life_calls: Option<u32>,
    max_keys: Option<usize>,
}

pub(crate) fn estimator(settings: Value) -> Result<Target, Failure> {
    let asked: Estimating = read("estimator", settings)?;
    let mut config = EstimatorConfig::default();
    asked.quantile.into_iter().for_each(|quantile| config.quantile = quantile);
    asked.half_life_calls.into_iter().for_each(|calls| config.half_life_calls = calls);
    asked.max_keys.into_iter().for_each(|most| config.max_keys = most);
    Ok(Kind::Estimator(Arc::new(TokenEstimator::new(&config))).into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Estimated {
    #[serde(default)]
    key: String,
    used: Option<u64>,
}

pub(crate) fn look_at_estimator(
    estimator: &TokenEstimator,
    name: &str,
    arguments: Value,
) -> Result<Answer, Failure> {
    let Estimated { key, used } = read(name, arguments)?;
    let value = match (name, used) {
        ("observe", Some(used)) => {
            estimator.observe(&key, used);
            Value::Null
        }
        ("estimate", _) => json!(estimator.estimate(&key)),
        ("keyCount", _) => json!(estimator.key_count()),
        _ => return Err(Failure::argument(format!("an estimator has no operation {name:?}"))),
    };
    Ok(Answer { value, ..Answer::default() })
}
