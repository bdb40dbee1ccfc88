//! Which buckets a call takes from.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use sluice_sdk::{AcquireError, Client, Dimension, LimitError, Mode};
use tokio::time::Instant;

use crate::costs::Taken;
use crate::limiter::Vendor;
use crate::limiter::noticed::Noticed;

/// The metrics that buckets of a vendor may have, as `sluice buckets init` writes them.
const METRICS: &[&str] = &["rpm", "rpd", "rps", "tpm", "tpd", "itpm", "otpm", "concurrent"];

/// How long the buckets of a model are believed. Larger learns later of a bucket that was added; smaller
/// reads more.
const BELIEVED: Duration = Duration::from_secs(300);

/// How long they are believed beyond that while the table does not answer.
const BELIEVED_IN_OUTAGE: Duration = Duration::from_secs(1);

/// The most models that are known at once: their names may come from a product's own callers. One more takes
/// the place of the one that was looked up first.
const MOST_MODELS: usize = 200;

/// The buckets of each vendor and model.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// The buckets that the program named.
    named: Vec<Dimension>,
    /// The share that pays, in place of the client's own.
    share: Option<String>,
    found: Mutex<HashMap<Key, Found>>,
    noticed: Noticed,
}

type Key = (String, String);

#[derive(Clone, Debug)]
struct Found {
    buckets: Arc<[Taken]>,
    until: Instant,
}

impl Buckets {
    /// As these, with other names.
    pub(crate) fn named(&self, dimensions: Vec<Dimension>) -> Self {
        Self { named: dimensions, share: self.share.clone(), ..Self::default() }
    }

    /// As these, for another share. Its limits are others.
    pub(crate) fn of_share(&self, share: String) -> Self {
        Self { named: self.named.clone(), share: Some(share), ..Self::default() }
    }

    pub(crate) fn share(&self) -> Option<&str> {
        self.share.as_deref()
    }

    /// The buckets that a call to `model` takes from; none if nothing limits it.
    pub(crate) async fn of(
        &self,
        sluice: &Client,
        vendor: &Vendor,
        model: &str,
    ) -> Result<Arc<[Taken]>, LimitError> {
        let now = Instant::now();
        let key = (vendor.name.to_string(), model.to_owned());
        let known = self.found.lock().get(&key).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.buckets));
        }
        let looked = self.look(sluice, vendor, model).await;
        let (buckets, until) = match (looked, known) {
            (Ok(buckets), _) => (buckets, now + BELIEVED),
            // The slot says what becomes of a call while the table does not answer.
            (Err(_), Some(known)) => (known.buckets, now + BELIEVED_IN_OUTAGE),
            (Err(error), None) => return Err(error),
        };
        self.remember(key, Found { buckets: Arc::clone(&buckets), until });
        Ok(buckets)
    }

    fn remember(&self, key: Key, latest: Found) {
        let mut found = self.found.lock();
        if found.len() >= MOST_MODELS && !found.contains_key(&key) {
            let oldest = found.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                found.remove(&oldest);
            }
        }
        found.insert(key, latest);
    }

    /// Asks the table.
    async fn look(&self, sluice: &Client, vendor: &Vendor, model: &str) -> Result<Arc<[Taken]>, LimitError> {
        if !self.named.is_empty() {
            return Ok(all_of(sluice, self.share(), &self.named).await?.into());
        }
        let names = std::iter::once(&*vendor.name).chain(vendor.also.iter().map(String::as_str));
        for name in names {
            let buckets = present(sluice, self.share(), &candidates(name, model)).await?;
            if !buckets.is_empty() {
                return Ok(buckets.into());
            }
        }
        tracing::warn!(
            event = "http.no_bucket",
            vendor = &*vendor.name,
            model,
            "no bucket limits these calls: declare one, as in {}#rpm (docs/http.md)",
            vendor.name
        );
        Ok(Arc::default())
    }

    /// What the calls of a model take from until the table answers again: the buckets that are known, or
    /// none. Logged once for each model.
    pub(crate) fn go_on(&self, vendor: &Vendor, model: &str, error: &LimitError) -> Arc<[Taken]> {
        let key = (vendor.name.to_string(), model.to_owned());
        let buckets = match self.found.lock().get(&key) {
            Some(known) => Arc::clone(&known.buckets),
            None => Arc::default(),
        };
        tracing::warn!(event = "http.not_limited", vendor = &*vendor.name, model, buckets = buckets.len(), %error);
        self.remember(
            key,
            Found { buckets: Arc::clone(&buckets), until: Instant::now() + BELIEVED_IN_OUTAGE },
        );
        buckets
    }

    /// A call's body was not read, so the buckets of its model are not asked. Logged once for each vendor.
    pub(crate) fn miss_model(&self, vendor: &str) {
        if self.named.is_empty() && self.noticed.is_new("http.no_model", vendor) {
            tracing::warn!(
                event = "http.no_model",
                vendor,
                "the body of a call could not be read: buckets of its model are not asked (docs/http.md)"
            );
        }
    }

    /// A call inside of a slot that the program holds of the same concurrency bucket would wait for itself,
    /// so it passes. Logged once for each bucket.
    pub(crate) fn pass_nested(&self, dimension: &Dimension) {
        if self.noticed.is_new("http.nested", dimension.as_str()) {
            tracing::warn!(
                event = "http.nested",
                %dimension,
                "calls inside of a slot that the program holds of the same bucket pass without a limit (docs/http.md)"
            );
        }
    }

    /// A reply is compressed, so what it used is not read. Logged once for each vendor.
    pub(crate) fn miss_use(&self, vendor: &str) {
        if self.noticed.is_new("http.compressed", vendor) {
            tracing::warn!(
                event = "http.compressed",
                vendor,
                "replies are compressed: what calls used is not known, decompress below the limiter (docs/http.md)"
            );
        }
    }

    /// Makes the next call look again: a bucket is gone.
    pub(crate) fn doubt(&self) {
        self.found.lock().clear();
    }
}

/// The names that buckets of a vendor and a model may have.
fn candidates(vendor: &str, model: &str) -> Vec<Dimension> {
    // An ARN of Bedrock ends with the model, or with the inference profile that leads to it.
    let model = if model.starts_with("arn:") { model.rsplit('/').next().unwrap_or(model) } else { model };
    let unversioned = without_version(model);
    let models = [Some(model), (unversioned != model).then_some(unversioned)]
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty());
    let of_model =
        models.flat_map(|model| METRICS.iter().map(move |metric| format!("{vendor}#{model}#{metric}")));
    let of_vendor = METRICS.iter().map(|metric| format!("{vendor}#{metric}"));
    // A model whose name no bucket can have has no bucket of its own.
    of_model.chain(of_vendor).filter_map(|name| Dimension::new(&name).ok()).collect()
}

/// The shapes of dates at the end of a model's name; `0` stands for a digit.
const DATES: [&str; 4] = ["-0000-00-00", "-00000000", "-00-0000", "-0000"];

/// The name of a model without its version: `-2024-08-06`, `-20250514`, `@20250514`, `-0613`, `-v1:0`,
/// `-latest`. A `-v2` without a date before it is another model, and stays.
fn without_version(model: &str) -> &str {
    let (model, is_pinned) = match model.rsplit_once("-v") {
        Some((name, version))
            if is_version(version) && (version.contains(':') || dateless(name).is_some()) =>
        {
            (name, true)
        }
        _ => (model, false),
    };
    let model = match model.rsplit_once('@') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => return name,
        _ => model,
    };
    match model.strip_suffix("-latest") {
        Some(name) if !is_pinned => name,
        _ => dateless(model).unwrap_or(model),
    }
}

/// The name without the date at its end.
fn dateless(model: &str) -> Option<&str> {
    DATES.iter().find_map(|shape| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(shape.len())?)?;
        let fits = date.bytes().zip(shape.bytes()).all(|(of_date, of_shape)| match of_shape {
            b'0' => of_date.is_ascii_digit(),
            other => of_date == other,
        });
        (fits && !name.is_empty()).then_some(name)
    })
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}

/// Those of `names` that the table has. A row that cannot be read limits nothing, and is named.
async fn present(
    sluice: &Client,
    share: Option<&str>,
    names: &[Dimension],
) -> Result<Vec<Taken>, LimitError> {
    let limit = async |name: &Dimension| match share {
        Some(share) => sluice.limit_of_share(name.as_str(), share).await,
        None => sluice.limit(name.as_str()).await,
    };
    let limits = try_join_all(names.iter().map(async |name| match limit(name).await {
        Err(error @ AcquireError::CorruptRow { .. }) => {
            tracing::warn!(event = "http.unreadable_bucket", dimension = %name, %error);
            Ok(None)
        }
        limit => limit,
    }));
    let limits = limits.await?;
    let taken =
        |(name, limit): (&Dimension, Option<sluice_sdk::core::Limit>)| Some(Taken::of(name.clone(), &limit?));
    Ok(names.iter().zip(limits).filter_map(taken).collect())
}

/// All of `names`, or an error. For a shadow client, those that are missing are taken for buckets.
async fn all_of(sluice: &Client, share: Option<&str>, names: &[Dimension]) -> Result<Vec<Taken>, LimitError> {
    let taken = present(sluice, share, names).await?;
    match names.iter().find(|name| taken.iter().all(|taken| taken.dimension != **name)) {
        None => Ok(taken),
        // The calls go on with the others, and are counted as errors of this one.
        Some(_) if sluice.mode() == Mode::Shadow => {
            let found = |name: &Dimension| taken.iter().find(|taken| taken.dimension == *name).cloned();
            Ok(names.iter().map(|name| found(name).unwrap_or_else(|| Taken::unknown(name.clone()))).collect())
        }
        Some(missing) => {
            let table = sluice.table().to_owned();
            Err(AcquireError::UnknownDimension { dimension: missing.clone(), table }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sluice buckets init` names buckets by the metrics of published limits.
    #[test]
    fn every_published_limit_has_a_bucket_that_calls_look_for() {
        for profile in sluice_sdk::vendors::Vendors::builtin().all() {
            for limit in &profile.limits {
                assert!(METRICS.contains(&limit.metric.as_str()), "{} {}", profile.vendor, limit.metric);
            }
        }
    }

    #[test]
    fn a_model_is_found_with_and_without_its_version() {
        let names = [
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("gpt-4-0613", "gpt-4"),
            ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
            ("mistral-large-2411", "mistral-large"),
            ("command-r-08-2024", "command-r"),
            ("claude-sonnet-4@20250514", "claude-sonnet-4"),
            ("claude-v2", "claude-v2"),
            ("claude-v2:1", "claude"),
            ("embed-english-v3", "embed-english-v3"),
            ("claude-sonnet-4-20250514", "claude-sonnet-4"),
            ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
            ("anthropic.claude-sonnet-4-20250514-v1:0", "anthropic.claude-sonnet-4"),
            ("gpt-4o", "gpt-4o"),
            ("gemini-2.5-flash", "gemini-2.5-flash"),
            ("20250514", "20250514"),
            ("é", "é"),
        ];
        for (model, unversioned) in names {
            assert_eq!(without_version(model), unversioned, "{model}");
        }
        let names: Vec<_> =
            candidates("openai", "gpt-4o-2024-08-06").iter().map(ToString::to_string).collect();
        for name in ["openai#rpm", "openai#gpt-4o#tpm", "openai#gpt-4o-2024-08-06#tpm"] {
            assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
        }
        let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-20250514-v1:0";
        let names: Vec<_> = candidates("bedrock", arn).iter().map(ToString::to_string).collect();
        assert!(names.contains(&"bedrock#us.anthropic.claude-sonnet-4#tpm".to_owned()), "{names:?}");
        assert_eq!(
            candidates("openai", "a model#of mine").len(),
            METRICS.len(),
            "no bucket can have such a name"
        );
    }
}
