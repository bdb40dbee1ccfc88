//! A model of the network and of DynamoDB under load: service times, transaction conflicts, and the
//! throughput limit of one item. Modelled, not measured on AWS. For tokio's paused clock, on which a minute
//! of the model takes seconds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use crate::faults::Fault;
use crate::operation::Operation;

mod throughput;

use throughput::Throughput;

/// Latencies and limits of a modelled DynamoDB. Clones are one service, which all clients of an engine share.
///
/// - A request takes half a round trip to arrive, its service time, and half a round trip back. Half of a
///   service time is fixed, and half is drawn from an exponential distribution, so that its mean is the
///   figure below and its 99th percentile 2.8 times that: 11 ms for a write, round trip included. Clients of
///   DynamoDB have measured 16 ms.
/// - A single write is applied when it arrives. A transaction holds its items for its service time and is
///   applied at the end of it. Meanwhile another transaction on one of these items is cancelled
///   (`TransactionConflict`), a single write is rejected (`TransactionConflictException`), and a read is not
///   affected. A request that is rejected in this way still takes its service time, and is counted without
///   units.
/// - An item takes 1,000 write units a second. A write above that is rejected at once, and does not count
///   against the item. A write with a false condition counts, as in DynamoDB.
///
/// On a paused clock, time passes in steps of a millisecond; latencies are met on average. A request whose
/// sender goes away is not carried on.
#[derive(Clone, Debug)]
pub struct DynamoProfile {
    latencies: Latencies,
    service: Arc<Mutex<Service>>,
}

/// Latencies of the service and of the network.
///
/// Source of the defaults: the load tests of zae-limiter on DynamoDB (average server times), and a
/// millisecond of network within a Region.
#[derive(Clone, Copy, Debug)]
struct Latencies {
    /// The network's time, there and back.
    round_trip: Duration,
    /// The mean service time of `GetItem` and of any other read.
    read: Duration,
    /// The mean service time of `UpdateItem`, `PutItem` and `DeleteItem`.
    write: Duration,
    /// The mean service time of `TransactWriteItems`.
    transaction: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            round_trip: Duration::from_millis(1),
            read: Duration::from_micros(1_200),
            write: Duration::from_micros(3_500),
            transaction: Duration::from_micros(15_700),
        }
    }
}

/// The resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// One item that a request writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileWrite {
    /// Table and key.
    pub(crate) item: String,
    /// Write units, by the size of the item before the write.
    pub(crate) units: u64,
}

#[derive(Debug)]
struct Service {
    held: HashSet<String>,
    throughput: Throughput,
    random: fastrand::Rng,
}

/// What happens to a request that has arrived.
enum Admission {
    Served,
    /// Rejected, after its service time.
    Conflict(Fault),
    /// Rejected at once.
    Throttled(Fault),
}

impl DynamoProfile {
    /// A service with the default latencies. On a paused clock, two runs with one seed are the same.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let service = Service {
            held: HashSet::new(),
            throughput: Throughput::default(),
            random: fastrand::Rng::with_seed(seed),
        };
        Self { latencies: Latencies::default(), service: Arc::new(Mutex::new(service)) }
    }

    /// Carries a request to the service and its reply back. `apply` applies the request; `refuse` makes a
    /// reply of a fault.
    pub(crate) async fn carry<Reply>(
        &self,
        operation: Operation,
        written: impl FnOnce() -> Vec<ProfileWrite>,
        apply: impl FnOnce() -> Reply,
        refuse: impl FnOnce(Fault) -> Reply,
    ) -> Reply {
        let (service_time, early) = self.draw(operation);
        let half_way = self.latencies.round_trip / 2;
        let arrival = Instant::now() + half_way - early;
        sleep_until(arrival).await;
        let written = written();
        let done = arrival + service_time;
        let (reply, answered) = match self.admit(&written, operation) {
            Admission::Throttled(fault) => (refuse(fault), arrival),
            Admission::Conflict(fault) => (refuse(fault), done),
            Admission::Served if operation == Operation::TransactWriteItems => {
                let held = Held { profile: self, written: &written };
                sleep_until(done).await;
                let reply = apply();
                drop(held);
                (reply, done)
            }
            Admission::Served => (apply(), done),
        };
        sleep_until(answered + half_way).await;
        reply
    }

    /// Draws a service time, and how much earlier than its true time each of the request's timers is set.
    ///
    /// Tokio's timers end on whole milliseconds, rounded up. A timer that is set earlier by an evenly drawn
    /// part of a millisecond ends at its true time on average.
    fn draw(&self, operation: Operation) -> (Duration, Duration) {
        let mean = match operation {
            Operation::TransactWriteItems => self.latencies.transaction,
            Operation::PutItem | Operation::UpdateItem | Operation::DeleteItem => self.latencies.write,
            _ => self.latencies.read,
        };
        let random = &mut self.locked().random;
        // Above 0 and up to 1, so that the logarithm is finite.
        let exponential = -(1.0 - random.f64()).ln();
        (mean.mul_f64(0.5 + 0.5 * exponential), TICK.mul_f64(random.f64()))
    }

    fn admit(&self, written: &[ProfileWrite], operation: Operation) -> Admission {
        let is_transaction = operation == Operation::TransactWriteItems;
        let mut service = self.locked();
        let meets_another: Vec<bool> = written.iter().map(|one| service.held.contains(&one.item)).collect();
        if meets_another.contains(&true) {
            return Admission::Conflict(if is_transaction {
                cancelled(&meets_another, "TransactionConflict")
            } else {
                Fault::conflict()
            });
        }
        let too_hot = service.throughput.refuses(written);
        if too_hot.contains(&true) {
            return Admission::Throttled(if is_transaction {
                cancelled(&too_hot, "ThrottlingError")
            } else {
                Fault::throttled()
            });
        }
        service.throughput.take(written);
        if is_transaction {
            service.held.extend(written.iter().map(|one| one.item.clone()));
        }
        Admission::Served
    }

    fn locked(&self) -> MutexGuard<'_, Service> {
        self.service.lock()
    }
}

/// The items that a transaction holds. Dropping this value frees them.
struct Held<'a> {
    profile: &'a DynamoProfile,
    written: &'a [ProfileWrite],
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut service = self.profile.locked();
        for one in self.written {
            service.held.remove(&one.item);
        }
    }
}

fn cancelled(at_fault: &[bool], code: &str) -> Fault {
    let codes: Vec<&str> = at_fault.iter().map(|at_fault| if *at_fault { code } else { "None" }).collect();
    Fault::cancelled(&codes)
}

#[cfg(test)]
mod tests;
