//! What operators do, for tests and scripts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::ops::{Applied, BucketRow, LeaseRow, Ops, SweepOptions, SweepReport};

use crate::answer::{Operation, begin, operation};
use crate::arguments::{Ms, dimension, read, time};
use crate::bucket_now::BucketNow;
use crate::failure::Failure;
use crate::limits::{LimitAsked, ShareAsked, split};
use crate::values::{ToJson, instant, ms};
use crate::words::applied;

#[derive(Deserialize)]
struct ApplyLimit {
    dimension: String,
    limit: LimitAsked,
    /// Without them, those of the bucket stay.
    shares: Option<BTreeMap<String, ShareAsked>>,
}

#[derive(Deserialize)]
struct Named {
    dimension: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sweep {
    budget_ms: Option<Ms>,
}

pub(crate) fn call(ops: Ops, name: &str, arguments: Value) -> Option<Operation> {
    let named = |arguments| read::<Named>(name, arguments).and_then(|named| dimension(&named.dimension));
    Some(match name {
        "applyLimit" => {
            let asked = read::<ApplyLimit>(name, arguments).and_then(
                |ApplyLimit { dimension: name, limit, shares }| {
                    let (dimension, limit) = (dimension(&name)?, limit.limit()?);
                    Ok((dimension, limit, shares.map(|shares| split(limit, shares)).transpose()?))
                },
            );
            begin(asked, |(dimension, limit, split)| {
                operation(async move {
                    match split {
                        Some(split) => ops.apply_split(&dimension, &split).await,
                        None => ops.apply_limit(&dimension, &limit).await,
                    }
                })
            })
        }
        "bucket" => begin(named(arguments), |dimension| {
            operation(async move {
                let bucket = ops.bucket(&dimension).await?;
                Ok::<_, Failure>(bucket.map(|bucket| BucketNow::new(bucket, &ops)))
            })
        }),
        "buckets" => operation(async move {
            // Rows that cannot be read are for the command `sluice`, which says what is wrong with them.
            let read = |row: BucketRow| row.bucket.ok().map(|bucket| BucketNow::new(bucket, &ops));
            let buckets = ops.buckets().await?.into_iter().filter_map(read).collect::<Vec<_>>();
            Ok::<_, Failure>(buckets)
        }),
        "removeBucket" => {
            begin(named(arguments), |dimension| operation(async move { ops.remove_bucket(&dimension).await }))
        }
        "leases" => operation(async move { ops.leases().await }),
        "sweep" => begin(read::<Sweep>(name, arguments), |Sweep { budget_ms }| {
            operation(async move {
                let mut options = SweepOptions::from_env()?;
                options.budget = time(budget_ms);
                Ok::<_, Failure>(ops.sweep(options).await?)
            })
        }),
        _ => return None,
    })
}

impl ToJson for BucketNow {
    fn to_json(&self) -> Value {
        json!({
            "dimension": self.bucket.dimension().as_str(),
            "limit": self.bucket.limit().to_json(),
            "level": self.level,
            "coolingDownUntil": self.cooling_down_until.map(instant),
        })
    }
}

impl ToJson for Applied {
    fn to_json(&self) -> Value {
        json!(applied(self))
    }
}

impl ToJson for LeaseRow {
    fn to_json(&self) -> Value {
        let lease = self.lease.as_ref().ok();
        json!({
            "key": self.key,
            "dimension": lease.map(|lease| lease.dimension().as_str()),
            "ends": lease.map(|lease| instant(lease.ends())),
            "caller": lease.and_then(|lease| lease.caller()),
            "isInline": self.is_inline,
        })
    }
}

impl ToJson for SweepReport {
    fn to_json(&self) -> Value {
        json!({
            "rowsScanned": self.rows_scanned,
            "expired": self.expired,
            "restored": self.restored,
            "restoredSlots": self.restored_slots,
            "unparsable": self.unparsable,
            "unreadableBuckets": self.unreadable_buckets,
            "left": self.left,
            "requests": self.requests,
            "durationMs": ms(self.duration),
        })
    }
}
