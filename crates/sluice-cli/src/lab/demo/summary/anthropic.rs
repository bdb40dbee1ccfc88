//! The vendor that allows a little more than its buckets grant.

use std::time::Duration;

use serde::Serialize;

use super::claim::Claim;
use super::starts::Starts;

use crate::lab::demo::Run;
use crate::lab::demo::limits::{
    ARRIVES_WITHIN, AT_ONCE, REQUEST_BURST, REQUEST_RATE, REQUESTS_PER_WINDOW, WINDOW_SECS,
};
use crate::lab::demo::machine::Machine;
use crate::lab::demo::vendor::Vendors;
use crate::lab::demo::vendor::anthropic::{Arrival, Books, Refused};
use crate::lab::figures::{ratio, rounded};
use crate::output::short;

/// What `--json` prints about this vendor.
#[derive(Debug, Serialize)]
pub(super) struct Anthropic {
    /// Calls that arrived, accepted or not.
    vendor_calls: usize,
    vendor_429: u64,
    vendor_429_for: Refused,
    /// The most calls accepted in any window.
    busiest_window: usize,
    /// The burst of the starts at the bucket's rate, the bucket's burst, and whether the first is within the
    /// second.
    burst_of_starts: f64,
    burst_allowed: u32,
    starts_fit: bool,
    /// Calls that arrived before their start.
    called_early: usize,
    /// The time from a start to its arrival, median and longest, and the time that a window leaves room for.
    arrival_p50_ms: f64,
    slowest_arrival_ms: f64,
    arrival_room_ms: f64,
    /// Calls that took longer than there is room for, and how many of these the machine's delays do not
    /// explain.
    late_arrivals: usize,
    late_by_sluice: usize,
    peak_concurrency: u32,
    concurrency_limit: u32,
    requests_granted: usize,
    requests_allowed: usize,
    utilisation: f64,
}

/// The least share of what the vendor allows that must be used.
const UTILISATION: f64 = 0.95;

impl Anthropic {
    pub(super) fn new(run: &Run, vendors: &Vendors, machine: &Machine) -> Self {
        let stop = run.start.after(run.length);
        Self::of(&vendors.anthropic(), u64::try_from(stop.micros()).unwrap_or(0), machine)
    }

    /// `stop`: when the callers stop, in microseconds of Unix time.
    fn of(books: &Books, stop: u64, machine: &Machine) -> Self {
        // The vendor's window begins with the first call.
        let first = books.first_call().unwrap_or(stop).min(stop);
        let length = Duration::from_micros(stop - first);
        let granted = books.taken_within(first, length);
        let allowed = usize::try_from(u128::from(REQUESTS_PER_WINDOW) * length.as_micros()).unwrap_or(0)
            / (WINDOW_SECS as usize * 1_000_000);
        let starts = Starts::of(books.arrivals(), REQUEST_RATE, REQUEST_BURST);
        let refused = books.refused();
        let late: Vec<_> =
            books.arrivals().iter().filter(|arrival| arrival.took() > ARRIVES_WITHIN).collect();
        Self {
            vendor_calls: books.arrivals().len(),
            vendor_429: refused.requests + refused.tokens + refused.concurrency,
            vendor_429_for: refused,
            busiest_window: books.busiest_window(),
            burst_of_starts: rounded(starts.burst),
            burst_allowed: REQUEST_BURST,
            starts_fit: starts.fit,
            called_early: starts.early,
            arrival_p50_ms: millis(starts.median),
            slowest_arrival_ms: millis(starts.slowest),
            arrival_room_ms: millis(ARRIVES_WITHIN),
            late_arrivals: late.len(),
            late_by_sluice: late.iter().filter(|arrival| !explains(machine, arrival)).count(),
            peak_concurrency: books.concurrency().1,
            concurrency_limit: AT_ONCE,
            requests_granted: granted,
            requests_allowed: allowed,
            utilisation: rounded(ratio(granted as u64, allowed as u64)),
        }
    }

    pub(super) fn title(&self) -> String {
        format!(
            "takes {REQUESTS_PER_WINDOW} calls in any {WINDOW_SECS} s, and {} at once",
            self.concurrency_limit
        )
    }

    pub(super) fn claims(&self, run: &Run, machine: &Machine) -> [Claim; 5] {
        let Self { vendor_calls, vendor_429, burst_of_starts, called_early, .. } = self;
        let Self { peak_concurrency, concurrency_limit, .. } = self;
        let Refused { requests, tokens, concurrency } = self.vendor_429_for;
        let reasons = format!(" (requests {requests}, tokens {tokens}, at once {concurrency})");
        let reasons = if *vendor_429 > 0 { reasons } else { String::new() };
        let early =
            if *called_early > 0 { format!("; {called_early} calls came early") } else { String::new() };
        let burst = short(&format!("{burst_of_starts:.3}"));
        let starts = format!(
            "starts: {REQUEST_RATE} a second and a burst of {burst}; the bucket allows {REQUEST_BURST}{early}"
        );
        let starts = Claim::of(starts, self.starts_fit && *called_early == 0);
        let at_once = format!("at most {peak_concurrency} calls at once");
        [
            Claim::of(format!("429 to {vendor_429} of {vendor_calls} calls{reasons}"), *vendor_429 == 0)
                .unless(self.refused_for_lateness()),
            // A start too many is Sluice's fault, however late the machine is.
            if self.starts_fit { starts.unless(machine.clock_set()) } else { starts },
            self.in_time(),
            Claim::of(at_once, peak_concurrency <= concurrency_limit && concurrency == 0)
                .unless(machine.stalled()),
            self.use_of_quota().unless(self.no_time(run, machine)),
        ]
    }

    /// If starts are as the bucket allows and arrive in time, the vendor has no reason to refuse any for
    /// their number.
    fn refused_for_lateness(&self) -> Option<String> {
        let is_reason = self.late_arrivals > 0 && self.late_by_sluice == 0;
        (is_reason && self.starts_fit && self.called_early == 0 && self.vendor_429_for.concurrency == 0)
            .then(|| "calls that the machine held up came in a bunch".into())
    }

    fn in_time(&self) -> Claim {
        let Self { slowest_arrival_ms, arrival_room_ms, late_arrivals, late_by_sluice, .. } = self;
        let text = format!(
            "slowest call {slowest_arrival_ms:.0} ms after its start (room for {arrival_room_ms:.0} ms)"
        );
        if *late_by_sluice > 0 {
            return Claim::of(format!("{text}; {late_by_sluice} late calls are not the machine's"), false);
        }
        Claim::of(text, *late_arrivals == 0).unless(Some("the machine held it up".into()))
    }

    fn use_of_quota(&self) -> Claim {
        let Self { utilisation, requests_granted, requests_allowed, .. } = self;
        let used =
            format!("{:.1} % used ({requests_granted} of {requests_allowed} calls)", utilisation * 100.0);
        let wanted = if *utilisation < UTILISATION {
            format!(", {:.0} wanted", UTILISATION * 100.0)
        } else {
            String::new()
        };
        Claim::of(used + &wanted, *utilisation >= UTILISATION)
    }

    fn no_time(&self, run: &Run, machine: &Machine) -> Option<String> {
        let (from, to) = (run.start.micros(), run.start.after(run.length).micros());
        machine.left_no_time_for(self.utilisation, UTILISATION, from, to)
    }
}

/// Whether the call would have come in time, had no process been kept from running meanwhile.
fn explains(machine: &Machine, arrival: &Arrival) -> bool {
    let micros = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    machine.net_of(arrival.process, micros(arrival.start_at), micros(arrival.at)) <= ARRIVES_WITHIN
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::demo::probe::{Late, Lateness};
    use crate::lab::demo::summary::claim::Verdict::{self, Fails, Holds, NotShown};

    const PUNCTUAL: Machine = Machine::punctual();

    /// A machine that kept a process from running until `came`, in milliseconds.
    fn late_until(came: i64) -> Machine {
        let late = vec![Late { due: 0, came: came * 1_000 }];
        Machine::of(&[vec![Lateness { late, clock_moved_micros: 0 }]], &Lateness::default())
    }

    /// Calls that all start at once and arrive after `millis`, together with rejected ones. The callers stop
    /// when the vendor has accepted as many as it allows.
    fn claims(refused: Refused, millis: u64, calls: u64, machine: &Machine) -> [Claim; 5] {
        let micros = millis * 1_000;
        let arrivals = (0..calls).map(|_| Arrival::taken(0, micros)).collect();
        judged(&Books::after(arrivals, refused), micros + calls * 16_667, machine)
    }

    fn judged(books: &Books, stop: u64, machine: &Machine) -> [Claim; 5] {
        let (begin, start) = (tokio::time::Instant::now(), sluice_sdk::core::Timestamp::from_micros(0));
        let run = Run { begin, start, length: Duration::from_micros(stop) };
        Anthropic::of(books, stop, machine).claims(&run, machine)
    }

    fn verdicts(claims: &[Claim; 5]) -> [Verdict; 5] {
        claims.clone().map(|claim| claim.verdict)
    }

    const ONE: Refused = Refused { requests: 1, tokens: 0, concurrency: 0 };

    #[test]
    fn a_429_fails_and_says_what_for() {
        let in_time = claims(ONE, 169, 2, &PUNCTUAL);
        assert_eq!(verdicts(&in_time), [Fails, Holds, Holds, Holds, Holds]);
        let mixed = claims(Refused { requests: 1, tokens: 2, concurrency: 3 }, 169, 2, &PUNCTUAL);
        assert_eq!(mixed[0].text, "429 to 6 of 2 calls (requests 1, tokens 2, at once 3)");
        assert_eq!(verdicts(&mixed), [Fails, Holds, Holds, Fails, Holds]);
    }

    #[test]
    fn a_late_call_fails_unless_the_machine_held_it_up() {
        let late = claims(ONE, 500, 2, &PUNCTUAL);
        assert_eq!(verdicts(&late), [Fails, Holds, Fails, Holds, Holds]);
        assert_eq!(
            verdicts(&claims(ONE, 500, 2, &late_until(329))),
            [Fails, Holds, Fails, Holds, Holds],
            "171 ms are Sluice's"
        );
        let held_up = claims(ONE, 500, 2, &late_until(330));
        assert_eq!(verdicts(&held_up), [NotShown, Holds, NotShown, Holds, Holds]);
        assert_eq!(
            held_up[2].text,
            "slowest call 500 ms after its start (room for 170 ms); the machine held it up"
        );
    }

    #[test]
    fn a_call_before_its_start_fails_unless_the_clock_was_set() {
        let early = Books::after(vec![Arrival::taken(1_000_000, 999_999)], Refused::default());
        let stop = 999_999 + 2 * 16_667;
        let at_a_steady_clock = judged(&early, stop, &PUNCTUAL);
        assert_eq!(
            at_a_steady_clock[1].text,
            "starts: 58 a second and a burst of 1; the bucket allows 2; 1 calls came early"
        );
        assert_eq!(verdicts(&at_a_steady_clock), [Holds, Fails, Holds, Holds, Fails]);
        assert_eq!(at_a_steady_clock[4].text, "50.0 % used (1 of 2 calls), 95 wanted");
        let set = Machine::of(&[], &Lateness { clock_moved_micros: 9_000, ..Lateness::default() });
        assert_eq!(verdicts(&judged(&early, stop, &set))[1], NotShown);
    }

    #[test]
    fn a_start_too_many_fails_however_late_the_machine_is() {
        let many = claims(ONE, 500, 3, &late_until(500));
        assert_eq!(many[1].text, "starts: 58 a second and a burst of 3; the bucket allows 2");
        assert_eq!(verdicts(&many), [Fails, Fails, NotShown, Holds, Holds]);
    }

    #[test]
    fn a_quota_that_is_not_used_fails_unless_the_machine_left_no_time() {
        let half = Books::after(vec![Arrival::taken(0, 1)], Refused::default());
        let stop = 1 + 2 * 16_667;
        assert_eq!(verdicts(&judged(&half, stop, &late_until(15)))[4], Fails);
        assert_eq!(verdicts(&judged(&half, stop, &late_until(16)))[4], NotShown);
    }
}
