//! Liveness: every public call returns within its bound, whatever its process meets: requests that hang, are throttled or trickle, writes
//! that others are faster with. The time in which its process stands still does not count, nor that of the work under a slot.
//!
//! The bounds follow from `docs/semantics.md`, *When DynamoDB is out*: five seconds for each request that a call needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ice::Ice;
use crate::process::Process;
use crate::universe::Universe;

/// What a request takes at most: four attempts of a second, and the pauses between them.
const REQUEST: Duration = Duration::from_secs(5);

/// A slot ends so long after its timeout at most: its release may take that, and goes on by itself.
const RELEASE: Duration = Duration::from_secs(3);

/// A wait that ends by itself at the timeout gets this long to say why.
const GRACE: Duration = Duration::from_millis(300);

/// No page is asked for, and no restore begun, after the end of a sweep's time; each may take as long as a request.
const SWEPT: u32 = 6;

/// A call of the SDK.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Public {
    /// Of so many dimensions.
    Acquire(usize),
    /// With this timeout, and work of at most so long besides, where that may go on after it.
    Slot(Duration, Duration),
    /// Of so many dimensions.
    Release(usize),
    Renew(usize),
    Settle,
    Observe,
    Refused(usize),
    CoolDown,
    Redeem(usize),
    Admit,
    /// With this much time.
    Sweep(Duration),
}

impl Public {
    /// The longest that it may take.
    fn bound(self) -> Duration {
        let requests = |count: usize| REQUEST * u32::try_from(count).unwrap();
        match self {
            // The write under way in its lane; of each dimension a read, a write, and a return where another refuses.
            Self::Acquire(parts) => requests(1 + 3 * parts),
            Self::Slot(timeout, work) => timeout + work + GRACE + RELEASE,
            // What is under way in its lane; a read and a write, and once more where another was faster.
            Self::Release(parts) | Self::Renew(parts) => requests(1 + 4 * parts),
            Self::Settle | Self::Observe => requests(5),
            Self::Refused(parts) => requests(1 + 4 * parts),
            Self::CoolDown => requests(4),
            // The row of its ticket is read, claimed, and given up again; and each bucket is read twice.
            Self::Redeem(parts) => requests(3 + 3 * parts),
            Self::Admit => requests(3),
            Self::Sweep(budget) => budget + REQUEST * SWEPT,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Acquire(_) => "in time: acquire",
            Self::Slot(..) => "in time: slot",
            Self::Release(_) => "in time: release",
            Self::Renew(_) => "in time: renew",
            Self::Settle => "in time: settle",
            Self::Observe => "in time: observe",
            Self::Refused(_) => "in time: on_rate_limited",
            Self::CoolDown => "in time: cool_down",
            Self::Redeem(_) => "in time: redeem",
            Self::Admit => "in time: admit",
            Self::Sweep(_) => "in time: sweep",
        }
    }
}

/// What must have been judged in a run of many seeds.
pub(crate) const JUDGED: [&str; 11] = [
    Public::Acquire(1).name(),
    Public::Slot(Duration::ZERO, Duration::ZERO).name(),
    Public::Release(1).name(),
    Public::Renew(1).name(),
    Public::Settle.name(),
    Public::Observe.name(),
    Public::Refused(1).name(),
    Public::CoolDown.name(),
    Public::Redeem(1).name(),
    Public::Admit.name(),
    Public::Sweep(Duration::ZERO).name(),
];

/// The time that a call takes, while its process runs.
pub(crate) struct Stopwatch {
    universe: Arc<Universe>,
    who: Arc<str>,
    ice: Ice,
    call: Public,
    began: Instant,
    frozen: Duration,
}

impl Stopwatch {
    /// Of a call that begins now.
    pub(crate) fn of(universe: &Arc<Universe>, process: &Process, call: Public) -> Self {
        let (universe, who, ice) = (Arc::clone(universe), Arc::clone(&process.name), process.ice.clone());
        let (began, frozen) = (Instant::now(), ice.stood_still());
        Self { universe, who, ice, call, began, frozen }
    }

    /// Awaits the call, and judges it. Of one that is dropped nothing is said.
    pub(crate) async fn on<F: Future>(self, call: F) -> F::Output {
        let output = call.await;
        self.stop();
        output
    }

    fn stop(self) {
        let took = self.began.elapsed().saturating_sub(self.ice.stood_still() - self.frozen);
        self.universe.count(self.call.name());
        if took > self.call.bound() {
            let Self { who, call, .. } = &self;
            self.universe.violated(format!("{who}: {call:?} took {took:?}, and may take {:?}", call.bound()));
        }
    }
}
