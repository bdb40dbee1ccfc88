//! The file for a vendor that publishes no limits: what its replies report, commented out, without figures.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use sluice_sdk::core::{Dimension, LimitType};
use sluice_sdk::vendors::{Profile, Quota, QuotaHeaders, Window};

use super::entry::{self, Entry};
use super::{Options, published};
use crate::failure::Failure;

const YOURS: &str = "# your account's number";

pub(super) fn file(profile: &Profile, options: &Options) -> Result<String, Failure> {
    let vendor = &profile.vendor;
    let is_another = !profile.limits.is_empty();
    if options.tier.is_some() && !is_another {
        return Err(Failure::new(format!("no limits of {vendor} are known, in no tier: leave out --tier")));
    }
    let known = if is_another {
        ", in a tier whose figures Sluice does not know."
    } else {
        ". Sluice knows no figures that the vendor publishes."
    };
    let mut text = format!(
        "# Limits of {vendor}{known}\n\
         # Put in your account's, remove the signs # of the buckets that you need, then\n\
         # `sluice buckets apply FILE`. docs/buckets.md describes the fields.\n\
         # Where to find the figures: the vendor's console.\n"
    );
    let pages = pages(profile);
    if !pages.is_empty() {
        text.push_str("# About the limits:\n");
    }
    for page in pages {
        let _ = writeln!(text, "# {page}");
    }
    let models =
        if options.models.is_empty() { vec![None] } else { options.models.iter().map(Some).collect() };
    for model in models {
        for example in examples(profile) {
            let _ = write!(text, "{}", example.entry(profile, model.map(String::as_str))?);
        }
    }
    Ok(text)
}

/// The pages about the vendor's limits: those of its headers, else what the profile has.
fn pages(profile: &Profile) -> Vec<&str> {
    let headers =
        profile.quotas.iter().map(|quota| quota.source.as_str()).filter(|_| !profile.reads_standard);
    let tokens = profile.tokens.iter().map(|count| count.source.as_str());
    let failed = profile.failed.iter().map(|failed| failed.source.as_str());
    let enforced = profile.enforced.iter().map(|enforced| enforced.source.as_str());
    let mut seen = BTreeSet::new();
    headers.chain(tokens).chain(failed).chain(enforced).filter(|page| seen.insert(*page)).collect()
}

/// A bucket without its figures.
struct Example<'a> {
    metric: String,
    limit_type: LimitType,
    window: Duration,
    /// The header that reports the limit.
    header: Option<&'a str>,
}

fn examples(profile: &Profile) -> Vec<Example<'_>> {
    let mut seen = BTreeSet::new();
    let examples = profile.quotas.iter().filter(|_| !profile.reads_standard).filter_map(example);
    let examples: Vec<_> = examples.filter(|example| seen.insert(example.metric.clone())).collect();
    if !examples.is_empty() {
        return examples;
    }
    // No headers of its own: what most vendors limit.
    let usual = [("rpm", LimitType::Requests), ("tpm", LimitType::Tokens)];
    usual.map(|(metric, limit_type)| Example::new(metric.to_owned(), limit_type, MINUTE, None)).into()
}

const MINUTE: Duration = Duration::from_secs(60);

fn example(quota: &QuotaHeaders) -> Option<Example<'_>> {
    let (begins, limit_type) = match quota.kind {
        Quota::Requests => ("rp", LimitType::Requests),
        Quota::Tokens => ("tp", LimitType::Tokens),
        Quota::InputTokens => ("itp", LimitType::Tokens),
        Quota::OutputTokens => ("otp", LimitType::Tokens),
        Quota::ProjectTokens => ("project_tp", LimitType::Tokens),
        Quota::PriorityInputTokens => ("priority_itp", LimitType::Tokens),
        Quota::PriorityOutputTokens => ("priority_otp", LimitType::Tokens),
        Quota::Concurrency => ("concurrent", LimitType::Concurrent),
        _ => return None,
    };
    let window = if let Window::Documented(window) = quota.window { window } else { MINUTE };
    let unit = match window.as_secs() {
        1 => "s",
        3_600 => "h",
        86_400 => "d",
        _ => "m",
    };
    let metric =
        if limit_type == LimitType::Concurrent { begins.to_owned() } else { format!("{begins}{unit}") };
    Some(Example::new(metric, limit_type, window, quota.limit.as_deref()))
}

impl<'a> Example<'a> {
    const fn new(metric: String, limit_type: LimitType, window: Duration, header: Option<&'a str>) -> Self {
        Self { metric, limit_type, window, header }
    }

    fn entry(&self, profile: &Profile, model: Option<&str>) -> Result<Entry, Failure> {
        let name: Dimension = entry::name(&profile.vendor, model, &self.metric).map_err(|reason| {
            let model = model.unwrap_or_default();
            Failure::new(format!("--model {model:?} cannot be in the name of a bucket: {reason}"))
        })?;
        let entry = Entry::new(&name, self.limit_type);
        let entry = match self.header {
            Some(header) => entry.noted(format_args!("Replies report it as {header}.")),
            None => entry,
        };
        let entry = if self.limit_type == LimitType::Concurrent {
            entry.line(format_args!("capacity = 0    {YOURS}"))
        } else {
            entry
                .line(format_args!("limit = 0       {YOURS}"))
                .line(format_args!("window = \"{}\"", entry::window(self.window)))
        };
        let entry = match (&profile.enforced, self.limit_type) {
            (Some(enforced), LimitType::Requests) => {
                published::small_burst(entry, enforced, None, self.window)
            }
            (_, LimitType::Tokens) => entry.line(published::COST_PER_CALL),
            _ => entry,
        };
        Ok(entry.commented_out())
    }
}
