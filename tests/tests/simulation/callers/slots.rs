//! Calls in a slot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_sdk::{Basis, LimitError, SlotBuilder};
use tokio::time::{sleep, timeout};

use super::{Caller, Dying, Need};
use crate::liveness::Public;
use crate::record::Grip;
use crate::universe::Universe;
use crate::waits::Wait;

/// What a call does under a slot when its vendor has answered: it observes the reply, at most.
const LONGEST_ANSWERS: Duration = Duration::from_secs(25);

impl Caller {
    pub(super) async fn slot(&mut self, need: &Need) {
        let patience = Duration::from_millis(self.rng.u64(200..=6_000));
        let slot = self.process.client.slot(need.request()).timeout(patience);
        let call = Duration::from_millis(self.rng.u64(0..1_000));
        let gives_up_after = (self.rng.u32(0..3) == 0).then(|| Duration::from_millis(self.rng.u64(0..5_000)));
        self.run(need, slot, (patience, true), call, gives_up_after).await;
    }

    /// Held as long as the call takes, beyond its lease: renewed meanwhile.
    pub(super) async fn long_slot(&mut self, need: &Need) {
        let patience = Duration::from_secs(self.rng.u64(1..=4));
        let slot = self.process.client.slot(need.request()).max_wait(patience);
        let call = self.universe.scenario.lease_ttl.mul_f64(self.rng.f64() * 3.0);
        self.run(need, slot, (patience, false), call, None).await;
    }

    /// `patience` is the timeout of the slot, by which its work ends too, or only its wait.
    async fn run(
        &mut self,
        need: &Need,
        slot: SlotBuilder,
        (patience, ends_by_then): (Duration, bool),
        call: Duration,
        gives_up_after: Option<Duration>,
    ) {
        let ends_within = ends_by_then.then_some(patience);
        let asked_at = self.universe.time();
        let fails = self.rng.u32(0..6) == 0;
        let dies_at = self.dies_at();
        let mut rng = self.rng.fork();
        let begun = AtomicBool::new(false);
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap();
        let ttl = micros(self.universe.scenario.lease_ttl);
        let lease_ends = Grip::slot_lease(asked_at, ttl, self.universe.scenario.clock_error);
        let longest = LONGEST_ANSWERS * 2 * u32::try_from(need.parts.len()).unwrap();
        let bound = match ends_within {
            Some(patience) => Public::Slot(patience, Duration::ZERO),
            None => Public::Slot(patience, call + longest),
        };
        let (watch, wait) = (self.watch(bound), Wait::begins(patience));
        let run = slot.run(async |slot| {
            begun.store(true, Ordering::SeqCst);
            let start_at = slot.start_at().micros();
            let grip = Grip {
                asked_at,
                start_at,
                lease_ends,
                booked: true,
                redeemed: false,
                transacted: self.has_leases,
            };
            let id = match slot.basis() {
                Basis::Table => Some(self.granted(need, grip)),
                _ => {
                    self.came_to_nothing(need);
                    None
                }
            };
            let end = Ended { universe: &self.universe, id };
            let used = self.calls_vendors_by(need, &mut rng);
            sleep(call).await;
            if let Some(id) = &end.id {
                self.hears_in_slot(&slot, &used, &mut rng).await;
                let told = self.says_what_it_used(id, &slot, &used, &mut rng);
                if fails {
                    self.fails(id, need, &used, &told);
                }
            }
            if fails { Err(CallError::Vendor) } else { Ok(()) }
        });
        let run = watch.on(run);
        let outcome = match gives_up_after {
            Some(after) => timeout(after, run).await.ok(),
            None => Dying::new(run, dies_at).await,
        };
        if let Some(Err(CallError::Limit(error))) = outcome.as_ref().filter(|_| !begun.load(Ordering::SeqCst))
        {
            wait.judge((&self.universe, &self.process), Some(error), self.answers_alone);
        }
        match outcome {
            None => self.universe.act("slot dropped", &self.process.name),
            Some(Err(CallError::Limit(LimitError::Acquire(error)))) => self.failed(need, &error.to_string()),
            Some(_) => {}
        }
        if !begun.load(Ordering::SeqCst) {
            let now = self.universe.time();
            self.universe.record(|record| record.left(&self.process.name, need, asked_at, now));
        }
        // Of several buckets, what one gave may flow back while another is asked again. A single booking that
        // is dropped before its start has no excuse: it must be given back.
        if need.parts.len() > 1 {
            self.came_to_nothing(need);
        }
    }
}

/// How a call in a slot failed.
enum CallError {
    Vendor,
    Limit(LimitError),
}

impl From<LimitError> for CallError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

/// Writes the end of a slot's call into the history, however it ends.
struct Ended<'a> {
    universe: &'a Universe,
    id: Option<String>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.universe.record(|record| record.released(&id, self.universe.time()));
        }
    }
}
