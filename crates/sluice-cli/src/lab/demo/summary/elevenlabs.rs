//! The vendor that accepts fewer calls at once than its bucket grants, and is busy for a while.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::claim::Claim;
use super::paused::Paused;
use crate::lab::demo::Run;
use crate::lab::demo::limits::{ELEVENLABS_AT_ONCE, ELEVENLABS_CONFIGURED};
use crate::lab::demo::machine::Machine;
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
    /// Those of them that the machine's delays do not explain.
    too_many_429_without_excuse: usize,
    /// 429s while the vendor was busy.
    busy_429: usize,
    #[serde(flatten)]
    paused: Paused,
}

/// By then, the first replies have stated the vendor's limit.
const LIMIT_KNOWN_AFTER: Duration = Duration::from_secs(1);

impl ElevenLabs {
    pub(super) fn new(run: &Run, vendors: &Vendors, machine: &Machine) -> Self {
        let books = vendors.elevenlabs();
        let too_many_429 = books.too_many().len();
        let later = books.too_many().iter().filter(|at| **at > run.begin + LIMIT_KNOWN_AFTER);
        let without_excuse =
            |at: &&Instant| machine.net(run.start.micros(), run.unix_micros(**at)) > LIMIT_KNOWN_AFTER;
        Self {
            configured: ELEVENLABS_CONFIGURED,
            allowed: ELEVENLABS_AT_ONCE,
            calls: books.taken() + too_many_429 + books.busy().count(),
            peak: books.concurrency().1,
            too_many_429,
            too_many_429_later: later.clone().count(),
            too_many_429_without_excuse: later.filter(without_excuse).count(),
            busy_429: books.busy().count(),
            paused: Paused::of(books.busy(), run, machine),
        }
    }

    pub(super) fn title(&self) -> String {
        format!("configured {} calls at once; the vendor takes {}", self.configured, self.allowed)
    }

    pub(super) fn claims(&self) -> [Claim; 2] {
        let Self { too_many_429, too_many_429_later: later, busy_429, paused, .. } = self;
        let too_many = format!(
            "429 to {too_many_429} of {} calls for too many at once; to {later} after the first second",
            self.calls
        );
        let busy = paused.claim(&format!("429 to {busy_429} while busy"));
        let excuse =
            (self.too_many_429_without_excuse == 0).then(|| "the machine held up the first replies".into());
        [Claim::of(too_many, *later == 0).unless(excuse), busy]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::demo::summary::claim::Verdict;

    fn verdicts(busy_429: usize, later: usize, without_excuse: usize) -> [Verdict; 2] {
        let figures = ElevenLabs {
            configured: 8,
            allowed: 6,
            calls: 100,
            peak: 6,
            too_many_429: 2 + later,
            too_many_429_later: later,
            too_many_429_without_excuse: without_excuse,
            busy_429,
            paused: Paused::within(busy_429, Duration::ZERO, Duration::ZERO),
        };
        figures.claims().map(|claim| claim.verdict)
    }

    #[test]
    fn a_vendor_that_was_never_found_busy_shows_nothing() {
        assert_eq!(verdicts(1, 0, 0), [Verdict::Holds; 2]);
        assert_eq!(verdicts(0, 0, 0), [Verdict::Holds, Verdict::NotShown]);
    }

    #[test]
    fn a_limit_that_is_not_taken_on_fails_unless_the_machine_held_up_the_replies() {
        assert_eq!(verdicts(1, 3, 0)[0], Verdict::NotShown);
        assert_eq!(verdicts(1, 3, 1)[0], Verdict::Fails);
    }
}
