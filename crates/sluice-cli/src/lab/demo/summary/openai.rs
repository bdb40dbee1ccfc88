//! The vendor that allows less than its bucket grants, and even less later.

use serde::Serialize;
use tokio::time::Instant;

use super::claim::Claim;
use super::paused::Paused;
use crate::lab::demo::Run;
use crate::lab::demo::limits::{MINUTE_SECS, OPENAI_REQUESTS};
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
    #[serde(flatten)]
    paused: Paused,
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
            paused: Paused::of(books.waits(), run, machine),
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
        let Self { vendor_429, paused, judged_calls, judged_allowed, utilisation, .. } = self;
        let paused = paused.claim(&format!("429 to {vendor_429} of {} calls", self.calls));
        let used = format!(
            "{:.1} % used ({judged_calls} calls; {judged_allowed:.0} refilled) from {MINUTE_SECS} s after the drop",
            utilisation * 100.0
        );
        let (from, to) = (run.unix_micros(self.judged_from), run.unix_micros(run.end()));
        let no_time = machine.left_no_time_for(*utilisation, UTILISATION, from, to);
        [paused, Claim::of(used, *utilisation >= UTILISATION).unless(no_time)]
    }
}
