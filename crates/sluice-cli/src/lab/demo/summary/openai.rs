//! The vendor that allows less than its bucket grants, and even less later.

use serde::Serialize;

use super::Claim;
use crate::lab::demo::Run;
use crate::lab::demo::limits::{MINUTE_SECS, OPENAI_REQUESTS};
use crate::lab::demo::vendor::Vendors;
use crate::lab::demo::vendor::openai::{MINUTE, drop_at};
use crate::lab::figures::{ratio, rounded};

/// What `--json` prints about this vendor. Limits are calls a minute.
#[derive(Debug, Serialize)]
pub(super) struct OpenAi {
    configured: u32,
    allowed_at_first: u32,
    allowed_later: u32,
    dropped_at_secs: f64,
    /// Calls that arrived, accepted or not.
    calls: usize,
    /// All 429s, each with a `Retry-After`.
    vendor_429: usize,
    /// The most 429s that followed one within its wait.
    more_429_in_a_wait: usize,
    /// From one "minute" of the demo after the drop, to the end: seconds, calls accepted, calls allowed, and
    /// the ratio of the two.
    judged_secs: f64,
    judged_calls: usize,
    judged_allowed: f64,
    utilisation: f64,
}

/// The least share of what the vendor really allows that must be used, a minute after the drop.
const UTILISATION: f64 = 0.95;
/// The most 429s that may follow one within its wait, over all processes.
const MORE: usize = 1;

impl OpenAi {
    pub(super) fn new(run: &Run, vendors: &Vendors) -> Self {
        let books = vendors.openai();
        let drop_at = drop_at(run.begin, run.length);
        let (from, to) = (drop_at + MINUTE, run.begin + run.length);
        let judged_calls = books.taken_between(from, to);
        let judged_secs = to.saturating_duration_since(from).as_secs_f64();
        let judged_allowed = judged_secs * f64::from(OPENAI_REQUESTS.later) / 60.0;
        Self {
            configured: OPENAI_REQUESTS.configured,
            allowed_at_first: OPENAI_REQUESTS.at_first,
            allowed_later: OPENAI_REQUESTS.later,
            dropped_at_secs: rounded((drop_at - run.begin).as_secs_f64()),
            calls: books.taken() + books.waits().count(),
            vendor_429: books.waits().count(),
            more_429_in_a_wait: books.waits().most_more(),
            judged_secs: rounded(judged_secs),
            judged_calls,
            judged_allowed: rounded(judged_allowed),
            utilisation: rounded(ratio(judged_calls as u64, 1) / judged_allowed),
        }
    }

    pub(super) fn title(&self) -> String {
        let Self { configured, allowed_at_first, allowed_later, dropped_at_secs, .. } = self;
        format!(
            "configured {configured} calls a minute; the vendor takes {allowed_at_first}, and {allowed_later} after {dropped_at_secs:.0} s"
        )
    }

    pub(super) fn claims(&self) -> [Claim; 2] {
        let Self { vendor_429, more_429_in_a_wait: more, judged_calls, judged_allowed, utilisation, .. } = self;
        [
            (
                format!(
                    "429 to {vendor_429} of {} calls; within one Retry-After at most {more} more ({MORE} allowed)",
                    self.calls
                ),
                // Without a 429 the claim about pauses is not shown.
                *vendor_429 > 0 && *more <= MORE,
            ),
            (
                format!(
                    "{:.1} % used ({judged_calls} calls; {judged_allowed:.0} refilled) from {MINUTE_SECS} s after the drop",
                    utilisation * 100.0
                ),
                *utilisation >= UTILISATION,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(vendor_429: usize, more_429_in_a_wait: usize) -> OpenAi {
        OpenAi {
            configured: 800,
            allowed_at_first: 600,
            allowed_later: 300,
            dropped_at_secs: 5.0,
            calls: 100,
            vendor_429,
            more_429_in_a_wait,
            judged_secs: 10.0,
            judged_calls: 50,
            judged_allowed: 50.0,
            utilisation: 1.0,
        }
    }

    #[test]
    fn a_pause_that_was_not_shown_is_not_claimed() {
        let holds = |run: OpenAi| run.claims().iter().all(|(_, holds)| *holds);
        assert!(holds(run(3, 1)));
        assert!(!holds(run(0, 0)), "nobody was told to wait");
        assert!(!holds(run(3, 2)), "a wait was not heard of");
    }
}
