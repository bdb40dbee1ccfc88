//! The vendor that allows a little more than its buckets grant.

use std::time::Duration;

use serde::Serialize;

use super::starts::Starts;
use super::{Claim, chart};
use crate::lab::demo::Run;
use crate::lab::demo::limits::{
    ARRIVES_WITHIN, AT_ONCE, REQUEST_BURST, REQUEST_RATE, REQUESTS_PER_WINDOW, WINDOW_SECS,
};
use crate::lab::demo::vendor::Vendors;
use crate::lab::demo::vendor::anthropic::{Books, Refused};
use crate::lab::figures::{ratio, rounded};

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
    peak_concurrency: u32,
    concurrency_limit: u32,
    requests_granted: usize,
    requests_allowed: usize,
    utilisation: f64,
    #[serde(skip)]
    chart: Vec<usize>,
    #[serde(skip)]
    length: Duration,
}

/// The least share of what the vendor allows that must be used.
const UTILISATION: f64 = 0.97;

impl Anthropic {
    pub(super) fn new(run: &Run, vendors: &Vendors) -> Self {
        let stop = run.start.after(run.length);
        Self::of(&vendors.anthropic(), u64::try_from(stop.micros()).unwrap_or(0))
    }

    /// `stop`: when the callers stop, in microseconds of Unix time.
    fn of(books: &Books, stop: u64) -> Self {
        // The vendor's window begins with the first call.
        let first = books.first_call().unwrap_or(stop).min(stop);
        let length = Duration::from_micros(stop - first);
        let granted = books.taken_over_time(first, length, 1)[0];
        let allowed = usize::try_from(u128::from(REQUESTS_PER_WINDOW) * length.as_micros()).unwrap_or(0)
            / (WINDOW_SECS as usize * 1_000_000);
        let starts = Starts::of(books.arrivals(), REQUEST_RATE, REQUEST_BURST);
        let refused = books.refused();
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
            peak_concurrency: books.concurrency().1,
            concurrency_limit: AT_ONCE,
            requests_granted: granted,
            requests_allowed: allowed,
            utilisation: rounded(ratio(granted as u64, allowed as u64)),
            chart: books.taken_over_time(first, length, chart::columns(length)),
            length,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("takes {REQUESTS_PER_WINDOW} calls in any {WINDOW_SECS} s, and {} at once", self.concurrency_limit)
    }

    pub(super) fn claims(&self) -> [Claim; 5] {
        let Self { vendor_calls, vendor_429, burst_of_starts, called_early, .. } = self;
        let Self { peak_concurrency, concurrency_limit, .. } = self;
        let Refused { requests, tokens, concurrency } = self.vendor_429_for;
        let reasons = format!(" (requests {requests}, tokens {tokens}, at once {concurrency})");
        let reasons = if *vendor_429 > 0 { reasons } else { String::new() };
        let early =
            if *called_early > 0 { format!("; calls before their start: {called_early}") } else { String::new() };
        [
            (format!("429 to {vendor_429} of {vendor_calls} calls{reasons}"), *vendor_429 == 0),
            (
                format!(
                    "starts: {REQUEST_RATE} a second and a burst of {burst_of_starts:.3}; the bucket allows a burst of {REQUEST_BURST}{early}"
                ),
                self.starts_fit && *called_early == 0,
            ),
            self.lateness(requests),
            (
                format!("at most {peak_concurrency} calls at once"),
                peak_concurrency <= concurrency_limit && concurrency == 0,
            ),
            self.use_of_quota(),
        ]
    }

    /// If starts are as allowed, and arrive in time, the vendor has no reason to reject by number.
    fn lateness(&self, refused: u64) -> Claim {
        let Self { slowest_arrival_ms, arrival_room_ms, .. } = self;
        let text =
            format!("slowest arrival {slowest_arrival_ms:.0} ms after its start (room for {arrival_room_ms:.0} ms)");
        match (slowest_arrival_ms > arrival_room_ms, refused) {
            (false, _) => (text, true),
            (true, 0) => (text + "; no harm done", true),
            (true, _) => (text + ": that is why the vendor refused", false),
        }
    }

    fn use_of_quota(&self) -> Claim {
        let Self { utilisation, requests_granted, requests_allowed, arrival_p50_ms, .. } = self;
        let used = format!("{:.1} % used ({requests_granted} of {requests_allowed} calls)", utilisation * 100.0);
        let wanted = UTILISATION * 100.0;
        if *utilisation >= UTILISATION {
            return (used, true);
        }
        (format!("{used}, {wanted:.0} wanted; half took over {arrival_p50_ms:.0} ms to arrive"), false)
    }

    pub(super) fn print_chart(&self) {
        let allowed = f64::from(REQUESTS_PER_WINDOW) / f64::from(WINDOW_SECS);
        chart::print("anthropic: calls a second", &self.chart, self.length, allowed);
    }
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::demo::vendor::anthropic::Arrival;

    /// Calls that all start at once and arrive after `millis`, together with rejected ones. The callers stop
    /// when the vendor has accepted as many as it allows.
    fn claims(refused: Refused, millis: u64, calls: u64) -> [Claim; 5] {
        let micros = millis * 1_000;
        let arrivals = (0..calls).map(|_| Arrival::taken(0, micros)).collect();
        Anthropic::of(&Books::after(arrivals, refused), micros + calls * 16_667).claims()
    }

    fn holds(claims: &[Claim; 5]) -> [bool; 5] {
        [0, 1, 2, 3, 4].map(|claim: usize| claims[claim].1)
    }

    #[test]
    fn a_429_never_holds_and_says_what_for() {
        let none = claims(Refused::default(), 1_712, 2);
        assert_eq!((none[0].0.as_str(), holds(&none)), ("429 to 0 of 2 calls", [true; 5]), "late, and no harm done");
        assert_eq!(none[2].0, "slowest arrival 1712 ms after its start (room for 170 ms); no harm done");
        let late = claims(Refused { requests: 1, ..Refused::default() }, 1_712, 2);
        assert_eq!(
            late[2].0,
            "slowest arrival 1712 ms after its start (room for 170 ms): that is why the vendor refused"
        );
        assert_eq!(holds(&late), [false, true, false, true, true]);
        let in_time = claims(Refused { requests: 1, ..Refused::default() }, 169, 2);
        assert_eq!(holds(&in_time), [false, true, true, true, true]);
        let mixed = claims(Refused { requests: 1, tokens: 2, concurrency: 3 }, 1_712, 2);
        assert_eq!(mixed[0].0, "429 to 6 of 2 calls (requests 1, tokens 2, at once 3)");
        assert_eq!(holds(&mixed), [false, true, false, false, true]);
    }

    #[test]
    fn a_call_before_its_start_does_not_hold_and_nor_does_a_quota_that_is_not_used() {
        let early = Books::after(vec![Arrival::taken(1_000_000, 999_999)], Refused::default());
        let early = Anthropic::of(&early, 999_999 + 2 * 16_667).claims();
        assert_eq!(
            early[1].0,
            "starts: 58.8 a second and a burst of 1.000; the bucket allows a burst of 2; calls before their start: 1"
        );
        assert_eq!(early[4].0, "50.0 % used (1 of 2 calls), 97 wanted; half took over 0 ms to arrive");
        assert_eq!(holds(&early), [true, false, true, true, false]);
    }

    #[test]
    fn a_start_too_many_does_not_hold_however_late_the_calls() {
        let many = claims(Refused::default(), 1_712, 3);
        assert_eq!(many[1].0, "starts: 58.8 a second and a burst of 3.000; the bucket allows a burst of 2");
        assert_eq!(holds(&many), [true, false, true, true, true]);
    }
}
