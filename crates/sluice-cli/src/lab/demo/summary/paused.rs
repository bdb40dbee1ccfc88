//! Whether all callers kept the pauses that a vendor asked for.

use std::time::Duration;

use serde::Serialize;

use super::claim::Claim;
use crate::lab::demo::Run;
use crate::lab::demo::limits::ARRIVES_WITHIN;
use crate::lab::demo::machine::Machine;
use crate::lab::demo::vendor::waits::Waits;
use crate::lab::figures::rounded;

/// The longest that a process may go by what it knows of a bucket before it looks for a cool-down that another
/// one has set (docs/semantics.md, "A cool-down applies to everyone").
const LOOKS_WITHIN: Duration = Duration::from_millis(250);
/// The longest that a call may come after a 429, and before the end of the pause that it asked for.
const ALLOWED: Duration = LOOKS_WITHIN.saturating_add(ARRIVES_WITHIN);

/// How soon after a 429 nobody called any more, over all processes and 429s.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Paused {
    /// With a `Retry-After`.
    #[serde(skip)]
    times: usize,
    paused_within_ms: f64,
    /// Without the time in which the machine kept a process from running.
    paused_within_net_ms: f64,
}

impl Paused {
    pub(super) fn of(waits: &Waits, run: &Run, machine: &Machine) -> Self {
        let net = |from, to| machine.net(run.unix_micros(from), run.unix_micros(to));
        Self::within(waits.count(), waits.kept_within(|from, to| to - from), waits.kept_within(net))
    }

    pub(super) fn within(times: usize, whole: Duration, net: Duration) -> Self {
        let millis = |time: Duration| rounded(time.as_secs_f64() * 1_000.0);
        Self { times, paused_within_ms: millis(whole), paused_within_net_ms: millis(net) }
    }

    /// `refused`: to which calls the vendor answered with these 429s.
    pub(super) fn claim(self, refused: &str) -> Claim {
        if self.times == 0 {
            return Claim::not_shown(format!("{refused}, so no pause was shown"));
        }
        let allowed = ALLOWED.as_secs_f64() * 1_000.0;
        let within = self.paused_within_ms;
        let text = format!("{refused}; everybody paused within {within:.0} ms ({allowed:.0} ms allowed)");
        let excuse = (self.paused_within_net_ms <= allowed)
            .then(|| "the machine delayed the callers that had to learn of it".into());
        Claim::of(text, within <= allowed).unless(excuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::demo::summary::claim::Verdict;

    #[test]
    fn a_pause_that_was_not_shown_is_not_claimed() {
        let millis = Duration::from_millis;
        let claim =
            |times, whole, net| Paused::within(times, millis(whole), millis(net)).claim("429 to some");
        let held = claim(3, 420, 420);
        assert_eq!(held.text, "429 to some; everybody paused within 420 ms (420 ms allowed)");
        assert_eq!(held.verdict, Verdict::Holds);
        assert_eq!(claim(0, 0, 0).verdict, Verdict::NotShown, "nobody was told to wait");
        assert_eq!(claim(3, 421, 421).verdict, Verdict::Fails, "somebody did not hear of it");
        assert_eq!(claim(3, 600, 420).verdict, Verdict::NotShown, "the machine held it up");
    }
}
