//! How often a process gives slots to lines while the shares of their bucket change: one caller at a time,
//! and after failures less and less often.

use std::time::Duration;

use sluice_table::random_wait_around;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// The mean pause after a failure, doubled for each further one, and the longest. Other processes may be
/// faster once; if a write fails for ever, as beside a later version, it costs little.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Of one bucket.
#[derive(Debug, Default)]
pub(super) struct SlotGives(Mutex<Pause>);

#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl SlotGives {
    /// `None` while another caller gives slots, and in a pause.
    pub(super) fn turn(&self) -> Option<MutexGuard<'_, Pause>> {
        let turn = self.0.try_lock().ok()?;
        turn.until.is_none_or(|until| until <= Instant::now()).then_some(turn)
    }
}

impl Pause {
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self) {
        let mean = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.until = Some(Instant::now() + random_wait_around(mean));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_caller_gives_at_a_time_and_after_failures_less_often() {
        let gives = SlotGives::default();
        let mut turn = gives.turn().unwrap();
        assert!(gives.turn().is_none(), "another gives");
        turn.failed();
        drop(turn);
        assert!(gives.turn().is_none(), "it failed just now");
        let mut tries = 0;
        let begins = Instant::now();
        while begins.elapsed() < Duration::from_secs(60) {
            if let Some(mut turn) = gives.turn() {
                tries += 1;
                turn.failed();
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!((5..20).contains(&tries), "{tries} tries in a minute");
        tokio::time::advance(LONGEST_PAUSE * 2).await;
        gives.turn().unwrap().succeeded();
        assert!(gives.turn().is_some());
    }
}
