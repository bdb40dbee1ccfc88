//! Settings, from the environment or from code.

use std::collections::HashSet;
use std::time::Duration;

use sluice_core::{COMMON, Debt, Dimension, Factor, ShareName};
use sluice_table::{ConfigError, Settings, Variable, duration, warn_of_misspelt_variables};
use sluice_vendors::Vendors;

use crate::config::admission_mode::AdmissionMode;
use crate::config::heal_budget::HealBudget;
use crate::config::lease_ids::LeaseIds;
use crate::config::mode::Mode;
use crate::config::on_unavailable::{ON_UNAVAILABLE, OnUnavailable};

/// Shortest lease. A shorter lease could end before its holder received the reply.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

pub(crate) mod admission_mode;
pub(crate) mod heal_budget;
pub(crate) mod lease_ids;
pub(crate) mod mode;
pub(crate) mod on_unavailable;

/// Which grants get a lease, and where the lease is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leases {
    /// Grants of concurrency buckets only, where a crash would lose a slot for ever.
    #[default]
    Concurrent,
    /// Every grant, in one transaction with its bucket, as clients in other languages do.
    All,
    /// Grants of concurrency buckets only, in the row of the bucket: one plain write for many callers, and
    /// fewer write units. For buckets of at most [`MOST_INLINE_LEASES`](sluice_core::MOST_INLINE_LEASES)
    /// calls at once. Callers of one bucket may differ: some use inline leases, others use lease rows.
    Inline,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The table, and how long a request for it may take.
    pub(crate) connection: Settings,
    pub(crate) lease_ttl: Duration,
    pub(crate) max_wait: Duration,
    pub(crate) inline_retry_threshold: Duration,
    /// The longest cool-down that a vendor's reply may set for the fleet.
    pub(crate) longest_cool_down: Duration,
    pub(crate) mode: Mode,
    pub(crate) leases: Leases,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) caller: String,
    /// The share that pays for calls that name none.
    pub(crate) share: Option<ShareName>,
    pub(crate) lease_ids: LeaseIds,
    pub(crate) prefetch: HashSet<Dimension>,
    pub(crate) max_buckets: usize,
    pub(crate) self_heal: bool,
    pub(crate) heal_budget: HealBudget,
    pub(crate) admission: AdmissionMode,
    pub(crate) staleness: Duration,
    pub(crate) renew_leases: bool,
    pub(crate) debt: Debt,
    pub(crate) vendors: Vendors,
    /// The part of a limit at whose use the process warns.
    pub(crate) warn_at: Option<Factor>,
    /// Whether the process notes what it uses of each bucket.
    pub(crate) note_use: bool,
    /// Whether this process prints metrics for CloudWatch.
    pub(crate) emf: bool,
}

impl Config {
    pub(crate) fn new(connection: Settings) -> Self {
        Self {
            connection,
            lease_ttl: Duration::from_secs(60),
            max_wait: Duration::from_secs(30),
            inline_retry_threshold: Duration::from_secs(5),
            longest_cool_down: Duration::from_secs(15 * 60),
            mode: Mode::default(),
            leases: Leases::default(),
            on_unavailable: OnUnavailable::default(),
            caller: default_caller(|name| std::env::var(name).ok()),
            share: None,
            lease_ids: LeaseIds::default(),
            prefetch: HashSet::new(),
            max_buckets: MAX_BUCKETS,
            self_heal: true,
            heal_budget: HealBudget::DEFAULT,
            admission: AdmissionMode::default(),
            staleness: Duration::from_secs(60),
            renew_leases: true,
            debt: Debt::Capped,
            vendors: Vendors::default(),
            warn_at: WARN_AT.parse().ok(),
            note_use: true,
            emf: false,
        }
    }

    pub(crate) fn from_env() -> Result<Self, ConfigError> {
        warn_of_misspelt_variables();
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables through `lookup`; empty ones count as unset.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let var = |name| Variable::new(name, &lookup);
        let defaults = Self::new(Settings::from_lookup(&lookup)?);
        Ok(Self {
            lease_ttl: var("SLUICE_LEASE_TTL")
                .parse("a time of at least 1 s, as in 60s or 60", |v| {
                    duration(v).filter(|ttl| *ttl >= SHORTEST_LEASE)
                })?
                .unwrap_or(defaults.lease_ttl),
            max_wait: var("SLUICE_DEFAULT_SLOT_TIMEOUT")
                .parse("a time above 0, as in 30s or 30", |v| duration(v).filter(|t| !t.is_zero()))?
                .unwrap_or(defaults.max_wait),
            inline_retry_threshold: var("SLUICE_INLINE_RETRY_THRESHOLD")
                .parse("a time, as in 5s or 5", duration)?
                .unwrap_or(defaults.inline_retry_threshold),
            longest_cool_down: var("SLUICE_LONGEST_COOL_DOWN")
                .parse("a time above 0, as in 15m or 900", |v| duration(v).filter(|t| !t.is_zero()))?
                .unwrap_or(defaults.longest_cool_down),
            mode: var("SLUICE_MODE").parse("enforce or shadow", mode)?.unwrap_or(defaults.mode),
            leases: var("SLUICE_LEASES")
                .parse("concurrent, all or inline", leases)?
                .unwrap_or(defaults.leases),
            on_unavailable: var("SLUICE_ON_UNAVAILABLE")
                .parse(ON_UNAVAILABLE, |text| text.parse().ok())?
                .unwrap_or(defaults.on_unavailable),
            max_buckets: var("SLUICE_MAX_BUCKETS")
                .parse("a whole number, at least 1, as in 10000", |v| {
                    v.parse().ok().filter(|most| *most > 0)
                })?
                .unwrap_or(defaults.max_buckets),
            self_heal: var("SLUICE_SELF_HEAL").parse("on or off", on_or_off)?.unwrap_or(defaults.self_heal),
            heal_budget: var("SLUICE_HEAL_BUDGET")
                .parse("read units a minute: 0, or from 10 to 1000000, as in 1500", heal_budget)?
                .unwrap_or(defaults.heal_budget),
            admission: var("SLUICE_ADMISSION")
                .parse("off, shadow or enforce", admission)?
                .unwrap_or(defaults.admission),
            staleness: var("SLUICE_STALENESS")
                .parse("a time above 0, as in 60s or 60", |v| duration(v).filter(|t| !t.is_zero()))?
                .unwrap_or(defaults.staleness),
            vendors: var("SLUICE_VENDORS").text().map_or(Ok(defaults.vendors), |files| vendors(&files))?,
            debt: var("SLUICE_CAP_DEBT").parse("on or off", on_or_off)?.map_or(defaults.debt, debt),
            warn_at: var("SLUICE_WARN_AT")
                .parse("off, or a part above 0 and below 1, as in 0.8 or 80%", warn_at)?
                .unwrap_or(defaults.warn_at),
            note_use: var("SLUICE_NOTE_USE").parse("on or off", on_or_off)?.unwrap_or(defaults.note_use),
            emf: var("SLUICE_METRICS")
                .parse("emf or off; all and alarms, which are for sweeps, count as off", emf)?
                .unwrap_or(defaults.emf),
            share: var("SLUICE_SHARE")
                .parse("the name of a share, as in checkout/batch, or common", share)?
                .unwrap_or(defaults.share),
            caller: default_caller(&lookup),
            ..defaults
        })
    }
}

/// Four fifths, as most quotas are watched.
const WARN_AT: &str = "0.8";

/// Ten thousand buckets take 20 MB. Few fleets have a tenth as many.
pub(crate) const MAX_BUCKETS: usize = 10_000;

fn warn_at(text: &str) -> Option<Option<Factor>> {
    if text == "off" {
        return Some(None);
    }
    let part: Factor = match text.strip_suffix('%') {
        // The point moves by two places: 80 is 0.80, and 7.5 is 0.075.
        Some(percent) => {
            let (whole, rest) = percent.split_once('.').unwrap_or((percent, ""));
            let padded = format!("{whole:0>3}");
            let (ones, hundredths) = padded.split_at_checked(padded.len() - 2)?;
            format!("{ones}.{hundredths}{rest}").parse().ok()?
        }
        None => text.parse().ok()?,
    };
    let (numerator, denominator) = part.ratio();
    (numerator > 0 && numerator < denominator).then_some(Some(part))
}

fn share(text: &str) -> Option<Option<ShareName>> {
    if text == COMMON { Some(None) } else { ShareName::new(text).ok().map(Some) }
}

fn mode(text: &str) -> Option<Mode> {
    [Mode::Enforce, Mode::Shadow].into_iter().find(|mode| mode.as_str() == text)
}

fn emf(text: &str) -> Option<bool> {
    match text {
        "emf" => Some(true),
        "off" | "all" | "alarms" => Some(false),
        _ => None,
    }
}

fn leases(text: &str) -> Option<Leases> {
    match text {
        "concurrent" => Some(Leases::Concurrent),
        "all" => Some(Leases::All),
        "inline" => Some(Leases::Inline),
        _ => None,
    }
}

fn admission(text: &str) -> Option<AdmissionMode> {
    [AdmissionMode::Off, AdmissionMode::Shadow, AdmissionMode::Enforce]
        .into_iter()
        .find(|mode| mode.as_str() == text)
}

fn heal_budget(text: &str) -> Option<HealBudget> {
    let units: u32 = text.parse().ok()?;
    (units == 0 || (HealBudget::LEAST..=HealBudget::MOST).contains(&units)).then(|| HealBudget::of(units))
}

fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// The vendors of the profiles in these files.
fn vendors(files: &str) -> Result<Vendors, ConfigError> {
    files.split(',').map(str::trim).try_fold(Vendors::default(), |vendors, file| {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        let read = text.and_then(|text| vendors.with(&text).map_err(|error| error.to_string()));
        read.map_err(|why| ConfigError::File { variable: "SLUICE_VENDORS", file: file.to_owned(), why })
    })
}

/// The debt that settlements may make, if it is capped or not.
pub(crate) const fn debt(is_capped: bool) -> Debt {
    if is_capped { Debt::Capped } else { Debt::Uncapped }
}

/// The holder that a lease names: the function's name in Lambda, else the program's name.
fn default_caller(lookup: impl Fn(&str) -> Option<String>) -> String {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
    let program = || {
        let path = std::env::current_exe().ok()?;
        Some(path.file_stem()?.to_string_lossy().into_owned())
    };
    set("SLUICE_CALLER")
        .or_else(|| set("AWS_LAMBDA_FUNCTION_NAME"))
        .or_else(program)
        .unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests;
