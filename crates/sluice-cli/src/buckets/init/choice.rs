//! Which of a vendor's published limits an account has.

use sluice_sdk::vendors::{Profile, PublishedLimit};

use super::ANOTHER_TIER;
use crate::failure::Failure;

/// The limits of a tier and of models (all, if none is named), with those of the whole account.
pub(super) fn limits<'a>(
    profile: &'a Profile,
    tier: Option<&str>,
    models: &[String],
) -> Result<Vec<&'a PublishedLimit>, Failure> {
    check_tier(profile, tier)?;
    let is_same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    let of_tier = |limit: &&PublishedLimit| {
        limit.tier.as_deref().zip(tier).is_none_or(|(published, wanted)| is_same(published, wanted))
    };
    let limits: Vec<_> = profile.limits.iter().filter(of_tier).collect();
    let known = distinct(limits.iter().filter_map(|limit| limit.model.as_deref()));
    if let Some(unknown) = models.iter().find(|model| !known.iter().any(|known| is_same(known, model))) {
        return Err(unknown_model(profile, unknown, &known));
    }
    let is_wanted = |limit: &&PublishedLimit| {
        let model = limit.model.as_deref();
        models.is_empty() || model.is_none_or(|of| models.iter().any(|wanted| is_same(of, wanted)))
    };
    Ok(limits.into_iter().filter(is_wanted).collect())
}

/// The tiers in which the vendor has other limits, as the vendor calls them.
pub(super) fn tiers(profile: &Profile) -> Vec<&str> {
    distinct(profile.limits.iter().filter_map(|limit| limit.tier.as_deref()))
}

/// Whether the account is in a tier whose limits are not known.
pub(super) fn is_another(tier: &str) -> bool {
    tier.eq_ignore_ascii_case(ANOTHER_TIER)
}

fn check_tier(profile: &Profile, tier: Option<&str>) -> Result<(), Failure> {
    let vendor = &profile.vendor;
    let tiers = tiers(profile);
    let listed = list(&tiers);
    let reason = match tier {
        None if tiers.is_empty() => return Ok(()),
        Some(tier) if tiers.iter().any(|known| known.eq_ignore_ascii_case(tier)) => return Ok(()),
        None => format!(
            "{vendor} has other limits in each tier: name the account's with --tier; one of: {listed}, or {ANOTHER_TIER} (you \
             fill in the figures)"
        ),
        Some(_) if tiers.is_empty() => format!("{vendor} publishes no tiers: leave out --tier"),
        Some(tier) => format!(
            "{vendor} has no tier {tier:?} that is known; use one of: {listed}, or {ANOTHER_TIER} (you fill in the figures)"
        ),
    };
    Err(Failure::new(reason))
}

fn unknown_model(profile: &Profile, model: &str, known: &[&str]) -> Failure {
    let vendor = &profile.vendor;
    if known.is_empty() {
        return Failure::new(format!("{vendor} publishes no limits by model: leave out --model {model}"));
    }
    let listed = list(known);
    Failure::new(format!(
        "{vendor} publishes no limits of the model {model:?} that are known; use one of: {listed}"
    ))
}

/// Each value once, in the order of the profile.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

/// The values as a shell takes them.
fn list(values: &[&str]) -> String {
    let quoted = values
        .iter()
        .map(|value| if value.contains(' ') { format!("{value:?}") } else { (*value).to_owned() });
    quoted.collect::<Vec<_>>().join(", ")
}
