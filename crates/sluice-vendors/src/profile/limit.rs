//! Limits that vendors publish.

use std::time::Duration;

use serde::Deserialize;

use super::text;

/// A limit that a vendor publishes: what a file of buckets starts from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PublishedLimit {
    /// The tier or plan of the account, as the vendor calls it. `None` if the vendor has none.
    pub tier: Option<String>,
    /// The model. `None` if the limit is of the account.
    pub model: Option<String>,
    /// The last part of a bucket's name, as in `tpm`: requests, tokens, input tokens or output tokens (`rpm`, `tpm`,
    /// `itpm`, `otpm`, with `d` for a day), or calls at once (`concurrent`).
    pub metric: String,
    /// Requests or tokens in each window; calls at once.
    pub amount: u64,
    /// The window. `None` for calls at once.
    #[serde(default, deserialize_with = "text::optional")]
    pub window: Option<Duration>,
    /// How the vendor counts.
    #[serde(default)]
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
