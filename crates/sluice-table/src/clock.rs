//! Where the client reads this machine's time.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_core::Timestamp;

/// The clock of a client: the system's, or one that a test moves.
///
/// The client decides by DynamoDB's time. It takes this clock for the time between two replies, and corrects it by the `Date` of each
/// reply, so a clock that is wrong by hours does no harm (`docs/semantics.md`, *Clocks*).
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Function { now: Now, steady: Option<Steady> },
}

type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;
type Steady = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Where the steady time of this process begins: any instant does.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// The system's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that asks `now` each time. It never jumps, unless [`steady_by`](Self::steady_by) says what does not.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Function { now: Arc::new(now), steady: None })
    }

    /// The same clock beside a steady one, which nobody sets and which tells the time since any instant. If the two move apart, this
    /// clock was set, or the machine resumed from a snapshot, and what replies said of it counts no more. For tests; the system's
    /// clock has the monotonic clock beside it.
    #[must_use]
    pub fn steady_by(self, steady: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let now = match self.0 {
            Source::Function { now, .. } => now,
            Source::System => Arc::new(system_now) as Now,
        };
        Self(Source::Function { now, steady: Some(Arc::new(steady)) })
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Function { now, .. } => now(),
            Source::System => system_now(),
        }
    }

    /// The time of a clock that nobody sets, in microseconds since any instant.
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

fn system_now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
