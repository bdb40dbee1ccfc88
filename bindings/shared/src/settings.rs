//! The settings of a client, with the names of `ClientBuilder`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use sluice_sdk::admission::AdmissionMode;
use sluice_sdk::core::{COMMON, Factor};
use sluice_sdk::vendors::Vendors;
use sluice_sdk::{Client, ClientBuilder, Leases, Mode, OnUnavailable, ShareName};

use crate::arguments::{Ms, read};
use crate::failure::Failure;
use crate::values::ms;

/// Without a table, the settings are those of the environment, and what is named here wins.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    table: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    lease_ttl_ms: Option<Ms>,
    max_retries: Option<u32>,
    attempt_timeout_ms: Option<Ms>,
    answer_within_ms: Option<Ms>,
    max_wait_ms: Option<Ms>,
    renew_leases: Option<bool>,
    mode: Option<String>,
    leases: Option<String>,
    on_unavailable: Option<String>,
    admission: Option<String>,
    staleness_ms: Option<Ms>,
    self_heal: Option<bool>,
    heal_budget: Option<u32>,
    cap_debt: Option<bool>,
    max_buckets: Option<usize>,
    longest_cool_down_ms: Option<Ms>,
    caller: Option<String>,
    share: Option<String>,
    /// A part of a limit; 0 for no warnings.
    warn_at: Option<f64>,
    note_use: Option<bool>,
    prefetch: Option<Vec<String>>,
    /// Profiles in TOML.
    vendors: Option<Vec<String>>,
}

pub(crate) fn builder(settings: Value) -> Result<ClientBuilder, Failure> {
    let of: Settings = read("settings", settings)?;
    let mut builder = match of.table {
        Some(table) => Client::builder(table),
        None => ClientBuilder::from_env()?,
    };
    macro_rules! set {
        ($($name:ident: $value:expr),* $(,)?) => {
            $(if let Some(value) = $value { builder = builder.$name(value); })*
        };
    }
    set! {
        region: of.region,
        endpoint_url: of.endpoint,
        lease_ttl: at_least("leaseTtlMs", of.lease_ttl_ms, 1_000)?,
        max_retries: of.max_retries,
        attempt_timeout: at_least("attemptTimeoutMs", of.attempt_timeout_ms, 50)?,
        answer_within: at_least("answerWithinMs", of.answer_within_ms, 100)?,
        max_wait: at_least("maxWaitMs", of.max_wait_ms, 0)?,
        renew_leases: of.renew_leases,
        mode: of.mode.map(|text| mode(&text)).transpose()?,
        leases: of.leases.map(|text| leases(&text)).transpose()?,
        on_unavailable: of.on_unavailable.map(|text| on_unavailable(&text)).transpose()?,
        admission: of.admission.map(|text| admission(&text)).transpose()?,
        staleness: at_least("stalenessMs", of.staleness_ms, 1_000)?,
        self_heal: of.self_heal,
        heal_budget: of.heal_budget,
        cap_debt: of.cap_debt,
        max_buckets: of.max_buckets,
        longest_cool_down: at_least("longestCoolDownMs", of.longest_cool_down_ms, 0)?,
        caller: of.caller,
        share: of.share.map(|text| share(&text)).transpose()?,
        warn_at: of.warn_at.map(part).transpose()?,
        note_use: of.note_use,
        prefetch: of.prefetch,
        vendors: of.vendors.map(|profiles| vendors(&profiles)).transpose()?,
    }
    Ok(builder)
}

fn at_least(name: &str, time: Option<Ms>, least_ms: u64) -> Result<Option<Duration>, Failure> {
    match time {
        Some(Ms(time)) if time < Duration::from_millis(least_ms) => {
            Err(Failure::argument(format!("{name} = {}: it must be at least {least_ms}", ms(time))))
        }
        time => Ok(time.map(|Ms(time)| time)),
    }
}

fn one_of(name: &str, text: &str, words: &str) -> Failure {
    Failure::argument(format!("{name} = {text:?}: it must be {words}"))
}

fn mode(text: &str) -> Result<Mode, Failure> {
    match text {
        "enforce" => Ok(Mode::Enforce),
        "shadow" => Ok(Mode::Shadow),
        _ => Err(one_of("mode", text, "enforce or shadow")),
    }
}

fn leases(text: &str) -> Result<Leases, Failure> {
    match text {
        "concurrent" => Ok(Leases::Concurrent),
        "all" => Ok(Leases::All),
        "inline" => Ok(Leases::Inline),
        _ => Err(one_of("leases", text, "concurrent, all or inline")),
    }
}

fn on_unavailable(text: &str) -> Result<OnUnavailable, Failure> {
    text.parse().map_err(|error| Failure::argument(format!("onUnavailable = {text:?}: {error}")))
}

fn admission(text: &str) -> Result<AdmissionMode, Failure> {
    match text {
        "off" => Ok(AdmissionMode::Off),
        "shadow" => Ok(AdmissionMode::Shadow),
        "enforce" => Ok(AdmissionMode::Enforce),
        _ => Err(one_of("admission", text, "off, shadow or enforce")),
    }
}

fn share(text: &str) -> Result<Option<ShareName>, Failure> {
    if text == COMMON {
        return Ok(None);
    }
    ShareName::new(text).map(Some).map_err(Failure::argument)
}

fn part(part: f64) -> Result<Option<Factor>, Failure> {
    if part == 0.0 {
        return Ok(None);
    }
    let wrong = |_| Failure::argument(format!("warnAt = {part}: it must be between 0 and 1, as in 0.8"));
    part.to_string().parse().map(Some).map_err(wrong)
}

fn vendors(profiles: &[String]) -> Result<Vendors, Failure> {
    let with = |vendors: Vendors, profile: &String| vendors.with(profile);
    profiles
        .iter()
        .try_fold(Vendors::default(), with)
        .map_err(|error| Failure::argument(format!("vendors: {error}")))
}
