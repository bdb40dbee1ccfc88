//! Which buckets a call takes from.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use sluice_sdk::{AcquireError, Client, Dimension, LimitError, Mode};
use tokio::time::{Instant, timeout};

use crate::costs::Taken;
use crate::limiter::Vendor;

/// The metrics that buckets of a vendor may have, as `sluice buckets init` writes them.
const METRICS: &[&str] = &["rpm", "rpd", "rps", "tpm", "tpd", "itpm", "otpm", "concurrent"];

/// How long the buckets of a model are believed. Larger learns later of a bucket that was added; smaller reads more.
const BELIEVED: Duration = Duration::from_secs(300);

/// How long they are believed beyond that while the table does not answer.
const BELIEVED_IN_OUTAGE: Duration = Duration::from_secs(1);

/// How often the log says that calls take from no bucket because the table does not answer.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The most models that are known at once. What is beyond is looked up by the vendor's name alone: the names of models
/// may come from a product's own callers.
const MOST_MODELS: usize = 200;

/// The buckets of each vendor and model.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// The buckets that the program named.
    named: Vec<Dimension>,
    found: Mutex<HashMap<Key, Found>>,
    /// When the log last said that calls of a shadow client are not limited, because the table does not
    /// answer.
    warned_at: Mutex<Option<Instant>>,
}

type Key = (String, String);

#[derive(Clone, Debug)]
struct Found {
    buckets: Arc<[Taken]>,
    until: Instant,
}

impl Buckets {
    pub(crate) fn named(dimensions: Vec<Dimension>) -> Self {
        Self { named: dimensions, ..Self::default() }
    }

    /// The buckets that a call to `model` takes from; none if nothing limits it.
    pub(crate) async fn of(&self, sluice: &Client, vendor: &Vendor, model: &str) -> Result<Arc<[Taken]>, LimitError> {
        let now = Instant::now();
        let mut key = (vendor.name.to_string(), model.to_owned());
        let known = {
            let mut found = self.found.lock();
            if found.len() >= MOST_MODELS && !found.contains_key(&key) {
                found.retain(|_, known| known.until > now);
                if found.len() >= MOST_MODELS {
                    key.1.clear();
                }
            }
            found.get(&key).cloned()
        };
        if let Some(known) = known.as_ref().filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.buckets));
        }
        let looked = match sluice.mode() {
            // The call of a shadow client is delayed no longer than an acquire may be.
            Mode::Shadow => timeout(sluice.longest_acquire(), self.look(sluice, &key)).await.ok(),
            _ => Some(self.look(sluice, &key).await),
        };
        let (buckets, until) = match (looked, known) {
            (Some(Ok(buckets)), _) => (buckets, now + BELIEVED),
            // The slot says what becomes of a call while the table does not answer.
            (_, Some(known)) => (known.buckets, now + BELIEVED_IN_OUTAGE),
            (Some(Err(error)), None) if sluice.mode() != Mode::Shadow => return Err(error),
            (looked, None) => {
                self.warn_unlimited(looked.and_then(Result::err));
                (Arc::default(), Instant::now() + BELIEVED_IN_OUTAGE)
            }
        };
        self.found.lock().insert(key, Found { buckets: Arc::clone(&buckets), until });
        Ok(buckets)
    }

    /// Says that calls of a shadow client take from no bucket.
    fn warn_unlimited(&self, error: Option<LimitError>) {
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned_at = Some(Instant::now());
            let error = error.map_or_else(|| "no answer in time".to_owned(), |error| error.to_string());
            tracing::warn!(
                event = "http.unlimited",
                error,
                "the calls of this shadow client go on, and take from no bucket"
            );
        }
    }

    /// Asks the table.
    async fn look(&self, sluice: &Client, key: &Key) -> Result<Arc<[Taken]>, LimitError> {
        let buckets: Arc<[Taken]> = match self.named.as_slice() {
            [] => present(sluice, &candidates(&key.0, &key.1)).await?.into(),
            named => all_of(sluice, named).await?.into(),
        };
        if buckets.is_empty() {
            tracing::warn!(
                event = "http.no_bucket",
                vendor = key.0,
                model = key.1,
                "no bucket limits these calls: declare one, as in {}#rpm (docs/http.md)",
                key.0
            );
        }
        Ok(buckets)
    }

    /// Makes the next call look again: a bucket is gone.
    pub(crate) fn doubt(&self) {
        self.found.lock().clear();
    }
}

/// The names that buckets of a vendor and a model may have.
fn candidates(vendor: &str, model: &str) -> Vec<Dimension> {
    let undated = undated(model);
    let models =
        [Some(model), (undated != model).then_some(undated)].into_iter().flatten().filter(|name| !name.is_empty());
    let of_model = models.flat_map(|model| METRICS.iter().map(move |metric| format!("{vendor}#{model}#{metric}")));
    let of_vendor = METRICS.iter().map(|metric| format!("{vendor}#{metric}"));
    // A model whose name no bucket can have has no bucket of its own.
    of_model.chain(of_vendor).filter_map(|name| Dimension::new(&name).ok()).collect()
}

/// The name of a model without its version: `-2024-08-06`, `-20250514`, `-v1:0`, `-latest`.
fn undated(model: &str) -> &str {
    let model = model.rsplit_once("-v").filter(|(_, version)| is_version(version)).map_or(model, |(name, _)| name);
    let model = model.strip_suffix("-latest").unwrap_or(model);
    // `0` stands for a digit.
    let dated = |shape: &str| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(shape.len())?)?;
        let fits = date.bytes().zip(shape.bytes()).all(|(of_date, of_shape)| match of_shape {
            b'0' => of_date.is_ascii_digit(),
            other => of_date == other,
        });
        name.strip_suffix('-').filter(|name| fits && !name.is_empty())
    };
    dated("0000-00-00").or_else(|| dated("00000000")).unwrap_or(model)
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}

/// Those of `names` that the table has.
async fn present(sluice: &Client, names: &[Dimension]) -> Result<Vec<Taken>, LimitError> {
    let limits = try_join_all(names.iter().map(|name| sluice.limit(name.as_str()))).await?;
    let taken = |(name, limit): (&Dimension, Option<sluice_sdk::core::Limit>)| Some(Taken::of(name.clone(), &limit?));
    Ok(names.iter().zip(limits).filter_map(taken).collect())
}

/// All of `names`, or an error.
async fn all_of(sluice: &Client, names: &[Dimension]) -> Result<Vec<Taken>, LimitError> {
    let taken = present(sluice, names).await?;
    match names.iter().find(|name| taken.iter().all(|taken| taken.dimension != **name)) {
        None => Ok(taken),
        Some(missing) => {
            let table = sluice.table().to_owned();
            Err(AcquireError::UnknownDimension { dimension: missing.clone(), table }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_with_and_without_its_date() {
        let names = [
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("claude-sonnet-4-20250514", "claude-sonnet-4"),
            ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
            ("anthropic.claude-sonnet-4-20250514-v1:0", "anthropic.claude-sonnet-4"),
            ("gpt-4o", "gpt-4o"),
            ("gemini-2.5-flash", "gemini-2.5-flash"),
            ("20250514", "20250514"),
            ("é", "é"),
        ];
        for (model, undated_model) in names {
            assert_eq!(undated(model), undated_model, "{model}");
        }
        let names: Vec<_> = candidates("openai", "gpt-4o-2024-08-06").iter().map(ToString::to_string).collect();
        for name in ["openai#rpm", "openai#gpt-4o#tpm", "openai#gpt-4o-2024-08-06#tpm"] {
            assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
        }
        assert_eq!(candidates("openai", "a model#of mine").len(), METRICS.len(), "no bucket can have such a name");
    }
}
