//! The display while the demo runs: a line for each bucket.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluice_sdk::Client;
use sluice_sdk::core::Dimension;
use tokio::time::{Instant, interval};

use super::crew::Tally;
use super::limits::APIS;
use super::vendor::Vendors;
use super::{Options, RECOVERY_AT_MOST, WIND_DOWN};

pub(crate) struct Progress {
    quiet: bool,
    vendors: Vendors,
    client: Client,
    tally: Tally,
    bars: Bars,
    intro: String,
}

struct Bars {
    all: MultiProgress,
    time: ProgressBar,
    /// Each bucket, with the index of its vendor.
    buckets: Vec<(usize, &'static str, ProgressBar)>,
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
        let time = all.add(ProgressBar::new(1).with_style(style("{prefix:21} {wide_bar:.dim} {msg:12}").clone()));
        let bar =
            |name| all.add(ProgressBar::new(1).with_style(style("{prefix:21} {bar:8} {wide_msg}"))).with_prefix(name);
        let buckets = APIS.iter().enumerate().flat_map(|(of, api)| api.limits.iter().map(move |name| (of, *name)));
        let buckets = buckets.map(|(of, name)| (of, name, bar(name))).collect();
        Self { all, time, buckets }
    }
}

impl Progress {
    pub(crate) fn new(options: &Options, vendors: Vendors, client: Client, tally: Tally) -> Self {
        let callers: u32 = super::crew::callers(options).iter().sum();
        let intro = format!("{} processes with {callers} callers each, for {} s", options.processes, options.seconds);
        Self { quiet: options.json, vendors, client, tally, bars: Bars::new(options.json), intro }
    }

    pub(crate) fn opening(&self, endpoint: &str, vendor: &str) {
        if !self.quiet {
            println!("DynamoDB (embedded) at {endpoint}");
            println!("Three local vendors, each with limits of its own, at {vendor}");
            println!("{}", self.intro);
            println!();
        }
    }

    /// Prints events above the bars.
    pub(crate) fn announcer(&self) -> Announcer {
        Announcer((!self.quiet).then(|| self.bars.all.clone()))
    }

    /// Redraws until it is stopped; ends by itself only at a time when everything else must have ended.
    pub(crate) async fn run(&mut self, begin: Instant, length: Duration) {
        let at_most = begin + length + WIND_DOWN + RECOVERY_AT_MOST;
        let mut ticks = interval(TICK);
        let mut taken = [0; 3];
        self.bars.time.set_length(u64::try_from(length.as_millis()).unwrap_or(1));
        while Instant::now() < at_most {
            ticks.tick().await;
            let now = Instant::now();
            let passed = now.saturating_duration_since(begin).min(length);
            self.bars.time.set_position(u64::try_from(passed.as_millis()).unwrap_or(0));
            self.bars.time.set_prefix(if now < begin { "processes start" } else { "time" });
            self.bars.time.set_message(format!("{:>4.1} s", passed.as_secs_f64()));
            let calls = self.vendors.taken();
            let per_sec = [0, 1, 2].map(|of: usize| (calls[of] - taken[of]) * 5);
            taken = calls;
            self.draw(per_sec).await;
        }
    }

    async fn draw(&self, per_sec: [usize; 3]) {
        let waiting = |of: usize| -> u64 {
            self.tally.with(|reports| reports.last.iter().map(|report| report.waiting[of]).sum())
        };
        for (of, name, bar) in &self.bars.buckets {
            let Ok(dimension) = Dimension::new(name) else { continue };
            let Ok(Some(bucket)) = self.client.ops().bucket(&dimension).await else { continue };
            let now = self.client.now();
            let (level, capacity) = (bucket.level(now), bucket.limit().capacity());
            bar.set_length(u64::try_from(capacity.micros()).unwrap_or(1));
            bar.set_position(u64::try_from(level.micros()).unwrap_or(0));
            let free = if bucket.limit().is_concurrent() { " free" } else { "" };
            let state = if bucket.blocked_until().is_some_and(|until| until > now) {
                "cooling down".into()
            } else if level.micros() < 0 {
                format!("{:>3} booked ahead", whole(-level.micros()))
            } else {
                format!("{:>4} of {}{free}", whole(level.micros()), whole(capacity.micros()))
            };
            // A call takes from all buckets of its vendor at once, so these buckets share the figures.
            bar.set_message(format!("{state:<16} {:>3} calls/s {:>3} waiting", per_sec[*of], waiting(*of)));
        }
    }

    pub(crate) fn finish(&self) {
        self.bars.time.finish_and_clear();
        for (_, _, bar) in &self.bars.buckets {
            bar.finish_and_clear();
        }
    }
}

/// Whole tokens, for display.
const fn whole(micros: i64) -> i64 {
    micros.div_euclid(1_000_000)
}

/// Prints above the bars, or not at all.
#[derive(Clone)]
pub(crate) struct Announcer(Option<MultiProgress>);

impl Announcer {
    pub(crate) fn say(&self, text: &str) {
        if let Some(bars) = &self.0 {
            // If standard error is not a terminal, the bars are hidden, and would swallow the line.
            if bars.is_hidden() {
                eprintln!("{text}")
            } else {
                let _ = bars.println(text);
            }
        }
    }
}
