//! The figures of a run, and the claims that must hold for them.

use serde::Serialize;

use super::chart;
use super::crew::Tally;
use super::vendor::Vendors;
use super::{Recovery, Run};
use crate::lab::figures::{percentile_ms, ratio, rounded};
use crate::output::{BOLD, GREEN, RED};

mod anthropic;
mod elevenlabs;
mod openai;
mod starts;

use anthropic::Anthropic;
use elevenlabs::ElevenLabs;
use openai::OpenAi;

/// A statement that the demo should prove, and whether it holds.
type Claim = (String, bool);

/// What `--json` prints. A figure without a vendor's name belongs to the first vendor.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    anthropic: Anthropic,
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
    /// The claims that do not hold; if there is one, the demo exits with 1.
    failed: Vec<String>,
    #[serde(skip)]
    last_error: Option<String>,
}

impl Summary {
    pub(crate) fn new(run: &Run, vendors: &Vendors, recovery: &Recovery, tally: &Tally, leases_left: usize) -> Self {
        let (requests, slots, errors, last_error) = tally.with(|reports| {
            let sum = |count: fn(&super::worker::DemoReport) -> u64| reports.last.iter().map(count).sum::<u64>();
            let last_error = reports.last.iter().find_map(|report| report.last_error.clone());
            (sum(|r| r.dynamodb_requests), sum(|r| r.granted), sum(|r| r.errors), last_error)
        });
        let (p50, p99) = tally.with(|reports| {
            reports.acquire_micros.sort_unstable();
            (percentile_ms(&reports.acquire_micros, 50), percentile_ms(&reports.acquire_micros, 99))
        });
        let mut summary = Self {
            anthropic: Anthropic::new(run, vendors),
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
            failed: Vec::new(),
            last_error,
        };
        let claims = summary.sections().into_iter().flat_map(|(_, claims)| claims);
        summary.failed = claims.filter(|(_, holds)| !holds).map(|(claim, _)| claim).collect();
        summary
    }

    /// Claims about the crash and the table.
    fn after_crash(&self) -> [Claim; 2] {
        let recovery = self.recovery_secs.map_or_else(|| "not all".into(), |secs| format!("in {secs:.1} s"));
        [
            (
                format!(
                    "{} slots were held; refused callers gave back {} of them, {recovery}",
                    self.crashed_holders, self.slots_restored
                ),
                self.crashed_holders > 0 && self.crashed_holders == self.slots_restored && self.recovery_secs.is_some(),
            ),
            (
                format!("{} errors; {} leases left after a last sweep", self.errors, self.leases_left),
                self.leases_left == 0 && self.errors == 0,
            ),
        ]
    }

    /// The claims, each vendor's under its name.
    fn sections(&self) -> [(String, Vec<Claim>); 4] {
        [
            (format!("anthropic: {}", self.anthropic.title()), self.anthropic.claims().into()),
            (format!("openai: {}", self.openai.title()), self.openai.claims().into()),
            (format!("elevenlabs: {}", self.elevenlabs.title()), self.elevenlabs.claims().into()),
            ("a process was killed".into(), self.after_crash().into()),
        ]
    }

    pub(crate) fn holds(&self) -> bool {
        self.failed.is_empty()
    }

    pub(crate) fn print(&self) {
        self.anthropic.print_chart();
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
        let (all, failed) = (self.sections().iter().flat_map(|(_, claims)| claims).count(), self.failed.len());
        if failed == 0 {
            anstream::println!("{}all {all} claims hold{}", GREEN.render(), GREEN.render_reset());
        } else {
            anstream::println!("{}{failed} of {all} claims do not hold{}", RED.render(), RED.render_reset());
        }
    }
}
