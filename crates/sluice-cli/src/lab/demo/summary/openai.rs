//! The vendor that allows less than its bucket grants, and even less later.

use serde::Serialize;
use tokio::time::Instant;

use super::claim::Claim;
use crate::lab::demo::Run;
use crate::lab::demo::limits::{ARRIVES_WITHIN, MINUTE_SECS, OPENAI_REQUESTS};
use crate::lab::demo::machine::Machine;
use crate::lab::demo::vendor::openai::MINUTE;
use crate::lab::demo::vendor::{Changes, Vendors};
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
    /// Those of them that the machine's delays do not explain.
    more_429_not_heard: usize,
    #[serde(skip)]
    judged_from: Instant,
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
    pub(super) fn new(run: &Run, vendors: &Vendors, machine: &Machine) -> Self {
        let books = vendors.openai();
        let Changes { drop_at, .. } = Changes::within(run.begin, run.length);
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
            more_429_in_a_wait: books.waits().most_more(|_, _| true),
            more_429_not_heard: books.waits().most_more(|first, more| {
                machine.not_heard(run.unix_micros(first), run.unix_micros(more), ARRIVES_WITHIN)
            }),
            judged_from: from,
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

    pub(super) fn claims(&self, run: &Run, machine: &Machine) -> [Claim; 2] {
        let Self {
            vendor_429,
            more_429_in_a_wait: more,
            more_429_not_heard: not_heard,
            judged_calls,
            judged_allowed,
            utilisation,
            ..
        } = self;
        let paused = format!(
            "429 to {vendor_429} of {} calls; within one Retry-After at most {more} more ({MORE} allowed)",
            self.calls
        );
        let paused = if *vendor_429 == 0 {
            Claim::not_shown(format!("429 to 0 of {} calls, so no pause was shown", self.calls))
        } else {
            let excuse = (*not_heard <= MORE)
                .then(|| "the machine delayed the callers that had to learn of it".into());
            Claim::of(paused, *more <= MORE).unless(excuse)
        };
        let used = format!(
            "{:.1} % used ({judged_calls} calls; {judged_allowed:.0} refilled) from {MINUTE_SECS} s after the drop",
            utilisation * 100.0
        );
        let (from, to) = (run.unix_micros(self.judged_from), run.unix_micros(run.end()));
        let no_time = machine.left_no_time_for(*utilisation, UTILISATION, from, to);
        [paused, Claim::of(used, *utilisation >= UTILISATION).unless(no_time)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::demo::summary::claim::Verdict;

    /// What becomes of the claims if `more` 429s followed within a wait, `not_heard` of them without an
    /// excuse.
    fn verdicts(vendor_429: usize, more: usize, not_heard: usize) -> [Verdict; 2] {
        let now = Instant::now();
        let run = Run {
            begin: now,
            start: sluice_sdk::core::Timestamp::from_micros(0),
            length: Duration::from_secs(16),
        };
        let figures = OpenAi {
            configured: 800,
            allowed_at_first: 600,
            allowed_later: 300,
            dropped_at_secs: 5.0,
            calls: 100,
            vendor_429,
            more_429_in_a_wait: more,
            more_429_not_heard: not_heard,
            judged_from: now,
            judged_secs: 10.0,
            judged_calls: 50,
            judged_allowed: 50.0,
            utilisation: 1.0,
        };
        figures.claims(&run, &Machine::punctual()).map(|claim| claim.verdict)
    }

    #[test]
    fn a_pause_that_was_not_shown_is_not_claimed() {
        assert_eq!(verdicts(3, 1, 1), [Verdict::Holds; 2]);
        assert_eq!(verdicts(0, 0, 0)[0], Verdict::NotShown, "nobody was told to wait");
        assert_eq!(verdicts(3, 2, 2)[0], Verdict::Fails, "a wait was not heard of");
        assert_eq!(verdicts(3, 2, 1)[0], Verdict::NotShown, "the machine held it up");
    }
}
