//! The vendor that allows what its buckets were given.

use std::time::Duration;

use serde::Serialize;

use super::starts::Starts;
use super::{Claim, chart};
use crate::demo::Run;
use crate::demo::limits::{ARRIVES_WITHIN, AT_ONCE, REQUEST_BURST, REQUEST_RATE, REQUESTS_PER_WINDOW, WINDOW_SECS};
use crate::demo::vendor::Vendors;
use crate::demo::vendor::anthropic::Refused;
use crate::figures::{ratio, rounded};

/// What `--json` prints of it.
#[derive(Debug, Serialize)]
pub(super) struct Anthropic {
    /// Calls that arrived, taken or not.
    vendor_calls: usize,
    vendor_429: u64,
    vendor_429_for: Refused,
    /// Most calls taken in any window.
    busiest_window: usize,
    /// The burst that the calls' starts show beside the bucket's rate, and the bucket's; and calls that arrived before their start.
    burst_of_starts: f64,
    burst_allowed: f64,
    called_early: usize,
    /// The longest time from a start to its arrival, and that for which the bucket leaves room in a window.
    slowest_arrival_ms: f64,
    arrival_room_ms: f64,
    peak_concurrency: u32,
    concurrency_limit: u32,
    requests_granted: usize,
    requests_allowed: usize,
    utilisation: f64,
    #[serde(skip)]
    starts: Starts,
    #[serde(skip)]
    chart: Vec<usize>,
    #[serde(skip)]
    length: Duration,
}

/// Least share of what the vendor allows that must be used.
const UTILISATION: f64 = 0.97;

impl Anthropic {
    pub(super) fn new(run: &Run, vendors: &Vendors) -> Self {
        let books = vendors.anthropic();
        let stop = run.start.after(run.length);
        let stop = u64::try_from(stop.micros()).unwrap_or(0);
        // The vendor's window opens with the first call.
        let first = books.first_call().unwrap_or(stop).min(stop);
        let length = Duration::from_micros(stop - first);
        let granted = books.taken_over_time(first, length, 1)[0];
        let allowed = usize::try_from(u128::from(REQUESTS_PER_WINDOW) * length.as_micros()).unwrap_or(0)
            / (WINDOW_SECS as usize * 1_000_000);
        let starts = Starts::of(books.arrivals(), REQUEST_RATE);
        let refused = books.refused();
        Self {
            vendor_calls: books.arrivals().len(),
            vendor_429: refused.requests + refused.tokens + refused.concurrency,
            vendor_429_for: refused,
            busiest_window: books.busiest_window(),
            burst_of_starts: rounded(starts.burst),
            burst_allowed: REQUEST_BURST,
            called_early: starts.early,
            slowest_arrival_ms: millis(starts.slowest),
            arrival_room_ms: millis(ARRIVES_WITHIN),
            peak_concurrency: books.concurrency().1,
            concurrency_limit: AT_ONCE,
            requests_granted: granted,
            requests_allowed: allowed,
            utilisation: rounded(ratio(granted as u64, allowed as u64)),
            starts,
            chart: books.taken_over_time(first, length, chart::columns(length)),
            length,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{REQUESTS_PER_WINDOW} calls in {WINDOW_SECS} s and {} at once, as configured", self.concurrency_limit)
    }

    pub(super) fn claims(&self) -> [Claim; 4] {
        let Self { vendor_calls, vendor_429, slowest_arrival_ms, arrival_room_ms, burst_of_starts, .. } = self;
        let Self { peak_concurrency, concurrency_limit, .. } = self;
        let Refused { requests, tokens, concurrency } = self.vendor_429_for;
        let late = if requests > 0 && slowest_arrival_ms > arrival_room_ms {
            format!(" (the slowest took {slowest_arrival_ms:.0} ms to arrive; {arrival_room_ms:.0} fit)")
        } else if tokens + concurrency > 0 {
            format!(" ({tokens} for tokens, {concurrency} for calls at once)")
        } else {
            String::new()
        };
        let early = if self.called_early > 0 { format!("; {} came early", self.called_early) } else { String::new() };
        [
            (format!("429 to {vendor_429} of {vendor_calls} calls{late}"), *vendor_429 == 0),
            (
                format!(
                    "starts: {REQUEST_RATE} a second and a burst of {burst_of_starts:.2}; the bucket has {REQUEST_BURST}{early}"
                ),
                self.starts.fit(REQUEST_BURST),
            ),
            (
                format!("at most {peak_concurrency} calls at once"),
                peak_concurrency <= concurrency_limit && concurrency == 0,
            ),
            (
                format!(
                    "{:.1} % used ({} of {} calls; {:.0} % wanted, a busy machine does less)",
                    self.utilisation * 100.0,
                    self.requests_granted,
                    self.requests_allowed,
                    UTILISATION * 100.0
                ),
                self.utilisation >= UTILISATION,
            ),
        ]
    }

    pub(super) fn print_chart(&self) {
        let allowed = f64::from(REQUESTS_PER_WINDOW) / f64::from(WINDOW_SECS);
        chart::print("anthropic: calls a second", &self.chart, self.length, allowed);
    }
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1_000.0)
}
