//! Instants, as integer microseconds since the Unix epoch.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::decimal::{self, DecimalError};

/// A point in time: microseconds since the Unix epoch. In the table, decimal seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The largest clock error that Sluice allows for, in either direction.
pub const CLOCK_ERROR: Duration = Duration::from_secs(2);

/// The error that remains after a clock is corrected by DynamoDB's: the `Date` of a reply is in whole
/// seconds, and about twenty replies at different parts of a second bracket the offset to well under 100 ms.
pub const CORRECTED_CLOCK_ERROR: Duration = Duration::from_millis(100);

const MICROS_PER_SEC: i64 = 1_000_000;
const SCALE: u32 = 6;

impl Timestamp {
    /// `micros` microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// `secs` seconds after the epoch.
    #[must_use]
    pub const fn from_secs(secs: u32) -> Self {
        Self(secs as i64 * MICROS_PER_SEC)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Microseconds from `earlier` to this instant; negative if `earlier` is later.
    #[must_use]
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.micros_since(earlier)).unwrap_or(0))
    }

    /// The instant `span` later, saturating.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(whole_micros(span)))
    }

    /// The instant `span` earlier, saturating.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(whole_micros(span)))
    }

    /// This instant rounded up to a whole second: what a `ttl` attribute can hold.
    #[must_use]
    pub const fn ceil_to_second(self) -> Self {
        let into = self.0.rem_euclid(MICROS_PER_SEC);
        if into == 0 { self } else { Self(self.0.saturating_add(MICROS_PER_SEC - into)) }
    }

    /// Parses decimal seconds, rounding down. The flag is true if no digit was lost.
    pub(crate) fn parse(text: &str) -> Result<(Self, bool), DecimalError> {
        decimal::parse(text, 6).map(|scaled| (Self(scaled.value), scaled.exact))
    }
}

/// The time between two instants; zero if the second is later.
impl core::ops::Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// The whole microseconds of a span, as far as there is room for them.
pub(crate) fn whole_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl FromStr for Timestamp {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text).map(|(at, _)| at)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal::write(f, self.0, SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_ttl_never_ends_before_the_lease() {
        let ends: Timestamp = "1709550002.000001".parse().unwrap();
        assert_eq!(ends.ceil_to_second().to_string(), "1709550003");
        assert_eq!(Timestamp::from_secs(5).ceil_to_second(), Timestamp::from_secs(5));
    }
}
