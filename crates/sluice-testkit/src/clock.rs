//! A clock that a test moves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dynoxide::storage_backend::Clock as EngineClock;
use sluice_sdk::Clock;
use sluice_sdk::core::Timestamp;
use tokio::time::Instant;

/// A clock that follows tokio's clock, which a test may pause, and that a test can also move. Clones are one
/// clock.
#[derive(Clone)]
pub struct TestClock {
    origin: Instant,
    start: Timestamp,
    moved_micros: Arc<AtomicI64>,
}

impl TestClock {
    /// A clock that shows `start` now.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { origin: Instant::now(), start, moved_micros: Arc::default() }
    }

    /// A clock that shows the system's time.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Clock::system().now())
    }

    /// The time that the clock shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = self.start.after(self.origin.elapsed());
        Timestamp::from_micros(passed.micros().saturating_add(self.moved_micros.load(Ordering::SeqCst)))
    }

    /// Moves the clock forward without waiting. Tokio's timers do not notice.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.moved_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// The same clock for a client, off by `micros`.
    #[must_use]
    pub fn off_by(&self, micros: i64) -> Clock {
        let clock = self.clone();
        Clock::from_fn(move || Timestamp::from_micros(clock.now().micros().saturating_add(micros)))
    }
}

impl EngineClock for TestClock {
    fn now_unix_secs(&self) -> u64 {
        u64::try_from(self.now().micros() / 1_000_000).unwrap_or(0)
    }

    fn now_unix_secs_f64(&self) -> f64 {
        let since_epoch = self.now().since(Timestamp::from_micros(0));
        since_epoch.as_secs_f64()
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestClock({})", self.now())
    }
}
