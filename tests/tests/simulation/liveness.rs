//! Liveness: every public call returns within the longest time that `docs/semantics.md` states for it (*When
//! DynamoDB is out*, the table), whatever its process meets: requests that hang, are throttled or trickle,
//! writes that others are faster with. Of the two columns it is the longer one that holds. The time in which
//! its process stands still does not count, nor that of the work under a slot.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ice::Ice;
use crate::process::Process;
use crate::row::Micros;
use crate::universe::Universe;

/// R: a request with its four attempts of a second, and the pauses between them.
const REQUEST: Duration = Duration::from_millis(4_200);

/// P: a page of a scan.
const PAGE: Duration = Duration::from_millis(20_200);

/// One attempt of a request.
const ATTEMPT: Duration = Duration::from_secs(1);

/// A slot ends so long after its timeout at most: its release may take that, and goes on by itself.
const RELEASE: Duration = Duration::from_secs(3);

/// A wait that ends at its timeout gets so long to say why.
const GRACE: Duration = Duration::from_millis(250);

/// What a sweep takes beyond its budget.
const BEYOND_BUDGET: Duration = Duration::from_millis(500);

/// Reads that tell the time where it is not known.
const CLOCK_READS: u32 = 3;

/// Timers end in whole milliseconds, and a call may await several.
const ROUNDING: Duration = Duration::from_millis(10);

/// From a setting of its clock on, a process may go so long without a reply that tells the time.
const UNKNOWN_FOR: Micros = 60_000_000;

/// A call of the SDK.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Public {
    Acquire,
    /// An acquire that takes a ticket, of so many dimensions.
    Book(usize),
    /// With this timeout, and in addition the length of the work, if work may go on after it.
    Slot(Duration, Duration),
    Release,
    /// Of so many leases.
    Renew(usize),
    Settle,
    Observe,
    /// Of so many dimensions.
    Refused(usize),
    CoolDown,
    /// Of a ticket of so many dimensions.
    Redeem(usize),
    Admit,
    /// With this much time; without a budget, of so many pages and writes.
    Sweep(SweepTime),
}

/// How long a sweep may go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepTime {
    Budget(Duration),
    /// So many pages, and rows that it may write, each more than once.
    Whole {
        pages: u32,
        rows: u32,
    },
}

impl Public {
    /// The longest that it may take, of a client whose acquire may take `acquire`.
    fn bound(self, acquire: Duration) -> Duration {
        let requests = |count: u32| REQUEST * count;
        let parts = |count: usize| u32::try_from(count).unwrap();
        match self {
            Self::Acquire => acquire,
            Self::Book(1) => acquire + requests(2),
            Self::Book(_) => acquire * 2 + Duration::from_secs(2) + requests(2),
            Self::Slot(timeout, work) => timeout + GRACE + work + RELEASE,
            // The longer of lease rows (10 s and 4 R) and inline leases (9 s and 6 R), and a settlement.
            Self::Release => Duration::from_secs(9) + requests(6) + requests(6),
            Self::Renew(leases) => requests(parts(leases)),
            Self::Settle => requests(6),
            Self::Observe => ATTEMPT + requests(7),
            Self::Refused(dimensions) => requests(6 * parts(dimensions)),
            Self::CoolDown => requests(2),
            Self::Redeem(1) => requests(4),
            Self::Redeem(_) => requests(4) + acquire + Duration::from_secs(1),
            Self::Admit => ATTEMPT,
            Self::Sweep(SweepTime::Budget(budget)) => budget + BEYOND_BUDGET,
            Self::Sweep(SweepTime::Whole { pages, rows }) => PAGE * pages + requests(rows),
        }
    }

    /// Whether it writes what carries an instant: it reads first where the time is not known. An acquire's
    /// bound has that in it.
    const fn needs_the_time(self) -> bool {
        !matches!(self, Self::Admit | Self::Slot(..))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "in time: acquire",
            Self::Book(_) => "in time: acquire with a ticket",
            Self::Slot(..) => "in time: slot",
            Self::Release => "in time: release",
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
pub(crate) const JUDGED: [&str; 12] = [
    Public::Acquire.name(),
    Public::Book(1).name(),
    Public::Slot(Duration::ZERO, Duration::ZERO).name(),
    Public::Release.name(),
    Public::Renew(1).name(),
    Public::Settle.name(),
    Public::Observe.name(),
    Public::Refused(1).name(),
    Public::CoolDown.name(),
    Public::Redeem(1).name(),
    Public::Admit.name(),
    Public::Sweep(SweepTime::Budget(Duration::ZERO)).name(),
];

/// The time that a call takes, while its process runs.
pub(crate) struct Stopwatch {
    universe: Arc<Universe>,
    process: Process,
    ice: Ice,
    call: Public,
    began: Instant,
    began_at: Micros,
    /// Whether its process knew the time, as far as anyone can tell from outside.
    knew_the_time: bool,
    frozen: Duration,
}

impl Stopwatch {
    /// Of a call that begins now.
    pub(crate) fn of(universe: &Arc<Universe>, process: &Process, call: Public) -> Self {
        let began_at = universe.time();
        Self {
            universe: Arc::clone(universe),
            process: process.clone(),
            ice: process.ice.clone(),
            call,
            began: Instant::now(),
            began_at,
            knew_the_time: process.client.clock_offset().is_some(),
            frozen: process.ice.stood_still(),
        }
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
        let bound = self.bound(!(self.ice.stood_still() - self.frozen).is_zero());
        if took > bound {
            let (who, call) = (&self.process.name, self.call);
            self.universe.violated(format!("{who}: {call:?} took {took:?}, and may take {bound:?}"));
        }
    }

    /// With the reads that tell the time, where its clock was set, or it had not heard from the table. An
    /// acquire whose process stood still has its time again.
    fn bound(&self, stood_still: bool) -> Duration {
        let stays_known =
            self.knew_the_time && !self.process.machine.moved_apart_since(self.began_at - UNKNOWN_FOR);
        let reads = if stays_known || !self.call.needs_the_time() { 0 } else { CLOCK_READS };
        self.call.bound(self.process.client.longest_acquire() * if stood_still { 2 } else { 1 })
            + REQUEST * reads
            + ROUNDING
    }
}
