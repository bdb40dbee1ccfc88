//! A caller of shares of slots.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_sdk::{Basis, Grant, LimitError, Outcome, Request};
use tokio::time::{Instant, sleep, timeout};

use super::{Manner, names};
use crate::callers::Need;
use crate::ledger::COMMON;
use crate::liveness::{Public, Stopwatch};
use crate::process::Process;
use crate::products::{SHARES, UNKNOWN};
use crate::record::Grip;
use crate::row::Micros;
use crate::universe::Universe;
use crate::waits::Wait;

pub(super) struct Caller {
    pub(super) universe: Arc<Universe>,
    pub(super) process: Process,
    /// The share of calls that name none.
    pub(super) default: Option<&'static str>,
    pub(super) rng: Rng,
    pub(super) manner: Manner,
}

impl Caller {
    pub(super) async fn live(mut self) {
        while !self.universe.is_over() && self.process.is_alive() {
            let share = self.share();
            let mut parts =
                names().map(|name| (name, if self.is_orderly() { 1 } else { self.rng.i32(1..=2) })).to_vec();
            self.rng.shuffle(&mut parts);
            if self.is_orderly() || self.rng.u32(0..6) > 0 {
                parts.truncate(1);
            }
            let need = Need { parts, concurrent: true };
            match self.rng.u32(0..10) {
                0 if !self.is_orderly() => self.cools_down(&need).await,
                0..=4 => self.acquire(&need, share).await,
                _ => self.slot(&need, share).await,
            }
            sleep(Duration::from_millis(self.rng.u64(0..self.manner.pause()))).await;
        }
    }

    fn is_orderly(&self) -> bool {
        self.manner == Manner::Orderly
    }

    /// A share that the bucket has or had, one that it never had, that of the process, or none.
    fn share(&mut self) -> Option<&'static str> {
        match self.rng.u32(0..8) {
            0 => Some(UNKNOWN),
            1 => Some(COMMON),
            2 => None,
            _ => self.rng.choice(SHARES),
        }
    }

    fn request(need: &Need, share: Option<&'static str>) -> Request<'static> {
        let names: Vec<String> = need.parts.iter().map(|(name, _)| name.clone()).collect();
        let request = Request::from(names);
        let request =
            need.parts.iter().fold(request, |request, (name, cost)| request.cost(name.clone(), *cost));
        share.map_or(request.clone(), |share| request.share(share))
    }

    fn watch(&self, call: Public) -> Stopwatch {
        Stopwatch::of(&self.universe, &self.process, call)
    }

    async fn acquire(&mut self, need: &Need, share: Option<&'static str>) {
        let asked_at = self.universe.time();
        let client = self.process.client.clone();
        let asked = self.watch(Public::Acquire).on(client.acquire(Self::request(need, share)));
        let asked = match self.rng.u32(0..12) {
            0 => timeout(Duration::from_millis(self.rng.u64(0..60)), asked).await.ok(),
            _ => Some(asked.await),
        };
        match asked {
            Some(Ok(Outcome::Granted(grant))) if grant.basis() == Basis::Table => {
                let ends = grant.lease_ends().map_or(i64::MAX, |ends| ends.micros());
                let paid: Vec<_> =
                    need.parts.iter().map(|(name, _)| grant.paid_from(name).map(str::to_owned)).collect();
                let start = grant.start_at().micros();
                let end = self.granted(need, share, &paid, (asked_at, ends, false), start);
                self.hold(end, grant).await;
            }
            Some(Ok(Outcome::RetryIn(retry))) => {
                sleep(retry.wait().min(Duration::from_secs(2)).mul_f64(self.rng.f64())).await;
            }
            _ => {}
        }
    }

    async fn hold(&mut self, end: Ended, grant: Grant) {
        sleep(self.work()).await;
        match self.rng.u32(0..12) {
            0 if !self.is_orderly() => {
                // The crash that the reconciler is for.
                end.never();
                return std::mem::forget(grant);
            }
            1 => {
                drop(end);
                return drop(grant);
            }
            _ => {}
        }
        drop(end);
        let _ = self.watch(Public::Release).on(grant.release()).await;
    }

    fn work(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(0..self.manner.work()))
    }

    /// Waits, through whatever becomes of the share.
    async fn slot(&mut self, need: &Need, share: Option<&'static str>) {
        let (asked_at, asked) = (self.universe.time(), Instant::now());
        let patience = Duration::from_millis(self.rng.u64(self.manner.patience()));
        let work = self.work();
        let leaves = !self.is_orderly() && self.rng.u32(0..4) == 0;
        let leaves_after = leaves.then(|| Duration::from_millis(self.rng.u64(0..4_000)));
        let ttl = i64::try_from(self.universe.scenario.lease_ttl.as_micros()).unwrap();
        let ends = Grip::slot_lease(asked_at, ttl, self.universe.scenario.clock_error);
        let slot = self.process.client.slot(Self::request(need, share)).max_wait(patience);
        let (bound, wait) = (self.watch(Public::Slot(patience, work)), Wait::begins(patience));
        let run = slot.run(async |slot| {
            if slot.basis() == Basis::Table {
                let paid: Vec<_> =
                    need.parts.iter().map(|(name, _)| slot.paid_from(name).map(str::to_owned)).collect();
                let start = slot.start_at().micros();
                let _end = self.granted(need, share, &paid, (asked_at, ends, true), start);
                sleep(work).await;
            }
            Ok::<_, LimitError>(())
        });
        let run = bound.on(run);
        let outcome = match leaves_after {
            Some(after) => timeout(after, run).await.ok(),
            None => Some(run.await),
        };
        if !matches!(outcome, Some(Ok(()))) {
            let now = self.universe.time();
            self.universe.record(|record| {
                record.left_share(&self.process.name, &need.parts, share.or(self.default), asked_at, now)
            });
        }
        if let Some(Err(error)) = &outcome {
            wait.judge((&self.universe, &self.process), Some(error), false);
        }
        if self.is_orderly() {
            self.universe.count("judged: a caller of a share is not passed over");
            if !matches!(outcome, Some(Ok(()))) {
                let (who, waited) = (&self.process.name, asked.elapsed());
                self.universe
                    .violated(format!("{who} of {share:?} waited {waited:?} for {need:?}: {outcome:?}"));
            }
        }
        if let Some(Err(LimitError::Refused(retry))) = outcome {
            sleep(retry.wait().min(Duration::from_secs(1)).mul_f64(self.rng.f64())).await;
        }
    }

    async fn cools_down(&mut self, need: &Need) {
        let pause = Duration::from_millis(self.rng.u64(20..=1_000));
        let (bucket, from) = (&need.parts[0].0, self.universe.time());
        let _ = self.watch(Public::CoolDown).on(self.process.client.cool_down(bucket, pause)).await;
        let ends = self.universe.time() + Micros::try_from(pause.as_micros()).unwrap();
        self.universe.record(|record| record.cools_down(bucket, from, ends));
    }

    /// Books a grant: each part on the line that it says. What is of another line was borrowed, and its write
    /// says so.
    fn granted(
        &self,
        need: &Need,
        share: Option<&'static str>,
        paid: &[Option<String>],
        (asked_at, lease_ends, booked): (Micros, i64, bool),
        start_at: i64,
    ) -> Ended {
        let now = self.universe.time();
        for ((bucket, _), line) in need.parts.iter().zip(paid) {
            let Some(line) = line else {
                self.universe
                    .violated(format!("{bucket}: a grant of {} does not say its line", self.process.name));
                continue;
            };
            let share = share.or(self.default);
            let own =
                self.universe.ledger(|ledger| ledger.own_line(bucket, share, asked_at).map(str::to_owned));
            let row = if line == COMMON { bucket.clone() } else { format!("{bucket}@{line}") };
            let is_told =
                || self.universe.ledger(|ledger| ledger.has_borrowed(&self.process.name, &row, asked_at));
            if own.is_some_and(|own| own != *line) && !is_told() {
                let who = &self.process.name;
                self.universe
                    .violated(format!("{row}: {who} of {share:?} has a slot of it, and did not borrow it"));
            }
        }
        let grip = Grip { asked_at, start_at, lease_ends, booked, redeemed: false, transacted: true };
        let id = self.universe.record(|record| {
            let id = record.granted(&self.process.name, need, now, grip, asked_at);
            let paid = need.parts.iter().zip(paid).map(|((name, _), line)| (name.as_str(), line.as_deref()));
            record.paid(&id, share.or(self.default), paid);
            id
        });
        Ended { universe: Arc::clone(&self.universe), id: Some(id) }
    }
}

/// Writes the end of a call into the history, however it ends.
struct Ended {
    universe: Arc<Universe>,
    id: Option<String>,
}

impl Ended {
    /// Nobody releases it.
    fn never(mut self) {
        self.id = None;
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.universe.record(|record| record.released(&id, self.universe.time()));
        }
    }
}
