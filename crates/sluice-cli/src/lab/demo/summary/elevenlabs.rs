//! The vendor that accepts fewer calls at once than its bucket grants, and is busy for a while.

use std::time::Duration;

use serde::Serialize;

use super::Claim;
use crate::lab::demo::Run;
use crate::lab::demo::limits::{ELEVENLABS_AT_ONCE, ELEVENLABS_CONFIGURED};
use crate::lab::demo::vendor::Vendors;

/// What `--json` prints about this vendor. Limits are calls at once.
#[derive(Debug, Serialize)]
pub(super) struct ElevenLabs {
    configured: u32,
    allowed: u32,
    /// Calls that arrived, accepted or not.
    calls: usize,
    peak: u32,
    /// 429s for one call too many at once, and how many of them came after the vendor's limit was known.
    too_many_429: usize,
    too_many_429_later: usize,
    /// 429s while the vendor was busy.
    busy_429: usize,
    /// The most 429s that followed one of these within its wait.
    more_429_in_a_wait: usize,
}

/// By then, the first replies have stated the vendor's limit.
const LIMIT_KNOWN_AFTER: Duration = Duration::from_secs(1);
/// The most 429s that may follow one within its wait, over all processes.
const MORE: usize = 1;

impl ElevenLabs {
    pub(super) fn new(run: &Run, vendors: &Vendors) -> Self {
        let books = vendors.elevenlabs();
        let (too_many_429, too_many_429_later) = books.too_many(run.begin + LIMIT_KNOWN_AFTER);
        Self {
            configured: ELEVENLABS_CONFIGURED,
            allowed: ELEVENLABS_AT_ONCE,
            calls: books.taken() + too_many_429 + books.busy().count(),
            peak: books.concurrency().1,
            too_many_429,
            too_many_429_later,
            busy_429: books.busy().count(),
            more_429_in_a_wait: books.busy().most_more(),
        }
    }

    pub(super) fn title(&self) -> String {
        format!("configured {} calls at once; the vendor takes {}", self.configured, self.allowed)
    }

    pub(super) fn claims(&self) -> [Claim; 2] {
        let Self { too_many_429, too_many_429_later: later, busy_429, more_429_in_a_wait: more, .. } = self;
        [
            (
                format!(
                    "429 to {too_many_429} of {} calls for too many at once; to {later} after the first second",
                    self.calls
                ),
                *later == 0,
            ),
            (
                format!("429 to {busy_429} while busy; within one Retry-After at most {more} more ({MORE} allowed)"),
                // Without a 429 the claim about pauses is not shown.
                *busy_429 > 0 && *more <= MORE,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_that_was_never_found_busy_shows_nothing() {
        let run = |busy_429| ElevenLabs {
            configured: 8,
            allowed: 6,
            calls: 100,
            peak: 6,
            too_many_429: 2,
            too_many_429_later: 0,
            busy_429,
            more_429_in_a_wait: 0,
        };
        let holds = |run: ElevenLabs| run.claims().iter().all(|(_, holds)| *holds);
        assert!(holds(run(1)) && !holds(run(0)));
    }
}
