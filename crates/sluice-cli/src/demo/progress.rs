//! What is shown while the demo runs: a line for each bucket.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluice_sdk::core::Dimension;
use sluice_sdk::{Client, Clock};
use tokio::time::{Instant, interval};

use super::crew::Tally;
use super::limits::{CONCURRENT, REQUESTS, TOKENS};
use super::vendor::Vendor;
use super::{Options, RECOVERY_AT_MOST, WIND_DOWN};

pub(crate) struct Progress {
    quiet: bool,
    vendor: Vendor,
    client: Client,
    tally: Tally,
    bars: Bars,
    intro: String,
}

struct Bars {
    all: MultiProgress,
    time: ProgressBar,
    buckets: [(&'static str, ProgressBar); 3],
}

const TICK: Duration = Duration::from_millis(200);

impl Bars {
    fn new(quiet: bool) -> Self {
        let all = MultiProgress::with_draw_target(if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        });
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("█▉▊▋▌▍▎▏ ")
        };
        let time = all.add(ProgressBar::new(1).with_style(style("{prefix:17} {wide_bar:.dim} {msg:12}").clone()));
        let bucket = |name| {
            (name, all.add(ProgressBar::new(1).with_style(style("{prefix:17} {bar:8} {wide_msg}"))).with_prefix(name))
        };
        let buckets = [bucket(REQUESTS), bucket(TOKENS), bucket(CONCURRENT)];
        Self { all, time, buckets }
    }
}

impl Progress {
    pub(crate) fn new(options: &Options, vendor: Vendor, client: Client, tally: Tally) -> Self {
        let intro =
            format!("{} processes with {} callers each, for {} s", options.processes, options.callers, options.seconds);
        Self { quiet: options.json, vendor, client, tally, bars: Bars::new(options.json), intro }
    }

    pub(crate) fn opening(&self, endpoint: &str, vendor: &str) {
        if !self.quiet {
            println!("DynamoDB (embedded) at {endpoint}");
            println!("A vendor that judges for itself at {vendor}");
            println!("{}", self.intro);
            println!();
        }
    }

    /// Says what just happened, above the bars.
    pub(crate) fn announcer(&self) -> Announcer {
        Announcer((!self.quiet).then(|| self.bars.all.clone()))
    }

    /// Redraws until it is stopped; ends only where everything else should have ended long ago.
    pub(crate) async fn run(&mut self, begin: Instant, length: Duration) {
        let at_most = begin + length + WIND_DOWN + RECOVERY_AT_MOST;
        let mut ticks = interval(TICK);
        let mut taken = 0;
        self.bars.time.set_length(u64::try_from(length.as_millis()).unwrap_or(1));
        while Instant::now() < at_most {
            ticks.tick().await;
            let now = Instant::now();
            let passed = now.saturating_duration_since(begin).min(length);
            self.bars.time.set_position(u64::try_from(passed.as_millis()).unwrap_or(0));
            self.bars.time.set_prefix(if now < begin { "processes start" } else { "time" });
            self.bars.time.set_message(format!("{:>4.1} s", passed.as_secs_f64()));
            let calls = self.vendor.taken();
            let per_sec = (calls - taken) * 5;
            taken = calls;
            self.draw(per_sec).await;
        }
    }

    async fn draw(&self, per_sec: usize) {
        let now = Clock::system().now();
        let waiting: u64 = self.tally.with(|reports| reports.last.iter().map(|report| report.waiting).sum());
        let (at_once, _) = self.vendor.concurrency();
        for (name, bar) in &self.bars.buckets {
            let Ok(dimension) = Dimension::new(name) else { continue };
            let Ok(Some(bucket)) = self.client.bucket(&dimension).await else { continue };
            let (level, capacity) = (bucket.level(now), bucket.limit().capacity());
            bar.set_length(u64::try_from(capacity.micros()).unwrap_or(1));
            bar.set_position(u64::try_from(level.micros()).unwrap_or(0));
            let state = if level.micros() < 0 {
                format!("{:>3} booked ahead", whole(-level.micros()))
            } else {
                let free = if *name == CONCURRENT { " free" } else { "" };
                format!("{:>4} of {}{free}", whole(level.micros()), whole(capacity.micros()))
            };
            // A call takes from all three at once, so that they share these figures.
            let calls = format!("{state:<16} {per_sec:>3} grants/s {waiting:>3} waiting");
            bar.set_message(if *name == CONCURRENT { format!("{calls}, {at_once} calling") } else { calls });
        }
    }

    pub(crate) fn finish(&self) {
        self.bars.time.finish_and_clear();
        for (_, bar) in &self.bars.buckets {
            bar.finish_and_clear();
        }
    }
}

/// Whole tokens, for show.
const fn whole(micros: i64) -> i64 {
    micros.div_euclid(1_000_000)
}

/// Prints above the bars, or not at all.
#[derive(Clone)]
pub(crate) struct Announcer(Option<MultiProgress>);

impl Announcer {
    pub(crate) fn say(&self, text: &str) {
        if let Some(bars) = &self.0 {
            // Where standard error is no terminal, bars are hidden and swallow the line.
            if bars.is_hidden() {
                eprintln!("{text}")
            } else {
                let _ = bars.println(text);
            }
        }
    }
}
