//! How late the machine runs what is due: a task that sleeps, and notes how much later than it asked for it
//! wakes up. Knows nothing of Sluice, so that what the machine cannot do is not taken for what Sluice does
//! wrong.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sluice_sdk::Clock;
use sluice_sdk::core::Timestamp;
use tokio::time::{Instant, sleep_until};

/// Time between two wake-ups.
const EVERY: Duration = Duration::from_millis(5);
/// Wake-ups that are late by less are not listed: the timer itself counts in milliseconds.
const LISTED: Duration = Duration::from_millis(10);

/// A wake-up that was late, in microseconds of Unix time: when it was due, and when it came.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Late {
    pub(crate) due: i64,
    pub(crate) came: i64,
}

/// What a process's probe has seen since it was last asked.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Lateness {
    pub(crate) late: Vec<Late>,
    /// The farthest that the clock of the day moved against the clock that only runs forward, in
    /// microseconds.
    pub(crate) clock_moved_micros: u64,
}

/// A running probe. Clones are the same probe.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Mutex<Lateness>>);

impl Probe {
    pub(crate) fn start() -> Self {
        let probe = Self::default();
        tokio::spawn(probe.clone().watch());
        probe
    }

    /// Returns what was seen since the last call.
    pub(crate) fn take(&self) -> Lateness {
        std::mem::take(&mut *self.0.lock())
    }

    async fn watch(self) {
        let (clock, begun) = (Clock::system(), Instant::now());
        let first = clock.now();
        loop {
            let due = Instant::now() + EVERY;
            sleep_until(due).await;
            let (before, came, after) = (Instant::now(), clock.now(), Instant::now());
            // Within these two readings of one clock lies the reading of the other.
            let (least, most) = (first.after(before - begun), first.after(after - begun));
            self.note(before - due, came, least.since(came).max(came.since(most)));
        }
    }

    fn note(&self, late: Duration, came: Timestamp, moved: Duration) {
        let mut seen = self.0.lock();
        seen.clock_moved_micros =
            seen.clock_moved_micros.max(u64::try_from(moved.as_micros()).unwrap_or(u64::MAX));
        if late >= LISTED {
            let micros = i64::try_from(late.as_micros()).unwrap_or(i64::MAX);
            seen.late.push(Late { due: came.micros().saturating_sub(micros), came: came.micros() });
        }
    }
}
