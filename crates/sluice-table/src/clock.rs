//! How the client reads this machine's time.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_core::Timestamp;

/// The clock of a client: the system's, or one that a test moves. The client decides by DynamoDB's time: it
/// uses this clock between two replies, and corrects it by the `Date` of each. So even a clock that is wrong
/// by hours is harmless (`docs/semantics.md`, *Clocks*).
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Function { now: Now, steady: Option<Steady> },
}

type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;
type Steady = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The origin of this process's steady time; any instant will do.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// The system's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that calls `now` each time. It counts as a clock that never jumps, unless
    /// [`steady_by`](Self::steady_by) adds a steady clock.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Function { now: Arc::new(now), steady: None })
    }

    /// The same clock with a steady clock, which nobody sets; `steady` returns the time since any fixed
    /// instant. If the two move apart, this clock was set, or the machine resumed from a snapshot, and what
    /// replies showed of it no longer counts. For tests: the system's clock already has the monotonic clock
    /// as its steady clock.
    #[must_use]
    pub fn steady_by(self, steady: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let now = match self.0 {
            Source::Function { now, .. } => now,
            Source::System => Arc::new(system_now) as Now,
        };
        Self(Source::Function { now, steady: Some(Arc::new(steady)) })
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Function { now, .. } => now(),
            Source::System => system_now(),
        }
    }

    /// The steady clock, which nobody sets, in microseconds since any fixed instant.
    #[must_use]
    pub fn steady_micros(&self) -> i64 {
        let steady = match &self.0 {
            Source::System => ORIGIN.elapsed(),
            Source::Function { steady: Some(steady), .. } => steady(),
            Source::Function { now, steady: None } => return now().micros(),
        };
        i64::try_from(steady.as_micros()).unwrap_or(i64::MAX)
    }
}

/// The whole microseconds of a span, as far as there is room for them.
pub(crate) fn whole_micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn system_now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
