//! What product code does: acquire, slots, cancellations, and every way to end badly.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use sluice_sdk::{Basis, Grant, Outcome, Request, SlotBuilder, SlotError};
use tokio::time::{sleep, timeout};

use crate::process::Process;
use crate::record::Grip;
use crate::row::Micros;
use crate::scenario::BucketPlan;
use crate::universe::Universe;

/// Nothing takes longer: not an acquire under the worst of faults, nor a slot with the longest timeout.
const NO_HANG: Duration = Duration::from_secs(120);

/// Refused, a call gives back what it took within this time.
const REFILLED_SOON: Micros = 2_000_000;

/// A call's needs: buckets, and what it takes of each.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) parts: Vec<(String, i32)>,
    concurrent: bool,
}

/// One caller of a process, until the run is over or the process dies.
pub(crate) struct Caller {
    pub(crate) universe: Arc<Universe>,
    pub(crate) process: Process,
    pub(crate) rng: Rng,
    /// Whether its process writes leases for rate buckets too.
    pub(crate) has_leases: bool,
}

impl Caller {
    pub(crate) async fn live(mut self) {
        while !self.universe.is_over() && self.process.is_alive() {
            let need = self.need();
            self.universe.act("a call begins", &format!("{} wants {:?}", self.process.name, need.parts));
            let call = async {
                match self.rng.u32(0..10) {
                    0..=3 => self.acquire(&need).await,
                    4..=8 => self.slot(&need).await,
                    _ => self.long_slot(&need).await,
                }
            };
            if timeout(NO_HANG, call).await.is_err() {
                self.universe.violated(format!("{}: a call on {:?} did not end", self.process.name, need.parts));
            }
            sleep(Duration::from_millis(self.rng.u64(0..300))).await;
        }
    }

    fn need(&mut self) -> Need {
        let buckets = &self.universe.scenario.buckets;
        let many =
            if self.universe.scenario.together && self.rng.bool() { self.rng.usize(1..=buckets.len()) } else { 1 };
        // A slot among them makes one transaction of it; rates alone are taken side by side.
        let rates_alone = many > 1 && self.rng.bool();
        let mut chosen: Vec<&BucketPlan> =
            buckets.iter().filter(|bucket| !rates_alone || !bucket.is_concurrent()).collect();
        self.rng.shuffle(&mut chosen);
        chosen.truncate(many);
        let concurrent = chosen.iter().any(|bucket| bucket.is_concurrent());
        let parts = chosen.iter().map(|bucket| (bucket.name().to_owned(), self.rng.i32(1..=bucket.most))).collect();
        Need { parts, concurrent }
    }

    async fn acquire(&mut self, need: &Need) {
        let asked_at = self.universe.time();
        let dying = self.dies_at();
        let acquire = Dying::new(self.process.client.acquire(need.request()), dying);
        let Some(answer) = acquire.await else {
            self.universe.act("dropped at an await", &format!("{}: acquire", self.process.name));
            return self.came_to_nothing(need);
        };
        match answer {
            Ok(Outcome::Granted(grant)) if grant.basis() == Basis::Table => self.hold(need, asked_at, grant).await,
            Ok(Outcome::Granted(grant)) => {
                self.universe.act("granted without the table", &format!("{:?}", grant.basis()));
                self.came_to_nothing(need);
                let _ = grant.release().await;
            }
            Ok(Outcome::RetryIn(retry)) => {
                if need.parts.len() > 1 {
                    self.came_to_nothing(need);
                }
                let wait = retry.wait().min(Duration::from_secs(3));
                sleep(wait.mul_f64(self.rng.f64())).await;
            }
            Err(error) => self.failed(need, &error.to_string()),
        }
    }

    /// Calls the vendor under a grant, and ends as calls do.
    async fn hold(&mut self, need: &Need, asked_at: Micros, mut grant: Grant) {
        let lease_ends = grant.lease_ends().map_or(i64::MAX, |ends| ends.micros());
        let transacted = grant.lease_ends().is_some();
        let id = self.granted(
            need,
            Grip { asked_at, start_at: grant.start_at().micros(), lease_ends, booked: false, transacted },
        );
        let call = Duration::from_millis(self.rng.u64(0..1_500));
        match self.rng.u32(0..20) {
            0..=10 => sleep(call).await,
            // Beyond its lease: whoever needs the slot may have it by then.
            11 if need.concurrent => {
                self.abandons(need);
                sleep(self.universe.scenario.lease_ttl * 3).await;
            }
            12 | 13 => {
                for _ in 0..self.rng.u32(1..5) {
                    sleep(self.universe.scenario.lease_ttl.mul_f64(0.6)).await;
                    self.universe.act("renewal", &self.process.name);
                    let _ = grant.renew().await;
                }
            }
            14 | 15 => {
                self.universe.record(|record| record.released(&id, self.universe.time()));
                return drop(grant);
            }
            16 if need.concurrent => {
                // The crash that the reconciler is for.
                self.universe.act("holder vanishes", &self.process.name);
                self.abandons(need);
                return std::mem::forget(grant);
            }
            _ => {}
        }
        self.universe.record(|record| record.released(&id, self.universe.time()));
        let release = Dying::new(grant.release(), self.dies_at());
        if release.await.is_none() {
            self.universe.act("dropped at an await", &format!("{}: release", self.process.name));
        }
    }

    /// Leaves the leases of a call to whoever sweeps.
    fn abandons(&self, need: &Need) {
        let has_lease = |name: &String| {
            self.has_leases || self.universe.scenario.bucket(name).is_some_and(BucketPlan::is_concurrent)
        };
        let parts = u64::try_from(need.parts.iter().filter(|(name, _)| has_lease(name)).count()).unwrap();
        self.universe.ledger(|ledger| *ledger.abandoned.entry(self.process.name.to_string()).or_default() += parts);
    }

    async fn slot(&mut self, need: &Need) {
        let patience = Duration::from_millis(self.rng.u64(200..=6_000));
        let slot = self.process.client.slot(need.request()).timeout(patience);
        let call = Duration::from_millis(self.rng.u64(0..1_000));
        let gives_up_after = (self.rng.u32(0..3) == 0).then(|| Duration::from_millis(self.rng.u64(0..5_000)));
        self.run(need, slot, patience, call, gives_up_after).await;
    }

    /// Held as long as the call takes, beyond its lease: renewed meanwhile.
    async fn long_slot(&mut self, need: &Need) {
        let patience = Duration::from_secs(self.rng.u64(1..=4));
        let slot = self.process.client.slot(need.request()).timeout(patience).hold_until_done();
        let call = self.universe.scenario.lease_ttl.mul_f64(self.rng.f64() * 3.0);
        // What is known of its lease is that it was written for the usual time.
        self.run(need, slot, Duration::ZERO, call, None).await;
    }

    async fn run(
        &mut self,
        need: &Need,
        slot: SlotBuilder,
        timeout_known: Duration,
        call: Duration,
        gives_up_after: Option<Duration>,
    ) {
        let asked_at = self.universe.time();
        let fails = self.rng.u32(0..6) == 0;
        let dies_at = self.dies_at();
        let begun = AtomicBool::new(false);
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap();
        let (timeout_known, ttl) = (micros(timeout_known), micros(self.universe.scenario.lease_ttl));
        let lease_ends = Grip::slot_lease(asked_at, timeout_known, ttl, self.universe.scenario.clock_error);
        let run = slot.run(async |slot| {
            begun.store(true, Ordering::SeqCst);
            let start_at = slot.start_at().micros();
            let grip = Grip { asked_at, start_at, lease_ends, booked: true, transacted: self.has_leases };
            let id = match slot.basis() {
                Basis::Table => Some(self.granted(need, grip)),
                _ => {
                    self.came_to_nothing(need);
                    None
                }
            };
            let _end = Ended { universe: &self.universe, id };
            sleep(call).await;
            if fails { Err(std::io::Error::other("the vendor failed")) } else { Ok(()) }
        });
        let outcome = match gives_up_after {
            Some(after) => timeout(after, run).await.ok(),
            None => Dying::new(run, dies_at).await,
        };
        match outcome {
            None => self.universe.act("slot dropped", &self.process.name),
            Some(Err(SlotError::Acquire(error))) => self.failed(need, &error.to_string()),
            Some(_) => {}
        }
        if !begun.load(Ordering::SeqCst) {
            let now = self.universe.time();
            self.universe.record(|record| record.left(&self.process.name, need, asked_at, now));
        }
        // Of several buckets, what one gave may flow back while another is asked again. A single booking that is dropped before
        // its start has no excuse: it must be given back.
        if need.parts.len() > 1 {
            self.came_to_nothing(need);
        }
    }

    /// Books a grant that its caller has in hand; returns its name in the history.
    fn granted(&self, need: &Need, grip: Grip) -> String {
        let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
        let mut shared = false;
        for (name, cost) in &need.parts {
            let cost = i128::from(*cost) * 1_000_000;
            let balance = self.universe.ledger(|ledger| {
                let account = ledger.account(&self.process.name, name);
                if self.universe.scenario.bucket(name).is_some_and(|bucket| !bucket.is_concurrent()) {
                    account.kept += cost;
                    if need.parts.len() == 1 && !self.has_leases {
                        shared |= account.told_start(name, (Micros::from(grip.start_at), cost), now, error)? > 1;
                    }
                }
                account.balance(&self.process.name, name)
            });
            self.universe.check(balance);
        }
        if shared {
            self.universe.count("one write, several callers");
        }
        self.universe.record(|record| record.granted(&self.process.name, need, now, grip))
    }

    /// A request that may have taken something, of which nothing was used. What flows back by itself in a moment is not given
    /// back; the rest has no excuse.
    fn came_to_nothing(&self, need: &Need) {
        self.universe.ledger(|ledger| {
            for (name, cost) in &need.parts {
                let flows_back = ledger.bucket(name).map_or(0, |row| row.flows_back_in(REFILLED_SOON));
                let cost = Micros::from(*cost) * 1_000_000;
                // A return may find the bucket full, and is then not sent at all.
                ledger.account(&self.process.name, name).excused += if flows_back >= cost { cost } else { 0 };
            }
        });
    }

    fn failed(&self, need: &Need, error: &str) {
        self.universe.act("call failed", &format!("{}: {error}", self.process.name));
        self.universe.ledger(|ledger| {
            for (name, cost) in &need.parts {
                ledger.account(&self.process.name, name).excused += Micros::from(*cost) * 1_000_000;
            }
        });
    }

    /// The poll at which a future dies: most live.
    fn dies_at(&mut self) -> Option<u32> {
        (self.rng.u32(0..12) == 0).then(|| self.rng.u32(1..8))
    }
}

impl Need {
    fn request(&self) -> Request<'_> {
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| name.as_str()).collect();
        self.parts.iter().fold(Request::from(names), |request, (name, cost)| request.cost(name.as_str(), *cost))
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

/// A future that is dropped at one of its awaits.
struct Dying<F> {
    future: Option<Pin<Box<F>>>,
    polls_left: Option<u32>,
}

impl<F: Future> Dying<F> {
    fn new(future: F, polls_left: Option<u32>) -> Self {
        Self { future: Some(Box::pin(future)), polls_left }
    }
}

impl<F: Future> Future for Dying<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(left) = &mut self.polls_left {
            if *left == 0 {
                self.future = None;
                return Poll::Ready(None);
            }
            *left -= 1;
        }
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // One that waits for nothing but one event would never be polled again to die.
            Poll::Pending => {
                if self.polls_left == Some(0) {
                    self.future = None;
                    return Poll::Ready(None);
                }
                Poll::Pending
            }
        }
    }
}
