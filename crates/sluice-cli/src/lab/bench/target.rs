//! The targets of the bench, and whether they were met.

use serde::Serialize;

use super::measure::Measure;
use super::world::Stage;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) scenario: &'static str,
    pub(crate) what: String,
    pub(crate) wanted: String,
    /// The measured figure; null if this client lacks the feature.
    pub(crate) measured: Option<f64>,
    pub(crate) met: Option<bool>,
}

/// On which side of a bound a figure must lie.
#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Wanted {
    fn is_met(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// Every target whose scenario was run.
pub(crate) fn judge(measures: &[Measure]) -> Vec<Target> {
    let judge = Judge(measures);
    [
        judge.ample(),
        judge.processes(),
        judge.saturation(),
        judge.concurrency(),
        judge.prefetch(),
        judge.memory(),
    ]
    .concat()
}

struct Judge<'a>(&'a [Measure]);

impl Judge<'_> {
    fn find(&self, scenario: &str, case: &str, stage: Stage, system: &str) -> Option<&Measure> {
        self.0.iter().find(|measure| {
            measure.scenario == scenario
                && measure.case == case
                && measure.stage == stage
                && measure.system == system
        })
    }

    /// The target, if its scenario was run.
    fn target(
        &self,
        scenario: &'static str,
        what: &str,
        wanted: Wanted,
        measured: Option<f64>,
    ) -> Option<Target> {
        self.0.iter().any(|measure| measure.scenario == scenario).then(|| Target {
            scenario,
            what: what.to_owned(),
            wanted: wanted.to_string(),
            measured,
            met: measured.map(|measured| wanted.is_met(measured)),
        })
    }

    fn ample(&self) -> Vec<Target> {
        let find = |callers: &str, stage, system| self.find("ample", callers, stage, system);
        let local = |callers: &str, system| find(callers, Stage::Loopback, system);
        let rate = |measure: Option<&Measure>| measure.map(|measure| measure.grants_per_second);
        let one = find("1 caller", Stage::DynamoProfile, "sluice");
        let sluice = local("64 callers", "sluice");
        let target = |what, wanted, measured| self.target("ample", what, wanted, measured);
        let faster = |than| ratio(rate(sluice), rate(local("64 callers", than)));
        let time_of = |than| ratio(rate(local("1 caller", than)), rate(local("1 caller", "sluice")));
        [
            target("1 caller: requests a grant", Wanted::AtMost(1.0), one.and_then(|m| m.requests_per_grant)),
            target(
                "1 caller: write units a grant",
                Wanted::AtMost(1.0),
                one.and_then(|m| m.write_units_per_grant),
            ),
            target(
                "1 caller: times of its own update, sent bare",
                Wanted::AtMost(1.05),
                time_of("own update"),
            ),
            target("1 caller: times of the lone update", Wanted::AtMost(1.05), time_of("lone update")),
            target("64 callers: times the reference", Wanted::AtLeast(200.0), faster("reference")),
            target("64 callers: times the lone update", Wanted::AtLeast(20.0), faster("lone update")),
            target(
                "64 callers: false refusals",
                Wanted::AtMost(0.0),
                sluice.map(|m| count(m.false_refusals)),
            ),
            target(
                "64 callers: requests a grant",
                Wanted::AtMost(0.05),
                sluice.and_then(|m| m.requests_per_grant),
            ),
            target(
                "512 callers: times 64 callers",
                Wanted::AtLeast(1.0),
                ratio(rate(local("512 callers", "sluice")), rate(sluice)),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn processes(&self) -> Vec<Target> {
        let alone = self.find("processes", "64 processes, 1 caller each", Stage::DynamoProfile, "sluice");
        let share = alone.map(|measure| measure.grants_per_second / CEILING);
        let target = self.target(
            "processes",
            "64 processes: share of the item's ceiling",
            Wanted::AtLeast(0.95),
            share,
        );
        target.into_iter().collect()
    }

    fn saturation(&self) -> Vec<Target> {
        let cases =
            self.0.iter().filter(|measure| measure.scenario == "saturation" && measure.system == "sluice");
        let of = |measure: &Measure| {
            let target = |what: &str, wanted, measured| {
                self.target("saturation", &format!("{}: {what}", measure.case), wanted, measured)
            };
            [
                target("share of the quota", Wanted::AtLeast(0.99), measure.quota_used),
                target("grants above the bound", Wanted::AtMost(0.0), measure.above_bound.map(count)),
                target("writes a grant", Wanted::AtMost(1.1), measure.writes_per_grant),
                target("failed writes a grant", Wanted::AtMost(0.02), measure.failed_writes_per_grant),
                target("grants out of order", Wanted::AtMost(0.0), measure.out_of_order.map(count)),
            ]
        };
        cases.flat_map(of).flatten().collect()
    }

    fn concurrency(&self) -> Vec<Target> {
        let cases = [
            ("10 slots", "10 slots, 64 processes, 1 caller each wait"),
            ("100 slots", "100 slots, 64 processes, 1 caller each"),
        ];
        let of = |(slots, case): (&str, &'static str)| {
            let find = |system| self.find("concurrency", case, Stage::DynamoProfile, system);
            let (inline, reference) = (find("inline leases"), find("reference"));
            let target = |what: String, wanted, measured| self.target("concurrency", &what, wanted, measured);
            let faster = ratio(inline.map(|m| m.grants_per_second), reference.map(|m| m.grants_per_second));
            let units = |measure: Option<&Measure>| measure.and_then(|measure| measure.write_units_per_grant);
            let share = ratio(units(inline), units(reference));
            [
                target(format!("inline, {slots}: times the reference"), Wanted::AtLeast(10.0), faster),
                target(format!("inline, {slots}: share of its units"), Wanted::AtMost(0.25), share),
            ]
        };
        cases.into_iter().flat_map(of).flatten().collect()
    }

    fn prefetch(&self) -> Vec<Target> {
        let find = |system| self.find("prefetch", "1 caller on one core", Stage::Loopback, system);
        let (prefetch, governor) = (find("prefetch"), find("governor"));
        let target = |what, wanted, measured| self.target("prefetch", what, wanted, measured);
        let rate = |measure: Option<&Measure>| measure.map(|measure| measure.grants_per_second);
        let writes = |m: &Measure| Some(m.writes_per_grant? * m.grants_per_second);
        [
            target("grants a second on one core", Wanted::AtLeast(1_000_000.0), rate(prefetch)),
            target("p50 in us", Wanted::AtMost(2.0), prefetch.and_then(|m| m.acquire_p50_us)),
            target("cost, in governor's", Wanted::AtMost(10.0), ratio(rate(governor), rate(prefetch))),
            target("writes a second", Wanted::AtMost(2.0), prefetch.and_then(writes)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn memory(&self) -> Vec<Target> {
        let grown = |case| {
            let measure = self.find("memory", case, Stage::Loopback, "sluice")?;
            Some((measure, megabytes(measure.growth_kb?)))
        };
        let buckets = grown("10,000 buckets known").map(|(_, megabytes)| megabytes);
        let many = grown("grants from one bucket");
        let target = |what, wanted, measured| self.target("memory", what, wanted, measured);
        [
            target("10,000 buckets: growth in MB", Wanted::AtMost(20.0), buckets),
            target(
                "grants given in that run, millions",
                Wanted::AtLeast(10.0),
                many.map(|(m, _)| count(m.grants) / 1e6),
            ),
            target("growth by them in MB", Wanted::AtMost(1.0), many.map(|(_, megabytes)| megabytes)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Write units that an item takes per second.
const CEILING: f64 = 1_000.0;

fn ratio(this: Option<f64>, that: Option<f64>) -> Option<f64> {
    this.zip(that).filter(|(_, that)| *that > 0.0).map(|(this, that)| this / that)
}

#[allow(clippy::cast_precision_loss)]
const fn count(number: u64) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss)]
const fn megabytes(kilobytes: i64) -> f64 {
    kilobytes as f64 / 1_024.0
}
