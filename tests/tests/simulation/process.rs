//! Processes, and whom they stand for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_sdk::Client;
use sluice_sdk::reservations::ReservationTracker;
use sluice_testkit::EmbeddedDynamo;

use crate::ice::Ice;
use crate::ledger::Writer;
use crate::machine::{Machine, Resumed};
use crate::row::Micros;
use crate::tally::Tally;

/// Who a client stands for. It decides how the ledger judges its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Process,
    /// A process beside those of the workload, which counts no steps.
    Customer,
    Sweeper,
    Operator,
    Stranger,
    Vandal,
}

impl Role {
    pub(crate) const fn writer(self, name: &str) -> Writer<'_> {
        match self {
            Self::Process | Self::Customer => Writer::Process(name),
            Self::Sweeper => Writer::Sweeper(name),
            Self::Operator => Writer::Operator,
            Self::Stranger => Writer::Stranger,
            Self::Vandal => Writer::Vandal,
        }
    }
}

/// A process: a client with a network, a clock and a life of its own.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) name: Arc<str>,
    pub(crate) client: Client,
    pub(crate) dynamo: EmbeddedDynamo,
    pub(crate) machine: Machine,
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) ice: Ice,
    pub(crate) tally: Tally,
    /// What its calls leave for their ends.
    pub(crate) tracker: Option<ReservationTracker>,
}

impl Process {
    /// It stands still no more, and its clocks go on.
    pub(crate) fn thaw(&self, now: Micros, resumed: Resumed) {
        self.machine.resume(i64::try_from(now).unwrap(), resumed);
        self.ice.thaw(now);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Nothing that it has not sent yet will ever be sent.
    pub(crate) fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Sets how far its clock is off within what a process may err, in microseconds.
    pub(crate) fn set_clock_error(&self, micros: i64) {
        self.machine.set_error(micros, self.dynamo.clock().now().micros());
    }

    /// How far that is at this moment.
    pub(crate) fn clock_error(&self) -> i64 {
        self.machine.error()
    }
}
