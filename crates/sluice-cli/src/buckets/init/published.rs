//! The file for a vendor that publishes limits.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use sluice_sdk::core::{Amount, AnyWindow, CORRECTED_CLOCK_ERROR, Cost, LimitType, Rate};
use sluice_sdk::vendors::{Counted, Counts, Enforced, Profile, PublishedLimit, Reserved};

use super::entry::{self, Entry, number};
use crate::buckets::file::counted::ARRIVAL_JITTER;

const MINUTE: Duration = Duration::from_secs(60);
pub(super) const COST_PER_CALL: &str =
    "# cost_per_call = 1_000    # for calls that name no cost: else an error";
/// A window above this needs a burst: a day's calls one by one would be useless.
const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn file(profile: &Profile, limits: &[&PublishedLimit]) -> String {
    let tier = limits.iter().find_map(|limit| limit.tier.as_deref());
    let (vendor, tier) = (&profile.vendor, tier.map(|tier| format!(", tier {tier}")).unwrap_or_default());
    let found: BTreeSet<_> =
        limits.iter().map(|limit| limit.source.as_str()).filter(|page| !is_of_vendor(page)).collect();
    let found: Vec<_> = found.into_iter().collect();
    let from = match found.is_empty() {
        true => "as the vendor publishes them: a start".to_owned(),
        false => format!("as found in {}, not a page of the vendor: a start", found.join(" and ")),
    };
    let mut text = format!(
        "# Limits of {vendor}{tier}, {from}.\n\
         # Compare each figure with the vendor's console, since accounts differ, then\n\
         # `sluice buckets apply FILE`. docs/buckets.md describes the fields.\n"
    );
    for counted in token_counts(profile, limits) {
        let _ = write!(text, "#\n{counted}");
    }
    for limit in limits {
        let _ = write!(text, "{}", bucket(profile, limit));
    }
    text
}

/// Whether the vendor publishes the page: those that others wrote are on GitHub.
fn is_of_vendor(page: &str) -> bool {
    !page.starts_with("https://github.com/")
}

/// How the vendor counts tokens, once for each way.
fn token_counts(profile: &Profile, limits: &[&PublishedLimit]) -> BTreeSet<String> {
    let of_tokens = limits.iter().filter(|limit| limit_type(limit) == Some(LimitType::Tokens));
    let counts = of_tokens.filter_map(|limit| profile.tokens_of(limit.model.as_deref().unwrap_or_default()));
    let said = counts.map(|count| {
        let what = match (count.counted, count.reserved) {
            (Counted::OnArrival, Reserved::Larger) => {
                "on arrival, as the larger of input and\n# max_tokens; what a call does not use does not come back"
            }
            (Counted::OnArrival, _) => "on arrival, with max_tokens;\n# what a call does not use does not come back",
            _ => "as they are used",
        };
        format!("# Tokens count {what}:\n# {}\n", count.source)
    });
    said.collect()
}

fn bucket(profile: &Profile, limit: &PublishedLimit) -> String {
    let PublishedLimit { metric, amount, source, .. } = limit;
    let model = limit.model.as_deref();
    let said = format!("{} {metric}", number(*amount));
    let Some(limit_type) = limit_type(limit) else {
        return format!("\n# {source}\n# {said}: no type of bucket counts this.\n");
    };
    match entry::name(&profile.vendor, model, metric) {
        Ok(name) => {
            fields(Entry::new(&name, limit_type).noted(source), limit_type, profile, limit).to_string()
        }
        Err(reason) => {
            let model = model.unwrap_or_default();
            format!(
                "\n# {source}\n# {said} of {model:?}: no bucket can have this model in its name: {reason}.\n"
            )
        }
    }
}

/// What the metric counts. `None` if no bucket counts it.
pub(super) fn limit_type(limit: &PublishedLimit) -> Option<LimitType> {
    let begins = |with: &[&str]| with.iter().any(|with| limit.metric.starts_with(with));
    match limit.window {
        None => (limit.metric == "concurrent").then_some(LimitType::Concurrent),
        Some(_) if begins(&["rp"]) => Some(LimitType::Requests),
        Some(_) if begins(&["tp", "itp", "otp", "project_tp", "priority_"]) => Some(LimitType::Tokens),
        Some(_) => None,
    }
}

fn fields(entry: Entry, limit_type: LimitType, profile: &Profile, limit: &PublishedLimit) -> Entry {
    let amount = number(limit.amount);
    let Some(window) = limit.window else { return entry.line(format_args!("capacity = {amount}")) };
    if limit.counts != Counts::Bucket && limit.amount <= 1 {
        return single_calls(entry, limit.amount, window);
    }
    let entry = entry
        .line(format_args!("limit = {amount}"))
        .line(format_args!("window = \"{}\"", entry::window(window)));
    let entry = match limit.counts {
        Counts::Bucket => match profile.enforced.as_ref().filter(|_| limit_type == LimitType::Requests) {
            Some(enforced) => small_burst(entry, enforced, Some(limit.amount), window),
            None => entry,
        },
        Counts::Fixed => in_windows(entry, "fixed", limit_type, limit.amount, window),
        _ => in_windows(entry, "sliding", limit_type, limit.amount, window),
    };
    match limit_type {
        LimitType::Tokens => entry.line(COST_PER_CALL),
        _ => entry,
    }
}

/// A limit per minute that is enforced over less: a burst that the minute has room for would be refused. The
/// `amount` is `None` if it is not known yet.
pub(super) fn small_burst(entry: Entry, enforced: &Enforced, amount: Option<u64>, window: Duration) -> Entry {
    let Some(over) = enforced.over.iter().min().filter(|over| window == MINUTE && **over < window) else {
        return entry;
    };
    let two = Amount::from_tokens(2);
    let burst =
        amount.map_or(two, |amount| count(amount, window).burst(Cost::ONE).max(two).min(tokens(amount)));
    entry
        .line(format_args!(
            "# Also enforced over {}, so a larger burst may be refused:",
            entry::window(*over)
        ))
        .line(format_args!("# {}", enforced.source))
        .line(format_args!("capacity = {burst}"))
}

/// A vendor that counts in windows. The burst is left to the parser, unless calls need a larger one.
fn in_windows(entry: Entry, counts: &str, limit_type: LimitType, amount: u64, window: Duration) -> Entry {
    let entry = entry.line(format_args!("counts = \"{counts}\""));
    let why = match limit_type {
        LimitType::Tokens => {
            "# The tokens of the largest call: put in yours. The rest of the limit flows back."
        }
        _ if window > HOUR => "# The largest burst: a tenth. The rest of the limit flows back.",
        _ => return entry,
    };
    entry.line(why).line(format_args!("capacity = {}", number((amount / 10).max(1))))
}

/// One call in each window: nothing flows back beside it, so calls are kept a window and more apart.
fn single_calls(entry: Entry, amount: u64, window: Duration) -> Entry {
    let rate = Rate::per(tokens(amount), count(amount, window).starts_within()).unwrap_or_default();
    entry
        .line(format_args!("# {amount} in each window of {}, so one by one.", entry::window(window)))
        .line(format_args!("capacity = {amount}"))
        .line(format_args!("refill_rate = {rate}"))
}

fn count(amount: u64, window: Duration) -> AnyWindow {
    AnyWindow {
        amount: tokens(amount),
        window,
        arrival_jitter: ARRIVAL_JITTER,
        clock_error: CORRECTED_CLOCK_ERROR,
    }
}

/// What a bucket cannot hold is reported when the file is read.
fn tokens(amount: u64) -> Amount {
    const MICROS: u64 = 1_000_000;
    Amount::from_micros(i64::try_from(amount.saturating_mul(MICROS)).unwrap_or(i64::MAX))
}
