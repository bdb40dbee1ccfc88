//! The display while the bench runs: a bar on standard error, and what is being measured.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress bar. Clones are one bar.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

const TICK: Duration = Duration::from_millis(250);

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        let style =
            ProgressStyle::with_template("{bar:16} {pos:>2}/{len} {elapsed:>4}, {eta:>4} left  {wide_msg}");
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
            let (begun, all) = (self.0.position(), self.0.length().unwrap_or_default());
            let left = left(self.0.elapsed(), begun, all).map(|left| format!(", about {left} left"));
            eprintln!("{}/{all} {what}{}", begun + 1, left.unwrap_or_default());
        }
        self.0.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// How long the cases that are left take, if each takes as long as those before: in whole minutes, or tens of
/// seconds. `None` at the beginning.
fn left(elapsed: Duration, done: u64, all: u64) -> Option<String> {
    let each = elapsed.checked_div(u32::try_from(done).ok().filter(|done| *done > 0)?)?;
    let secs = each.saturating_mul(u32::try_from(all.saturating_sub(done)).ok()?).as_secs();
    Some(if secs > 90 { format!("{}m", secs.div_ceil(60)) } else { format!("{}s", secs.div_ceil(10) * 10) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_estimated_from_what_was_done() {
        let of = |secs, done| left(Duration::from_secs(secs), done, 29);
        assert_eq!(of(1, 0), None);
        assert_eq!(of(20, 4), Some("3m".into()));
        assert_eq!(of(120, 27), Some("10s".into()));
    }
}
