//! Where the client reads the time.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_core::Timestamp;

/// The clock of a client: the system's, or one that a test moves.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Function(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that asks `now` each time.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Function(Arc::new(now)))
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Function(now) => now(),
            Source::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
            }
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
