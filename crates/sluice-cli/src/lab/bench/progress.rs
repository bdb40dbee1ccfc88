//! The display while the bench runs: a bar on standard error, and what is being measured.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress bar. Clones are one bar.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

const TICK: Duration = Duration::from_millis(250);

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:16} {pos:>2}/{len} {elapsed:>4} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("█▉▊▋▌▍▎▏ ");
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr()).with_style(style);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Announces the next case.
    pub(crate) fn step(&self, what: impl std::fmt::Display) {
        self.0.set_message(what.to_string());
        // If standard error is not a terminal, the bar is hidden, so each case prints a line.
        if self.0.is_hidden() {
            eprintln!("{what}");
        }
        self.0.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
