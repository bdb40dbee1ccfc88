//! The figures of a run, and what must hold of them.

use std::time::Duration;

use serde::Serialize;

use super::chart;
use super::crew::Tally;
use super::limits::{ARRIVES_WITHIN, AT_ONCE, REQUESTS_PER_WINDOW, WINDOW_SECS, arrivals_in_a_window};
use super::vendor::Vendors;
use super::{Recovery, Run};
use crate::failure::Failure;
use crate::figures::{percentile_ms, ratio, rounded};
use crate::output::{BOLD, GREEN, RED};

mod elevenlabs;
mod openai;

use elevenlabs::ElevenLabs;
use openai::OpenAi;

/// What the demo is there to show, with whether it did.
type Claim = (String, bool);

/// What `--json` prints. Where no vendor is named, of the first.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    vendor_calls: u64,
    vendor_429: u64,
    /// Those of them that were one too many at once.
    too_many_at_once: u64,
    /// The longest time between a call's start and its arrival, and that for which the bucket leaves room in a window.
    slowest_arrival_ms: f64,
    arrival_room_ms: f64,
    /// Most calls that arrived in any window, and what the bucket lets arrive in one where none takes longer than the slowest.
    busiest_window: usize,
    busiest_allowed: usize,
    peak_concurrency: u32,
    concurrency_limit: u32,
    requests_granted: usize,
    requests_allowed: usize,
    utilisation: f64,
    crashed_holders: usize,
    slots_restored: usize,
    recovery_secs: Option<f64>,
    leases_left: usize,
    acquire_p50_ms: f64,
    acquire_p99_ms: f64,
    dynamodb_requests_per_grant: f64,
    errors: u64,
    openai: OpenAi,
    elevenlabs: ElevenLabs,
    #[serde(skip)]
    last_error: Option<String>,
    #[serde(skip)]
    chart: Vec<usize>,
    #[serde(skip)]
    length: Duration,
}

/// Least share of what the vendor allows that must be used.
const UTILISATION: f64 = 0.97;

impl Summary {
    pub(crate) fn new(
        run: &Run,
        vendors: &Vendors,
        recovery: &Recovery,
        tally: &Tally,
        leases_left: usize,
    ) -> Result<Self, Failure> {
        let vendor = vendors.anthropic();
        let stop = run.start.after(run.length);
        let stop = u64::try_from(stop.micros()).unwrap_or(0);
        // The vendor's window opens with the first call.
        let first = vendor.first_call().unwrap_or(stop).min(stop);
        let length = Duration::from_micros(stop - first);
        let granted = vendor.taken_over_time(first, length, 1)[0];
        let allowed = usize::try_from(u128::from(REQUESTS_PER_WINDOW) * length.as_micros()).unwrap_or(0)
            / (WINDOW_SECS as usize * 1_000_000);
        let (requests, slots, errors, last_error) = tally.with(|reports| {
            let sum = |count: fn(&super::worker::Report) -> u64| reports.last.iter().map(count).sum::<u64>();
            let last_error = reports.last.iter().find_map(|report| report.last_error.clone());
            (sum(|r| r.dynamodb_requests), sum(|r| r.granted), sum(|r| r.errors), last_error)
        });
        let (p50, p99) = tally.with(|reports| {
            reports.acquire_micros.sort_unstable();
            (percentile_ms(&reports.acquire_micros, 50), percentile_ms(&reports.acquire_micros, 99))
        });
        Ok(Self {
            vendor_calls: vendor.calls(),
            vendor_429: vendor.refused(),
            too_many_at_once: vendor.too_many(),
            slowest_arrival_ms: millis(vendor.slowest()),
            arrival_room_ms: millis(ARRIVES_WITHIN),
            busiest_window: vendor.busiest_window(),
            busiest_allowed: arrivals_in_a_window(vendor.slowest())?,
            peak_concurrency: vendor.concurrency().1,
            concurrency_limit: AT_ONCE,
            requests_granted: granted,
            requests_allowed: allowed,
            utilisation: rounded(ratio(granted as u64, allowed as u64)),
            crashed_holders: recovery.crashed_holders,
            slots_restored: recovery.slots_restored,
            recovery_secs: recovery.time.map(|time| rounded(time.as_secs_f64())),
            leases_left,
            acquire_p50_ms: p50,
            acquire_p99_ms: p99,
            dynamodb_requests_per_grant: rounded(ratio(requests, slots)),
            errors,
            openai: OpenAi::new(run, vendors),
            elevenlabs: ElevenLabs::new(run, vendors),
            last_error,
            chart: vendor.taken_over_time(first, length, chart::columns(length)),
            length,
        })
    }

    fn claims(&self) -> [Claim; 4] {
        let Self { vendor_calls, vendor_429, peak_concurrency, concurrency_limit, .. } = self;
        let Self { busiest_window, busiest_allowed, slowest_arrival_ms, arrival_room_ms, .. } = self;
        let allowed = format!("at most {busiest_allowed} where a call arrives within {slowest_arrival_ms:.0} ms");
        let late = if *vendor_429 > 0 && slowest_arrival_ms > arrival_room_ms {
            format!(" (one took {slowest_arrival_ms:.0} ms to arrive; there is room for {arrival_room_ms:.0})")
        } else {
            String::new()
        };
        [
            (format!("429 to {vendor_429} of {vendor_calls} calls{late}"), *vendor_429 == 0),
            (format!("busiest {WINDOW_SECS} s: {busiest_window} calls ({allowed})"), busiest_window <= busiest_allowed),
            (format!("at most {peak_concurrency} calls at once"), peak_concurrency <= concurrency_limit),
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

    /// Of the crash, and of the table.
    fn aftermath(&self) -> [Claim; 2] {
        let recovery = self.recovery_secs.map_or_else(|| "not at all".into(), |secs| format!("in {secs:.1} s"));
        [
            (
                format!(
                    "{} slots held by the killed process, {} given back {recovery}, by callers that were refused",
                    self.crashed_holders, self.slots_restored
                ),
                self.crashed_holders > 0 && self.crashed_holders == self.slots_restored && self.recovery_secs.is_some(),
            ),
            (
                format!("{} leases left, {} errors", self.leases_left, self.errors),
                self.leases_left == 0 && self.errors == 0,
            ),
        ]
    }

    /// The claims, each vendor's under its name.
    fn sections(&self) -> [(String, Vec<Claim>); 4] {
        let limits = format!("{REQUESTS_PER_WINDOW} calls in {WINDOW_SECS} s and {AT_ONCE} at once, as configured");
        [
            (format!("anthropic: {limits}"), self.claims().into()),
            (format!("openai: {}", self.openai.title()), self.openai.claims().into()),
            (format!("elevenlabs: {}", self.elevenlabs.title()), self.elevenlabs.claims().into()),
            ("a process was killed".into(), self.aftermath().into()),
        ]
    }

    pub(crate) fn holds(&self) -> bool {
        self.sections().iter().flat_map(|(_, claims)| claims).all(|(_, holds)| *holds)
    }

    pub(crate) fn print(&self) {
        let allowed = f64::from(REQUESTS_PER_WINDOW) / f64::from(WINDOW_SECS);
        chart::print("anthropic: calls a second", &self.chart, self.length, allowed);
        for (title, claims) in self.sections() {
            anstream::println!("{}{title}{}", BOLD.render(), BOLD.render_reset());
            for (claim, holds) in claims {
                let (sign, style) = if holds { ("ok  ", GREEN) } else { ("FAIL", RED) };
                anstream::println!("  {}{sign}{} {claim}", style.render(), style.render_reset());
            }
        }
        anstream::println!(
            "{}acquire{} p50 {:.1} ms, p99 {:.1} ms, {:.1} DynamoDB requests a call",
            BOLD.render(),
            BOLD.render_reset(),
            self.acquire_p50_ms,
            self.acquire_p99_ms,
            self.dynamodb_requests_per_grant
        );
        if let Some(error) = &self.last_error {
            anstream::println!("{}last error{} {error}", RED.render(), RED.render_reset());
        }
    }
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1_000.0)
}
