//! A line for each vendor: how many of the calls it took, and how many it refused.

use std::time::Duration;

use indicatif::ProgressBar;
use tokio::time::{Instant, interval};

use super::{Screen, TICK, show_time};
use crate::lab::demo::limits::NAMES;
use crate::lab::demo::vendor::Vendors;
use crate::lab::demo::vendor::answers::Answer;

pub(crate) struct Retries {
    vendors: Vendors,
    time: ProgressBar,
    bars: [ProgressBar; 3],
}

impl Retries {
    pub(crate) fn new(screen: &Screen, vendors: Vendors) -> Self {
        let time = screen.time();
        let bars = NAMES.map(|name| screen.bar("{prefix:21} {bar:20.red} {wide_msg}").with_prefix(name));
        Self { vendors, time, bars }
    }

    /// Redraws until it is stopped.
    pub(crate) async fn run(&self, begin: Instant, length: Duration) {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            show_time(&self.time, begin, length);
            let count = |answer| {
                self.vendors.answers(|answers| answers.over_time(answer, begin, length, 1)[0] as u64)
            };
            let (taken, refused) = (count(Answer::Taken), count(Answer::Refused));
            for (of, bar) in self.bars.iter().enumerate() {
                bar.set_length((taken[of] + refused[of]).max(1));
                bar.set_position(refused[of]);
                bar.set_message(format!("{:>4} refused (429) {:>4} taken", refused[of], taken[of]));
            }
        }
    }

    pub(crate) fn finish(&self) {
        self.time.finish_and_clear();
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
    }
}
