//! A process that wants all slots of a bucket, again and again: whatever a crashed holder has, it is refused
//! for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_sdk::{Outcome, Request, RetryReason};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::process::{Process, Role};
use crate::row::Micros;
use crate::scenario::BucketPlan;
use crate::universe::Universe;

/// What the names of such processes begin with.
pub(crate) const NAME: &str = "asking";

/// From the beginning of a wait until its first refusal, where nothing goes wrong.
const REFUSED_BY: Micros = 300_000;

pub(crate) fn begin(universe: &Arc<Universe>, bucket: &BucketPlan, rng: &mut Rng, tasks: &mut JoinSet<()>) {
    let (leases, unavailable) = universe.scenario.settings(rng);
    let ttl = universe.scenario.lease_ttl;
    // An id of a lease holds no #.
    let name = format!("{NAME}-{}", bucket.name().replace('#', "-"));
    let process = universe.process(&name, Role::Process, |client| {
        client.leases(leases).on_unavailable(unavailable).lease_ttl(ttl)
    });
    let most = universe.scenario.clock_error;
    process.set_clock_error(rng.i64(-most..=most));
    let waits = rng.bool();
    let asking =
        Asking { universe: Arc::clone(universe), process, bucket: bucket.name().to_owned(), rng: rng.fork() };
    tasks.spawn(asking.live(waits));
}

struct Asking {
    universe: Arc<Universe>,
    process: Process,
    bucket: String,
    rng: Rng,
}

impl Asking {
    async fn live(mut self, waits: bool) {
        while !self.universe.is_over() {
            let capacity = self.universe.ledger(|ledger| ledger.bucket(&self.bucket).map(|row| row.capacity));
            let all = i32::try_from(capacity.unwrap_or_default() / 1_000_000).unwrap();
            let request = || Request::from(self.bucket.as_str()).cost(self.bucket.as_str(), all);
            if waits {
                let slot = self.process.client.slot(request()).timeout(Duration::from_secs(3));
                self.while_it_waits(slot.run(async |_| Ok::<(), sluice_sdk::LimitError>(()))).await;
            } else {
                match timeout(Duration::from_secs(60), self.process.client.acquire(request())).await {
                    Ok(Ok(Outcome::Granted(grant))) => drop(grant.release().await),
                    Ok(Ok(Outcome::RetryIn(retry))) if retry.reason() == RetryReason::NoFreeSlot => {
                        self.is_refused()
                    }
                    Ok(_) => {}
                    Err(_) => {
                        self.universe.violated(format!("{}: an acquire did not end", self.process.name))
                    }
                }
            }
            // Whoever else wants some has a chance.
            sleep(Duration::from_millis(self.rng.u64(100..=900))).await;
        }
    }

    fn is_refused(&self) {
        let now = self.universe.time();
        self.universe.ledger(|ledger| ledger.asks(&self.process.name, &self.bucket, now));
    }

    fn refused_by(&self) -> Micros {
        REFUSED_BY + Micros::try_from(self.universe.scenario.conditions.slack(3).as_micros()).unwrap()
    }

    /// Who stands in line is refused at each look, as long as there are too few slots and no cool-down.
    async fn while_it_waits(&self, wait: impl Future) {
        let began = self.universe.time();
        let mut wait = pin!(wait);
        loop {
            tokio::select! {
                biased;
                _ = &mut wait => return,
                () = sleep(Duration::from_millis(200)) => {}
            }
            let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
            let is_full = self.universe.ledger(|ledger| {
                let row = ledger.bucket(&self.bucket)?;
                Some(row.tokens < row.capacity && row.blocked_until.unwrap_or_default() + error < now)
            });
            if is_full == Some(true) && now - began > self.refused_by() {
                self.is_refused();
            }
        }
    }
}
