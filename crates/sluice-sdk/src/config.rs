//! Settings, from the environment or from code.

use std::collections::HashSet;
use std::time::Duration;

use sluice_core::schema::{ENVIRONMENTS, table_name};
use sluice_core::{Dimension, Factor};

use crate::admission::AdmissionMode;
use crate::heal::HealBudget;
use crate::lease_ids::LeaseIds;
use sluice_table::ATTEMPT_TIMEOUT;
use sluice_table::Clock;

/// Shortest lease: below it, a lease could end before its holder got the reply.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The floor of a drain rate rests on the longest call: below a second it would be no floor but a fast vendor.
const SHORTEST_CALL: Duration = Duration::from_secs(1);

/// For which grants a lease is written, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leases {
    /// For concurrency alone, where a crash would lose a slot for ever.
    #[default]
    Concurrent,
    /// For every grant, in one transaction with its bucket, as clients in other languages do.
    All,
    /// For concurrency alone, in the row of its bucket: one plain write for many callers, and fewer write units. For buckets of
    /// at most [`MOST_INLINE_LEASES`](sluice_core::MOST_INLINE_LEASES) calls at once, which all callers share in this way
    /// or with lease rows beside.
    Inline,
}

/// What an acquire answers while DynamoDB is out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnavailable {
    /// The error. The vendor's limit holds; calls fail.
    #[default]
    Error,
    /// A grant. Calls go on; the vendor's limit does not hold.
    Allow,
    /// This share of each limit that the process has met, counted in the process. With as many processes as shares the
    /// vendor's limit holds.
    Share(Factor),
}

/// All settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) table: String,
    pub(crate) region: String,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) lease_ttl: Duration,
    pub(crate) max_retries: u32,
    pub(crate) attempt_timeout: Duration,
    pub(crate) slot_timeout: Duration,
    pub(crate) inline_retry_threshold: Duration,
    pub(crate) leases: Leases,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) caller: String,
    pub(crate) clock: Clock,
    pub(crate) lease_ids: LeaseIds,
    pub(crate) prefetch: HashSet<Dimension>,
    pub(crate) max_buckets: usize,
    pub(crate) self_heal: bool,
    pub(crate) heal_budget: HealBudget,
    pub(crate) admission: AdmissionMode,
    pub(crate) staleness: Duration,
}

/// Why the settings cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Neither variable that names the table is set. There is no default, least of all the production table.
    #[error("no table is named: set SLUICE_TABLE_NAME, or SLUICE_ENV to one of sandbox, pre, prod")]
    NoTable,
    /// A variable holds something that it does not take.
    #[error("{variable}={value:?} cannot be used: it takes {takes}")]
    BadValue {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
}

impl Config {
    pub(crate) fn new(table: String) -> Self {
        Self {
            table,
            region: "eu-central-1".into(),
            endpoint_url: None,
            lease_ttl: Duration::from_secs(60),
            max_retries: 3,
            attempt_timeout: ATTEMPT_TIMEOUT,
            slot_timeout: Duration::from_secs(30),
            inline_retry_threshold: Duration::from_secs(5),
            leases: Leases::default(),
            on_unavailable: OnUnavailable::default(),
            caller: default_caller(|name| std::env::var(name).ok()),
            clock: Clock::system(),
            lease_ids: LeaseIds::default(),
            prefetch: HashSet::new(),
            max_buckets: MAX_BUCKETS,
            self_heal: true,
            heal_budget: HealBudget::DEFAULT,
            admission: AdmissionMode::default(),
            staleness: Duration::from_secs(60),
        }
    }

    pub(crate) fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables through `lookup`; empty ones count as unset.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let var = |name: &'static str| Variable { name, value: lookup(name).filter(|value| !value.is_empty()) };
        let table = match (var("SLUICE_TABLE_NAME").value, var("SLUICE_ENV").value) {
            (Some(table), _) => table,
            (None, Some(env)) if ENVIRONMENTS.contains(&env.as_str()) => table_name(&env),
            (None, Some(value)) => return Err(bad("SLUICE_ENV", value, "sandbox, pre or prod")),
            (None, None) => return Err(ConfigError::NoTable),
        };
        let defaults = Self::new(table);
        let url = "an http:// or https:// URL, as in http://localhost:4566";
        let levels = "ERROR, WARN, INFO, DEBUG or TRACE";
        var("SLUICE_LOG_LEVEL").parse(levels, log_level)?;
        Ok(Self {
            region: var("SLUICE_AWS_REGION").value.unwrap_or(defaults.region),
            endpoint_url: var("SLUICE_ENDPOINT_URL").parse(url, |v| is_url(v).then(|| v.to_owned()))?,
            lease_ttl: var("SLUICE_LEASE_TTL")
                .parse("seconds, at least 1, as in 60", |v| seconds(v).filter(|ttl| *ttl >= SHORTEST_LEASE))?
                .unwrap_or(defaults.lease_ttl),
            max_retries: var("SLUICE_MAX_RETRIES")
                .parse("a whole number from 0 to 20", |v| v.parse().ok().filter(|n| *n <= MOST_RETRIES))?
                .unwrap_or(defaults.max_retries),
            attempt_timeout: var("SLUICE_ATTEMPT_TIMEOUT")
                .parse("seconds from 0.05 to 60, as in 1", |v| seconds(v).filter(is_attempt))?
                .unwrap_or(defaults.attempt_timeout),
            slot_timeout: var("SLUICE_DEFAULT_SLOT_TIMEOUT")
                .parse("seconds above 0, as in 30", |v| seconds(v).filter(|t| !t.is_zero()))?
                .unwrap_or(defaults.slot_timeout),
            inline_retry_threshold: var("SLUICE_INLINE_RETRY_THRESHOLD")
                .parse("seconds, as in 5", seconds)?
                .unwrap_or(defaults.inline_retry_threshold),
            leases: var("SLUICE_LEASES").parse("concurrent, all or inline", leases)?.unwrap_or(defaults.leases),
            on_unavailable: var("SLUICE_ON_UNAVAILABLE")
                .parse("error, allow, or share: and a factor between 0 and 1, as in share:0.1", on_unavailable)?
                .unwrap_or(defaults.on_unavailable),
            max_buckets: var("SLUICE_MAX_BUCKETS")
                .parse("a whole number, at least 1, as in 10000", |v| v.parse().ok().filter(|most| *most > 0))?
                .unwrap_or(defaults.max_buckets),
            self_heal: var("SLUICE_SELF_HEAL").parse("on or off", on_or_off)?.unwrap_or(defaults.self_heal),
            heal_budget: var("SLUICE_HEAL_BUDGET")
                .parse("read units a minute: 0, or from 10 to 1000000, as in 1500", heal_budget)?
                .unwrap_or(defaults.heal_budget),
            admission: var("SLUICE_ADMISSION")
                .parse("off, shadow or enforce", admission)?
                .unwrap_or(defaults.admission),
            staleness: var("SLUICE_STALENESS")
                .parse("seconds above 0, as in 60", |v| seconds(v).filter(|t| !t.is_zero()))?
                .unwrap_or(defaults.staleness),
            caller: default_caller(&lookup),
            ..defaults
        })
    }
}

/// The longest that a call may take, for sweeps; `None` where `SLUICE_SLOWEST_CALL` is not set, or empty.
pub(crate) fn slowest_call(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Duration>, ConfigError> {
    let name = "SLUICE_SLOWEST_CALL";
    let variable = Variable { name, value: lookup(name).filter(|value| !value.is_empty()) };
    variable.parse("seconds, at least 1, as in 900", |v| seconds(v).filter(|call| *call >= SHORTEST_CALL))
}

/// The level of `SLUICE_LOG_LEVEL`, in the spelling of `tracing`; for programs that install a subscriber. `None` where the
/// text is no level.
#[must_use]
pub fn log_level(text: &str) -> Option<&'static str> {
    ["error", "warn", "info", "debug", "trace"].into_iter().find(|level| level.eq_ignore_ascii_case(text))
}

struct Variable {
    name: &'static str,
    value: Option<String>,
}

impl Variable {
    fn parse<T>(self, takes: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(bad(self.name, value, takes)),
        }
    }
}

const fn bad(variable: &'static str, value: String, takes: &'static str) -> ConfigError {
    ConfigError::BadValue { variable, value, takes }
}

/// More would turn a moment of trouble into a minute of waiting.
pub(crate) const MOST_RETRIES: u32 = 20;

/// Ten thousand buckets take 20 MB, and few fleets have a tenth as many.
pub(crate) const MAX_BUCKETS: usize = 10_000;

/// A reply from another Region takes 0.3 s; a shorter attempt than this would fail in a quiet network.
pub(crate) const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
/// A longer attempt would let one connection that hangs hold up all callers of a bucket.
pub(crate) const LONGEST_ATTEMPT: Duration = Duration::from_secs(60);

fn is_attempt(timeout: &Duration) -> bool {
    (SHORTEST_ATTEMPT..=LONGEST_ATTEMPT).contains(timeout)
}

/// A year: longer settings are a slip of the unit, and would overflow sums of instants.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= LONGEST)
}

fn is_url(text: &str) -> bool {
    text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).is_some_and(|host| !host.is_empty())
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
    [AdmissionMode::Off, AdmissionMode::Shadow, AdmissionMode::Enforce].into_iter().find(|mode| mode.as_str() == text)
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

fn on_unavailable(text: &str) -> Option<OnUnavailable> {
    match text {
        "error" => Some(OnUnavailable::Error),
        "allow" => Some(OnUnavailable::Allow),
        _ => text.strip_prefix("share:")?.parse().ok().map(OnUnavailable::Share),
    }
}

/// Who a lease names as its holder: the function's name in Lambda, else the program's.
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
