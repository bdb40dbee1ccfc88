//! The figures of a run, and the claims that must hold for them.

use std::time::Duration;

use serde::Serialize;

use super::comparison::Comparison;
use super::crash::Recovery;
use super::crew::Finish;
use super::machine::{Machine, MachineFigures};
use super::{Played, Run, WIND_DOWN};
use crate::lab::figures::{percentile_ms, ratio, rounded};
use crate::output::{BOLD, GREEN, RED, YELLOW, lines_beside};

mod anthropic;
mod claim;
mod elevenlabs;
mod openai;
mod paused;
mod starts;

use anthropic::Anthropic;
use claim::{Claim, Verdict};
use elevenlabs::ElevenLabs;
use openai::OpenAi;

/// What `--json` prints. A figure without a vendor's name belongs to the first vendor.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    before_after: Comparison,
    machine: MachineFigures,
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
    /// The claims that this machine could not show.
    not_shown: Vec<String>,
    #[serde(skip)]
    sections: Vec<Section>,
    #[serde(skip)]
    last_error: Option<String>,
}

/// The longest that the slots of a killed process may take to come back: its leases end after 2 s.
const HEALED_WITHIN: Duration = Duration::from_secs(8);

/// A vendor, or what else the claims are about, and the claims.
type Section = (String, Vec<Claim>);

impl Summary {
    pub(crate) fn new(
        played: &Played,
        comparison: Comparison,
        recovery: &Recovery,
        finish: Finish,
        leases_left: usize,
        machine: &Machine,
    ) -> Self {
        let Played { run, vendors, tally } = played;
        let (requests, slots, errors, last_error) = tally.with(|reports| {
            let sum =
                |count: fn(&super::worker::DemoReport) -> u64| reports.last.iter().map(count).sum::<u64>();
            let last_error = reports.last.iter().find_map(|report| report.last_error.clone());
            (sum(|r| r.dynamodb_requests), sum(|r| r.granted), sum(|r| r.errors), last_error)
        });
        let (p50, p99) = tally.with(|reports| {
            reports.acquire_micros.sort_unstable();
            (percentile_ms(&reports.acquire_micros, 50), percentile_ms(&reports.acquire_micros, 99))
        });
        let mut summary = Self {
            before_after: comparison,
            machine: machine.figures(run.start.micros(), run.start.after(run.length).micros()),
            anthropic: Anthropic::new(run, vendors, machine),
            crashed_holders: recovery.crashed_holders,
            slots_restored: recovery.slots_restored,
            recovery_secs: recovery.took().map(|time| rounded(time.as_secs_f64())),
            leases_left,
            acquire_p50_ms: p50,
            acquire_p99_ms: p99,
            dynamodb_requests_per_grant: rounded(ratio(requests, slots)),
            errors,
            openai: OpenAi::new(run, vendors, machine),
            elevenlabs: ElevenLabs::new(run, vendors, machine),
            failed: Vec::new(),
            not_shown: Vec::new(),
            sections: Vec::new(),
            last_error,
        };
        summary.sections = summary.judge(run, recovery, finish, machine);
        let of = |verdict| {
            let claims = summary.sections.iter().flat_map(|(_, claims)| claims);
            claims.filter(|claim| claim.verdict == verdict).map(|claim| claim.text.clone()).collect()
        };
        (summary.failed, summary.not_shown) = (of(Verdict::Fails), of(Verdict::NotShown));
        summary
    }

    /// The claims, each vendor's under its name.
    fn judge(&self, run: &Run, recovery: &Recovery, finish: Finish, machine: &Machine) -> Vec<Section> {
        let (from, to) = (run.start.micros(), run.start.after(run.length).micros());
        let end = Claim::of(
            format!("the callers ended within {} s of the end", WIND_DOWN.as_secs()),
            finish == Finish::InTime,
        );
        let is_slow = machine.net(to, run.start.after(run.length + WIND_DOWN).micros()) < WIND_DOWN / 2;
        let end = end.unless(is_slow.then(|| "the machine held them up".into()));
        vec![
            (format!("anthropic: {}", self.anthropic.title()), self.anthropic.claims(run, machine).into()),
            (format!("openai: {}", self.openai.title()), self.openai.claims(run, machine).into()),
            (format!("elevenlabs: {}", self.elevenlabs.title()), self.elevenlabs.claims().into()),
            (
                "a process was killed".into(),
                vec![self.healed(run, recovery, machine), end, self.left(machine)],
            ),
            (self.before_after.title(), vec![self.fewer_429s(machine.share_left(from, to))]),
        ]
    }

    fn fewer_429s(&self, share_left: f64) -> Claim {
        let (without, with) = self.before_after.refused();
        if without == 0 {
            return Claim::not_shown("no 429 without Sluice: the callers did not reach the limits".into());
        }
        let text = format!("{without} 429s without Sluice, {with} with it (a tenth allowed)");
        let excuse = (share_left < 0.5).then(|| "the machine hardly let the callers run".into());
        Claim::of(text, with * 10 <= without).unless(excuse)
    }

    fn healed(&self, run: &Run, recovery: &Recovery, machine: &Machine) -> Claim {
        let Self { crashed_holders: held, slots_restored, recovery_secs, .. } = self;
        if *held == 0 {
            return Claim::not_shown(
                "the process held no slot when it was killed, so nothing had to come back".into(),
            );
        }
        let time = recovery_secs.map_or_else(|| "not all".into(), |secs| format!("in {secs:.1} s"));
        let text = format!("slots held: {held}; refused callers gave back {slots_restored} of them, {time}");
        let looked = recovery.crashed_at.zip(recovery.looked_until);
        let net = looked.map(|(from, to)| machine.net(run.unix_micros(from), run.unix_micros(to)));
        let is_short = net.is_none_or(|net| net < HEALED_WITHIN);
        Claim::of(text, recovery_secs.is_some())
            .unless(is_short.then(|| "the machine left too little time".into()))
    }

    fn left(&self, machine: &Machine) -> Claim {
        let Self { errors, leases_left, .. } = self;
        let text = format!("{errors} errors; {leases_left} leases left after a last sweep");
        Claim::of(text, *leases_left == 0 && *errors == 0).unless(machine.stalled())
    }

    pub(crate) fn holds(&self) -> bool {
        self.failed.is_empty()
    }

    pub(crate) fn print(&self) {
        if let Some(((last, last_claims), sections)) = self.sections.split_last() {
            println!();
            for (title, claims) in sections {
                anstream::println!("{BOLD}{title}{BOLD:#}");
                claims.iter().for_each(print_claim);
            }
            self.print_requests();
            anstream::println!("{BOLD}{last}{BOLD:#}");
            self.before_after.print(&self.marks());
            last_claims.iter().for_each(print_claim);
        }
        self.print_verdict();
    }

    /// Of each vendor, whether a claim about it could not be shown.
    fn marks(&self) -> Vec<bool> {
        let is_marked = |(_, claims): &Section| claims.iter().any(|one| one.verdict == Verdict::NotShown);
        self.sections.iter().take(self.before_after.vendors()).map(is_marked).collect()
    }

    fn print_requests(&self) {
        let Self { acquire_p50_ms: p50, acquire_p99_ms: p99, dynamodb_requests_per_grant: requests, .. } =
            self;
        anstream::println!(
            "{BOLD}acquire{BOLD:#} p50 {p50:.1} ms, p99 {p99:.1} ms, {requests:.1} DynamoDB requests a call"
        );
        if let Some(error) = &self.last_error {
            anstream::println!("{RED}last error{RED:#} {error}");
        }
    }

    fn print_verdict(&self) {
        let all = self.sections.iter().flat_map(|(_, claims)| claims).count();
        let (failed, not_shown) = (self.failed.len(), self.not_shown.len());
        match (failed, not_shown) {
            (0, 0) => anstream::println!("{GREEN}all {all} claims hold{GREEN:#}"),
            (0, _) => {
                anstream::println!("{GREEN}{} of {all} claims hold{GREEN:#}", all - not_shown);
                anstream::println!(
                    "{YELLOW}{not_shown} could not be shown; no fault of Sluice was found: run it on an idle machine{YELLOW:#}"
                );
            }
            _ => anstream::println!("{RED}{failed} of {all} claims do not hold{RED:#}"),
        }
    }
}

fn print_claim(Claim { text, verdict }: &Claim) {
    let (sign, style) = match verdict {
        Verdict::Holds => ("ok  ", GREEN),
        Verdict::NotShown => ("?   ", YELLOW),
        Verdict::Fails => ("FAIL", RED),
    };
    for (n, line) in lines_beside(7, text).iter().enumerate() {
        let sign = if n == 0 { sign } else { "" };
        anstream::println!("  {style}{sign:<4}{style:#} {line}");
    }
}
