//! Settings of the connection to one table, from the environment or from code, and how variables are read.

use std::time::Duration;

use sluice_core::schema::{ENVIRONMENTS, table_name};

use crate::clock::Clock;
use crate::misspelt::warn_of_misspelt_variables;

/// Why the settings cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Neither variable that names the table is set. There is no default; the production table in particular
    /// is none.
    #[error(
        "no table is named: set SLUICE_TABLE_NAME, or SLUICE_ENV to one of sandbox, pre, prod; `sluice sandbox` \
         starts a sandbox and prints what to set"
    )]
    NoTable,
    /// A variable has a value that it does not accept.
    #[error("{variable}={value:?} cannot be used: it must be {takes}")]
    BadValue {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values that it accepts.
        takes: &'static str,
    },
    /// A variable names a file that cannot be used.
    #[error("{variable} names {file:?}, which cannot be used: {why}")]
    File {
        /// The variable.
        variable: &'static str,
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The default time that an attempt of a request for rows may take.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The most retries that may be set: more would turn a short failure into a minute of waiting.
pub const MOST_RETRIES: u32 = 20;

/// The shortest timeout of an attempt: a shorter attempt would fail in a quiet network. (A reply from another
/// Region takes 0.3 s.)
pub const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
/// The longest timeout of an attempt: a connection that hangs blocks all callers of a bucket for as long.
pub const LONGEST_ATTEMPT: Duration = Duration::from_secs(60);

/// The default of the longest time to an answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The shortest time to an answer that may be set.
pub const SHORTEST_ANSWER: Duration = Duration::from_millis(100);
/// The longest time to an answer that may be set.
pub const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// A year. A longer setting is a wrong unit, and sums of instants would overflow.
pub const LONGEST_SETTING: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Which table, where it is, and how long a request for it may take.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the table.
    pub table: String,
    /// Region of the table; `eu-central-1` by default.
    pub region: String,
    /// An endpoint other than AWS's.
    pub endpoint_url: Option<String>,
    /// How often a request is sent again; 3 by default.
    pub max_retries: u32,
    /// How long one attempt of a request for rows may take; 1 s by default.
    pub attempt_timeout: Duration,
    /// The longest time to an answer for a caller that does not wait; 3 s by default. At least one attempt.
    pub answer_within: Duration,
    /// This machine's clock.
    pub clock: Clock,
}

impl Settings {
    /// The default settings for `table`.
    #[must_use]
    pub fn new(table: String) -> Self {
        Self {
            table,
            region: "eu-central-1".into(),
            endpoint_url: None,
            max_retries: 3,
            attempt_timeout: ATTEMPT_TIMEOUT,
            answer_within: ANSWER_WITHIN,
            clock: Clock::system(),
        }
    }

    /// The settings in the `SLUICE_*` variables of this process, and its `AWS_REGION`. Logs a warning for
    /// each misspelt one.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used, or if no table is named.
    pub fn from_env() -> Result<Self, ConfigError> {
        warn_of_misspelt_variables();
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// The settings in the variables that `lookup` returns; empty ones count as unset.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used, or if no table is named.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let var = |name| Variable::new(name, &lookup);
        let table = match (var("SLUICE_TABLE_NAME").text(), var("SLUICE_ENV").text()) {
            (Some(table), _) => table,
            (None, Some(env)) if ENVIRONMENTS.contains(&env.as_str()) => table_name(&env),
            (None, Some(value)) => {
                return Err(ConfigError::BadValue {
                    variable: "SLUICE_ENV",
                    value,
                    takes: "sandbox, pre or prod",
                });
            }
            (None, None) => return Err(ConfigError::NoTable),
        };
        let defaults = Self::new(table);
        let url = "an http:// or https:// URL, as in http://localhost:4566";
        var("SLUICE_LOG_LEVEL").parse("ERROR, WARN, INFO, DEBUG or TRACE", log_level)?;
        Ok(Self {
            // The process's own Region if the table's is not named: most tables are where their callers are.
            region: var("SLUICE_AWS_REGION")
                .text()
                .or_else(|| var("AWS_REGION").text())
                .unwrap_or(defaults.region),
            endpoint_url: var("SLUICE_ENDPOINT_URL").parse(url, |v| is_url(v).then(|| v.to_owned()))?,
            max_retries: var("SLUICE_MAX_RETRIES")
                .parse("a whole number from 0 to 20", |v| v.parse().ok().filter(|n| *n <= MOST_RETRIES))?
                .unwrap_or(defaults.max_retries),
            attempt_timeout: var("SLUICE_ATTEMPT_TIMEOUT")
                .parse("a time from 0.05 to 60 s, as in 1s or 500ms", |v| {
                    duration(v).filter(|timeout| (SHORTEST_ATTEMPT..=LONGEST_ATTEMPT).contains(timeout))
                })?
                .unwrap_or(defaults.attempt_timeout),
            answer_within: var("SLUICE_ANSWER_WITHIN")
                .parse("a time from 0.1 to 60 s, as in 3s or 500ms", |v| {
                    duration(v).filter(|time| (SHORTEST_ANSWER..=LONGEST_ANSWER).contains(time))
                })?
                .unwrap_or(defaults.answer_within),
            table: defaults.table,
            clock: defaults.clock,
        })
    }
}

/// An environment variable. An empty one counts as unset.
#[derive(Debug)]
pub struct Variable {
    name: &'static str,
    value: Option<String>,
}

impl Variable {
    /// The variable `name`, as `lookup` returns it.
    pub fn new(name: &'static str, lookup: impl Fn(&str) -> Option<String>) -> Self {
        Self { name, value: lookup(name).filter(|value| !value.is_empty()) }
    }

    /// The value of the variable, if it is set.
    #[must_use]
    pub fn text(self) -> Option<String> {
        self.value
    }

    /// The value of the variable, parsed by `read`. In an error, `takes` states the accepted values.
    ///
    /// # Errors
    /// [`ConfigError::BadValue`] if the variable is set and `read` returns `None`.
    pub fn parse<T>(
        self,
        takes: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(ConfigError::BadValue { variable: self.name, value, takes }),
        }
    }
}

/// Parses a time in a setting: `60s`, `1m 30s`, `250ms`, or plain seconds such as `60` or `0.5`. `None` if
/// the text is not a time, or the time is longer than a year.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let seconds = || text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // To humantime `M` is a month; somebody who writes `15M` means minutes.
    let with_unit = || humantime::parse_duration(text).ok().filter(|_| !text.contains('M'));
    seconds().or_else(with_unit).filter(|time| *time <= LONGEST_SETTING)
}

/// The level in `SLUICE_LOG_LEVEL`, as `tracing` spells it; `None` if the text is not a level.
#[must_use]
pub fn log_level(text: &str) -> Option<&'static str> {
    ["error", "warn", "info", "debug", "trace"].into_iter().find(|level| level.eq_ignore_ascii_case(text))
}

fn is_url(text: &str) -> bool {
    text.strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .is_some_and(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_that_of_the_table_else_of_the_process() {
        let region = |pairs: &[(&str, &str)]| {
            let mut pairs = pairs.to_vec();
            pairs.push(("SLUICE_ENV", "sandbox"));
            let lookup = |name: &str| {
                pairs.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            };
            Settings::from_lookup(lookup).unwrap().region
        };
        assert_eq!(region(&[("SLUICE_AWS_REGION", "us-east-1"), ("AWS_REGION", "eu-west-1")]), "us-east-1");
        assert_eq!(region(&[("AWS_REGION", "eu-west-1")]), "eu-west-1");
        assert_eq!(region(&[("SLUICE_AWS_REGION", ""), ("AWS_REGION", "eu-west-1")]), "eu-west-1");
        assert_eq!(region(&[]), "eu-central-1");
    }

    #[test]
    fn times_are_read_with_their_unit_or_as_seconds() {
        let cases = [
            ("60", 60_000),
            ("0.5", 500),
            ("60s", 60_000),
            ("1m 30s", 90_000),
            ("250ms", 250),
            ("15m", 900_000),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-5", "NaN", "1e300", "soon", "5 parsecs", "15M", "400d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
