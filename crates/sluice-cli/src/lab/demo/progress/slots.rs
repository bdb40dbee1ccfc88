//! A line for each bucket: its level, and the calls and the waiting callers of its vendor.

use std::time::Duration;

use indicatif::ProgressBar;
use sluice_sdk::Client;
use sluice_sdk::core::Dimension;
use tokio::time::{Instant, interval};

use super::{Screen, TICK, show_time};
use crate::lab::demo::crew::Tally;
use crate::lab::demo::limits::APIS;
use crate::lab::demo::vendor::Vendors;

pub(crate) struct Slots {
    vendors: Vendors,
    client: Client,
    tally: Tally,
    time: ProgressBar,
    /// Each bucket, with the index of its vendor.
    buckets: Vec<(usize, &'static str, ProgressBar)>,
}

impl Slots {
    pub(crate) fn new(screen: &Screen, vendors: Vendors, client: Client, tally: Tally) -> Self {
        let time = screen.time();
        let buckets =
            APIS.iter().enumerate().flat_map(|(of, api)| api.limits.iter().map(move |name| (of, *name)));
        let bar = |name| screen.bar("{prefix:21} {bar:8} {wide_msg}").with_prefix(name);
        let buckets = buckets.map(|(of, name)| (of, name, bar(name))).collect();
        Self { vendors, client, tally, time, buckets }
    }

    /// Redraws until it is stopped; ends by itself only at a time when everything else must have ended.
    pub(crate) async fn run(&self, begin: Instant, length: Duration, at_most: Duration) {
        let mut ticks = interval(TICK);
        let mut taken = [0; 3];
        while Instant::now() < begin + length + at_most {
            ticks.tick().await;
            show_time(&self.time, begin, length);
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
        for (of, name, bar) in &self.buckets {
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
        self.time.finish_and_clear();
        for (_, _, bar) in &self.buckets {
            bar.finish_and_clear();
        }
    }
}

/// Whole tokens, for display.
const fn whole(micros: i64) -> i64 {
    micros.div_euclid(1_000_000)
}
