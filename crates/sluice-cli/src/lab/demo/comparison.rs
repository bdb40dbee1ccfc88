//! Before and after: the same callers at the same vendors for the same time, without Sluice and with it.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::limits::{NAMES, WINDOW_SECS};
use super::vendor::Vendors;
use super::vendor::answers::Answer;
use super::worker::retry::RETRIES;
use super::worker::{Job, JobEnd};
use super::{Options, Played, chart, crew};
use crate::lab::figures::{percentile_ms, ratio, rounded};
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};

/// How long each side is observed: one window of the first vendor.
pub(crate) const LENGTH: Duration = Duration::from_secs(WINDOW_SECS as u64);
/// Columns of the chart of 429s: half a second each.
const PARTS: usize = WINDOW_SECS as usize * 2;

/// What `--json` prints about it.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    seconds: u32,
    callers: u32,
    without: Side,
    with: Side,
}

/// One side, over all vendors.
#[derive(Debug, Serialize)]
struct Side {
    vendor_calls: usize,
    vendor_429: usize,
    /// The share of calls that got nothing but a 429.
    wasted: f64,
    done: usize,
    given_up: usize,
    vendors: [AtVendor; 3],
}

/// One side at one vendor: what the vendor counted, and what became of the callers' jobs.
#[derive(Debug, Serialize)]
struct AtVendor {
    name: &'static str,
    vendor_calls: usize,
    vendor_429: usize,
    wasted: f64,
    done: usize,
    done_per_second: f64,
    /// Jobs whose last try was refused.
    given_up: usize,
    /// From when a reply was wanted until it came, over all tries; of the jobs that were done.
    p50_ms: f64,
    p99_ms: f64,
    #[serde(skip)]
    refused: Vec<usize>,
}

/// What the callers do without Sluice.
pub(crate) fn about(options: &Options) -> [String; 2] {
    let callers = crew::callers(options).iter().sum::<u32>();
    [
        format!(
            "{} processes of {callers} callers call three vendors. A refused caller tries",
            options.processes
        ),
        format!("{RETRIES} times more, with backoff, as the vendors' own clients do."),
    ]
}

impl Comparison {
    pub(crate) fn new(options: &Options, without: &Played, with: &Played) -> Self {
        let callers = options.processes * crew::callers(options).iter().sum::<u32>();
        Self { seconds: WINDOW_SECS, callers, without: Side::new(without), with: Side::new(with) }
    }

    /// How many 429s the vendors answered to each side.
    pub(crate) const fn refused(&self) -> (usize, usize) {
        (self.without.vendor_429, self.with.vendor_429)
    }

    pub(crate) fn title(&self) -> String {
        let Self { seconds, callers, .. } = self;
        format!("before and after: {callers} callers, {seconds} s without Sluice, {seconds} s with it")
    }

    /// The number of vendors.
    pub(crate) const fn vendors(&self) -> usize {
        self.with.vendors.len()
    }

    /// Prints both sides of each vendor, one under the other. `marks`: of which vendors a claim could not be
    /// shown.
    pub(crate) fn print(&self, marks: &[bool]) {
        let Self { without, with, .. } = self;
        anstream::println!(
            "{DIM}{:<20} {:<PARTS$} {:>5} {:>7} {:>6} {:>9} {:>7} {:>7}{DIM:#}",
            "",
            "429s",
            "",
            "wasted",
            "done",
            "given up",
            "p50",
            "p99"
        );
        for ((before, after), mark) in without.vendors.iter().zip(&with.vendors).zip(marks) {
            let most = before.refused.iter().chain(&after.refused).copied().max().unwrap_or(0);
            before.print(before.name, "without", most);
            after.print(if *mark { "?" } else { "" }, "with", most);
        }
        without.print("all", "without");
        with.print("", "with");
        if marks.contains(&true) {
            anstream::println!(
                "{YELLOW}?{YELLOW:#} the machine was too busy to show every claim about this vendor: see above"
            );
        }
    }
}

impl Side {
    fn new(Played { run, vendors, tally }: &Played) -> Self {
        let (from, to) = (run.start.micros(), run.start.after(LENGTH).micros());
        let jobs: Vec<Job> = tally.with(|reports| {
            reports.jobs.iter().filter(|job| (from..to).contains(&job.ended)).copied().collect()
        });
        let vendors = [0, 1, 2].map(|of| AtVendor::new(of, run.begin, vendors, &jobs));
        let sum = |of: fn(&AtVendor) -> usize| vendors.iter().map(of).sum::<usize>();
        let (vendor_calls, vendor_429) = (sum(|at| at.vendor_calls), sum(|at| at.vendor_429));
        Self {
            vendor_calls,
            vendor_429,
            wasted: share(vendor_429, vendor_calls),
            done: sum(|at| at.done),
            given_up: sum(|at| at.given_up),
            vendors,
        }
    }
}

impl AtVendor {
    fn new(of: usize, begin: Instant, vendors: &Vendors, jobs: &[Job]) -> Self {
        let refused =
            &vendors.answers(|answers| answers.over_time(Answer::Refused, begin, LENGTH, PARTS))[of];
        let taken = vendors.answers(|answers| answers.over_time(Answer::Taken, begin, LENGTH, 1)[0])[of];
        let of_end = |end| jobs.iter().filter(move |job| job.of == of && job.end == end);
        let mut took: Vec<u64> = of_end(JobEnd::Done).map(|job| job.took_micros).collect();
        took.sort_unstable();
        let vendor_429 = refused.iter().sum();
        Self {
            name: NAMES[of],
            vendor_calls: taken + vendor_429,
            vendor_429,
            wasted: share(vendor_429, taken + vendor_429),
            done: took.len(),
            done_per_second: rounded(ratio(took.len() as u64, WINDOW_SECS.into())),
            given_up: of_end(JobEnd::GivenUp).count(),
            p50_ms: percentile_ms(&took, 50),
            p99_ms: percentile_ms(&took, 99),
            refused: refused.clone(),
        }
    }
}

impl Side {
    fn print(&self, name: &str, side: &str) {
        let Self { vendor_429, wasted, done, given_up, .. } = self;
        let wasted = percent(*wasted);
        anstream::println!(
            "{BOLD}{name:<12} {side:<7} {:PARTS$} {vendor_429:>5} {wasted:>7} {done:>6} {given_up:>9}{BOLD:#}",
            ""
        );
    }
}

impl AtVendor {
    fn print(&self, name: &str, side: &str, most: usize) {
        let Self { vendor_429, wasted, done, given_up, p50_ms, p99_ms, .. } = self;
        let style = if *vendor_429 > 0 { RED } else { GREEN };
        let chart = chart::spark(&self.refused, most);
        anstream::println!(
            "{name:<12} {side:<7} {style}{chart} {vendor_429:>5}{style:#} {:>7} {done:>6} {given_up:>9} {:>7} {:>7}",
            percent(*wasted),
            time(*p50_ms),
            time(*p99_ms)
        );
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// In two or three digits.
fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1_000.0) }
}

fn share(part: usize, whole: usize) -> f64 {
    rounded(ratio(part as u64, whole as u64))
}
