//! How far this machine's clock is from DynamoDB's. The replies to all other checks bound the difference.

use std::time::Duration;

use sluice_core::ClockOffset;

use super::finding::{Check, Finding};
use crate::duration::exact;

/// The client warns from this offset on, and so does the alarm `clock-offset`.
const TOO_FAR: Duration = Duration::from_secs(1);

pub(super) fn examine(offset: Option<ClockOffset>, table: &str) -> Finding {
    let Some(offset) = offset else {
        let todo = "nothing, if this is an engine for development; otherwise find what removes the header Date from DynamoDB's replies";
        let what = "no reply had a Date: this machine's clock counts as DynamoDB's";
        return Finding::note(Check::Clock, table, what, todo);
    };
    if !offset.exceeds(TOO_FAR) {
        let within = offset.lower_micros().unsigned_abs().max(offset.upper_micros().unsigned_abs());
        // Rounded up to the next tenth.
        let tenths = within.div_ceil(100_000);
        let what = format!("DynamoDB's clock is within {}.{}s of this machine's", tenths / 10, tenths % 10);
        return Finding::fine(Check::Clock, table, what);
    }
    let by = exact(Duration::from_micros(offset.micros().unsigned_abs()).as_secs_f64());
    let way = if offset.micros() > 0 { "behind" } else { "ahead of" };
    let what = format!("this machine's clock is at least {by} {way} DynamoDB's");
    let todo = "set the clock by NTP (chrony): Sluice corrects its own time by each reply; other programs and the AWS SDK's first request \
                do not";
    Finding::problem(Check::Clock, table, what, todo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Weight;
    use sluice_sdk::core::Timestamp;

    /// The finding after one reply that took no time, with a `Date` that is `micros` from this machine's
    /// clock.
    fn of_date(micros: i64) -> Finding {
        let here = Timestamp::from_secs(1_709_550_000);
        let there = Timestamp::from_micros(here.micros() + micros);
        examine(ClockOffset::of_reply(there, here, here), "the-table")
    }

    #[test]
    fn a_clock_is_off_only_where_the_date_leaves_no_doubt() {
        // A `Date` is up to a second older than the clock that wrote it, and that clock is up to 10 ms off.
        for (micros, what) in [
            (0, "within 1.1s"),
            (980_001, "within 2.0s"),
            (-1_910_000, "within 2.0s"),
            (-600_000, "within 0.7s"),
        ] {
            let finding = of_date(micros);
            assert_eq!(finding.weight, Weight::Fine, "{}", finding.what);
            assert!(finding.what.contains(what), "{}", finding.what);
        }
        let behind = of_date(1_500_000);
        assert_eq!(behind.weight, Weight::Problem);
        assert!(behind.what.contains("1.4s behind DynamoDB's"), "{}", behind.what);
        let ahead = of_date(-3_250_000);
        assert!(ahead.is_problem() && ahead.what.contains("2.2s ahead of DynamoDB's"), "{}", ahead.what);
    }

    #[test]
    fn replies_without_a_date_say_nothing() {
        assert_eq!(examine(None, "the-table").weight, Weight::Note);
    }
}
