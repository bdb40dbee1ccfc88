//! Limits that vendors publish.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// A limit that a vendor publishes: what a file of buckets starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedLimit {
    /// The tier or plan of the account, as the vendor calls it. `None` if the vendor has none.
    pub tier: Option<String>,
    /// The model. `None` if the limit is of the account.
    pub model: Option<String>,
    /// The last part of a bucket's name, as in `tpm`: requests, tokens, input tokens or output tokens (`rpm`,
    /// `tpm`, `itpm`, `otpm`, with `d` for a day and `s` for a second), or calls at once (`concurrent`).
    pub metric: String,
    /// Requests or tokens in each window; calls at once.
    pub amount: u64,
    /// The window. `None` for calls at once.
    pub window: Option<Duration>,
    /// How the vendor counts.
    pub counts: Counts,
    /// The page that says so.
    pub source: String,
}

/// How a vendor counts against a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counts {
    /// It flows back continuously.
    #[default]
    Bucket,
    /// In any window of time.
    Sliding,
    /// Anew each minute, hour or day.
    Fixed,
}

/// The metrics that a table may have, each with its window.
const METRICS: &[(&str, Option<Duration>)] = &[
    ("rps", Some(Duration::from_secs(1))),
    ("rpm", Some(Duration::from_secs(60))),
    ("rpd", Some(Duration::from_secs(86_400))),
    ("tpm", Some(Duration::from_secs(60))),
    ("tpd", Some(Duration::from_secs(86_400))),
    ("itpm", Some(Duration::from_secs(60))),
    ("otpm", Some(Duration::from_secs(60))),
    ("concurrent", None),
];

/// A table of limits as a profile writes it: a row for each metric, in which each tier has its column.
///
/// ```toml
/// [[limits]]
/// models = ["gpt-4o"]      # those that have these limits, each its own; without it, the limits are of the account
/// tiers = ["1", "2"]       # without it, each row has one amount
/// rpm = [500, 5_000]
/// tpm = [30_000, 450_000]  # 0: the page states none for that tier
/// source = "https://.."
/// ```
#[derive(Deserialize)]
struct LimitTable {
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    tiers: Vec<String>,
    #[serde(default)]
    counts: Counts,
    source: String,
    #[serde(flatten)]
    rows: BTreeMap<String, Vec<u64>>,
}

/// All limits of the tables: by table, tier, model and metric.
pub(super) fn tables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PublishedLimit>, D::Error> {
    let mut limits = Vec::new();
    for table in Vec::<LimitTable>::deserialize(from)? {
        table.check().map_err(D::Error::custom)?;
        limits.extend(table.limits());
    }
    Ok(limits)
}

impl LimitTable {
    fn check(&self) -> Result<(), String> {
        let columns = self.tiers.len().max(1);
        for (metric, amounts) in &self.rows {
            if METRICS.iter().all(|(known, _)| known != metric) {
                let known = METRICS.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
                return Err(format!("{metric:?} is no metric of published limits: take one of {known}"));
            }
            if amounts.len() != columns {
                let has = amounts.len();
                return Err(format!(
                    "the row {metric} needs one amount for each of {columns} tiers, and has {has}"
                ));
            }
        }
        Ok(())
    }

    fn limits(&self) -> Vec<PublishedLimit> {
        let tiers: Vec<Option<&String>> =
            if self.tiers.is_empty() { vec![None] } else { self.tiers.iter().map(Some).collect() };
        let models: Vec<Option<&String>> =
            if self.models.is_empty() { vec![None] } else { self.models.iter().map(Some).collect() };
        let mut limits = Vec::new();
        for (column, tier) in tiers.into_iter().enumerate() {
            for model in &models {
                for (metric, window) in METRICS {
                    let amount = self.rows.get(*metric).and_then(|row| row.get(column)).copied().unwrap_or(0);
                    if amount > 0 {
                        limits.push(PublishedLimit {
                            tier: tier.cloned(),
                            model: model.cloned(),
                            metric: (*metric).to_owned(),
                            amount,
                            window: *window,
                            counts: self.counts,
                            source: self.source.clone(),
                        });
                    }
                }
            }
        }
        limits
    }
}
