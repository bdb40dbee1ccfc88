//! Callers that ask, hold, give back and ask again, as fast as allowed.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::histogram::Histogram;
use super::system::{System, TakeResult};

/// What the callers of each process do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Callers in each process.
    pub(crate) callers: usize,
    pub(crate) length: Duration,
    /// How long a grant is held.
    pub(crate) hold: Duration,
    /// What a caller does after a refusal.
    pub(crate) when_refused: WhenRefused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenRefused {
    /// There is quota, so the refusal is false: the caller asks again after a millisecond.
    AskAgain,
    /// The caller waits as told.
    Wait,
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Grants that were answered within the time.
    pub(crate) grants: u64,
    /// Grants that were asked for within the time, and answered later.
    pub(crate) late: u64,
    pub(crate) false_refusals: u64,
    /// Refusals because there was no quota.
    pub(crate) refusals: u64,
    pub(crate) errors: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) latencies: Histogram,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.grants += other.grants;
        self.late += other.late;
        self.false_refusals += other.false_refusals;
        self.refusals += other.refusals;
        self.errors += other.errors;
        self.last_error = other.last_error.or(self.last_error.take());
        self.latencies.merge(&other.latencies);
    }

    fn failed(&mut self, error: &crate::failure::Failure) {
        self.errors += 1;
        self.last_error = Some(error.to_string());
    }
}

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    run: Box<dyn Fn(Load) -> BoxFuture<'static, Tally> + Send + Sync>,
}

impl Contestant {
    pub(crate) fn new<S: System>(name: &'static str, processes: Vec<S>) -> Self {
        let run = move |load| -> BoxFuture<'static, Tally> { Box::pin(run(processes.clone(), load)) };
        Self { name, run: Box::new(run) }
    }

    pub(crate) async fn load(&self, load: Load) -> Tally {
        (self.run)(load).await
    }
}

async fn run<S: System>(processes: Vec<S>, load: Load) -> Tally {
    let end = Instant::now() + load.length;
    let callers = processes.into_iter().flat_map(|process| std::iter::repeat_n(process, load.callers));
    let callers: Vec<_> = callers.map(|system| tokio::spawn(call(system, load, end))).collect();
    let mut sum = Tally::default();
    for caller in callers {
        match caller.await {
            Ok(tally) => sum.add(tally),
            Err(error) => sum.failed(&error.into()),
        }
    }
    sum
}

/// The pause after an error.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// A refusal may come from memory, without a request: virtual time must pass before the next try.
const AFTER_FALSE_REFUSAL: Duration = Duration::from_millis(1);

async fn call<S: System>(system: S, load: Load, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut asked_at = Instant::now();
    while Instant::now() < end {
        match system.take().await {
            Ok(TakeResult::Granted { held, waited }) => {
                let answered_at = Instant::now();
                if answered_at <= end {
                    tally.grants += 1;
                    tally.latencies.record(waited.unwrap_or(answered_at - asked_at));
                } else {
                    tally.late += 1;
                }
                if !load.hold.is_zero() {
                    sleep(load.hold).await;
                }
                if let Err(error) = system.finish(held).await {
                    tally.failed(&error);
                }
            }
            Ok(TakeResult::Refused { wait }) if load.when_refused == WhenRefused::Wait => {
                tally.refusals += 1;
                sleep(wait).await;
                // The caller still waits for the same grant.
                continue;
            }
            Ok(TakeResult::Refused { .. } | TakeResult::GaveUp) => {
                tally.false_refusals += 1;
                sleep(AFTER_FALSE_REFUSAL).await;
                if load.when_refused == WhenRefused::Wait {
                    continue;
                }
            }
            Err(error) => {
                tally.failed(&error);
                sleep(AFTER_ERROR).await;
            }
        }
        asked_at = Instant::now();
    }
    tally
}

#[cfg(test)]
mod tests;
