//! The display while the demo runs: what happens, above bars that show how it stands.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::output::{BOLD, DIM};

pub(crate) mod retries;
pub(crate) mod slots;

/// Time between two drawings.
const TICK: Duration = Duration::from_millis(200);

/// Where the bars are drawn: on standard error, or nowhere.
pub(crate) struct Screen {
    quiet: bool,
    all: MultiProgress,
}

impl Screen {
    pub(crate) fn new(quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Self { quiet, all: MultiProgress::with_draw_target(target) }
    }

    /// Prints the title of a part of the story, and what it is about.
    pub(crate) fn part(&self, title: &str, about: &[String]) {
        let announcer = self.announcer();
        announcer.say(&format!("{BOLD}{title}{BOLD:#}"));
        for line in about {
            announcer.say(&format!("   {DIM}{line}{DIM:#}"));
        }
    }

    /// Prints events above the bars.
    pub(crate) fn announcer(&self) -> Announcer {
        Announcer((!self.quiet).then(|| self.all.clone()))
    }

    fn bar(&self, template: &str) -> ProgressBar {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.all.add(ProgressBar::new(1).with_style(style.progress_chars("█▉▊▋▌▍▎▏ ")))
    }

    fn time(&self) -> ProgressBar {
        self.bar("{prefix:21} {wide_bar:.dim} {msg:12}")
    }
}

/// Shows how much of `length` has passed since `begin`.
fn show_time(bar: &ProgressBar, begin: Instant, length: Duration) {
    let now = Instant::now();
    let passed = now.saturating_duration_since(begin).min(length);
    bar.set_length(u64::try_from(length.as_millis()).unwrap_or(1));
    bar.set_position(u64::try_from(passed.as_millis()).unwrap_or(0));
    bar.set_prefix(if now < begin { "processes start" } else { "time" });
    bar.set_message(format!("{:>4.1} s", passed.as_secs_f64()));
}

/// Prints above the bars, or not at all.
#[derive(Clone)]
pub(crate) struct Announcer(Option<MultiProgress>);

impl Announcer {
    pub(crate) fn say(&self, text: &str) {
        if let Some(bars) = &self.0 {
            // If standard error is not a terminal, the bars are hidden, and would swallow the line.
            if bars.is_hidden() {
                anstream::eprintln!("{text}");
            } else {
                let choice = anstream::AutoStream::choice(&std::io::stderr());
                let plain = matches!(choice, anstream::ColorChoice::Never);
                let text =
                    if plain { anstream::adapter::strip_str(text).to_string() } else { text.to_owned() };
                let _ = bars.println(text);
            }
        }
    }
}
