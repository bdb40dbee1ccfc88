//! Buckets that are removed in the middle of the run and made anew: with the limit that they had, with
//! another, or as another type. Meanwhile callers hold grants of the one before, wait in line for it, carry
//! its tickets, and settle.
//!
//! Promised, and judged here: each life of a rate bucket holds its window bound by itself, from the moment on
//! at which it was made (calls count for the life whose tokens they took, told by the write, and tickets for
//! the life that they were booked in); a bucket is unknown for two seconds at most after it was made; every
//! call returns within its bound. The rest is the ledger's (`ledger/births.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_sdk::{AcquireError, Grant, Leases, LimitError, Outcome, Redeemed, Request, RetryIn, Ticket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::account::{Teller, Told};
use crate::callers::Need;
use crate::conditions::stream;
use crate::ledger::{MORTAL, name_of_life};
use crate::liveness::{Public, Stopwatch};
use crate::process::{Process, Role};
use crate::record::Grip;
use crate::row::Micros;
use crate::universe::Universe;

/// That a bucket is not there is remembered for a second, and told by a reply that took up to another.
const UNKNOWN_FOR: Micros = 2_100_000;

const WORK: Duration = Duration::from_millis(1_500);

fn names() -> [String; 2] {
    ["a", "b"].map(|name| format!("{MORTAL}{name}"))
}

/// Founds the buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    if universe.scenario.lulls || !universe.scenario.conditions.rebirths {
        return;
    }
    let mut rng = stream(universe.scenario.seed, "who is made anew");
    for name in names() {
        let limit = limit(&mut rng);
        universe
            .undisturbed(operator.client.ops().apply_limit(&Dimension::new(&name).unwrap(), &limit))
            .await
            .unwrap();
    }
    let sexton = universe.process("sexton", Role::Operator, |client| client);
    tasks.spawn(removes_and_makes(Arc::clone(universe), sexton, rng.fork()));
    let queue = Arc::default();
    for at in 0..rng.u32(2..=3) {
        let leases = if rng.bool() { Leases::Inline } else { Leases::Concurrent };
        let ttl = universe.scenario.lease_ttl * 2;
        // Whoever it leaves leases to, others sweep.
        let process = universe.process(&format!("mortal-{at}"), Role::Customer, |client| {
            client.leases(leases).self_heal(false).lease_ttl(ttl)
        });
        let most = universe.scenario.clock_error;
        process.set_clock_error(rng.i64(-most..=most));
        for _ in 0..rng.u32(1..=2) {
            let (universe, process, queue) = (Arc::clone(universe), process.clone(), Arc::clone(&queue));
            tasks.spawn(Caller { universe, process, rng: rng.fork(), queue }.live());
        }
    }
}

fn limit(rng: &mut Rng) -> Limit {
    if rng.bool() {
        return Limit::concurrent(Amount::from_tokens(rng.i32(1..=3)), Cost::ONE).unwrap();
    }
    let capacity = Amount::from_tokens(rng.i32(1..=4));
    let refill = Rate::per(capacity, Duration::from_millis(rng.u64(500..=8_000))).unwrap();
    Limit::rate(LimitType::Requests, capacity, refill, Cost::ONE).unwrap()
}

/// Removes buckets, makes them anew soon or late, and at times changes a limit as others do.
async fn removes_and_makes(universe: Arc<Universe>, operator: Process, mut rng: Rng) {
    let mut limits: Vec<(Dimension, Option<Limit>)> =
        names().iter().map(|name| (Dimension::new(name).unwrap(), None)).collect();
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(500..=9_000))).await;
        let (bucket, before) = rng.choice(&mut limits).unwrap();
        if rng.u32(0..6) == 0 {
            // Another limit of its type, or an error.
            let _ = operator.client.ops().apply_limit(bucket, &limit(&mut rng)).await;
            continue;
        }
        universe.act("someone removes a bucket", bucket.as_str());
        let _ = operator.client.ops().remove_bucket(bucket).await;
        let away = if rng.bool() { rng.u64(0..=100) } else { rng.u64(100..=6_000) };
        sleep(Duration::from_millis(away)).await;
        // The same as before, now and then.
        let limit = before.filter(|_| rng.u32(0..3) == 0).unwrap_or_else(|| limit(&mut rng));
        *before = Some(limit);
        universe.act("someone makes a bucket", &format!("{bucket} {limit:?}"));
        while operator.client.ops().bucket(bucket).await.is_ok_and(|row| row.is_none()) && !universe.is_over()
        {
            if operator.client.ops().apply_limit(bucket, &limit).await.is_err() {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// A ticket on its way.
#[derive(Clone, Debug)]
struct Carried {
    ticket: Ticket,
    bucket: String,
    cost: i32,
    asked_at: Micros,
    life: usize,
}

struct Caller {
    universe: Arc<Universe>,
    process: Process,
    rng: Rng,
    queue: Arc<Mutex<VecDeque<Carried>>>,
}

impl Caller {
    async fn live(mut self) {
        while !self.universe.is_over() {
            let [one, other] = names();
            let (bucket, cost) =
                (if self.rng.bool() { one.clone() } else { other.clone() }, self.rng.i32(1..=2));
            match self.rng.u32(0..12) {
                0..=3 => self.acquire(&bucket, cost, None).await,
                4..=6 => self.slot(&bucket, cost).await,
                7 => {
                    let within = Duration::from_millis(self.rng.u64(200..=4_000));
                    self.acquire(&bucket, cost, Some(within)).await;
                }
                8 | 9 => self.redeem().await,
                10 => self.takes_both(&one, &other).await,
                _ => self.is_told_to_pause(&bucket).await,
            }
            sleep(Duration::from_millis(self.rng.u64(0..400))).await;
        }
    }

    fn watch(&self, call: Public) -> Stopwatch {
        Stopwatch::of(&self.universe, &self.process, call)
    }

    /// Which life a bucket is in.
    fn life(&self, bucket: &str) -> Option<(usize, bool)> {
        let now = self.universe.time();
        self.universe.ledger(|ledger| ledger.life_at(bucket, now))
    }

    async fn acquire(&mut self, bucket: &str, cost: i32, ticket_within: Option<Duration>) {
        let (asked_at, life) = (self.universe.time(), self.life(bucket));
        let request = Request::from(vec![bucket]).cost(bucket, cost);
        let request = ticket_within.map_or(request.clone(), |within| request.ticket_within(within));
        let client = self.process.client.clone();
        let asked = self.watch(Public::Acquire).on(client.acquire(request));
        let asked = match self.rng.u32(0..10) {
            0 => timeout(Duration::from_millis(self.rng.u64(0..60)), asked).await.ok(),
            _ => Some(asked.await),
        };
        match asked {
            Some(Ok(Outcome::Granted(grant))) => {
                let id = self.granted(bucket, cost, (asked_at, life), grant.start_at().micros());
                self.hold(bucket, cost, id, grant).await;
            }
            Some(Ok(Outcome::RetryIn(retry))) => {
                self.carries(bucket, cost, (asked_at, life), &retry);
                sleep(retry.wait().min(Duration::from_secs(2)).mul_f64(self.rng.f64())).await;
            }
            Some(Err(error)) => self.is_unknown_for_a_reason(bucket, asked_at, &error),
            None => {}
        }
    }

    /// Waits in line, through whatever becomes of the bucket.
    async fn slot(&mut self, bucket: &str, cost: i32) {
        let (asked_at, life) = (self.universe.time(), self.life(bucket));
        let patience = Duration::from_millis(self.rng.u64(200..=5_000));
        let slot = self.process.client.slot(Request::from(vec![bucket]).cost(bucket, cost)).timeout(patience);
        let work = WORK.mul_f64(self.rng.f64());
        let leaves_after = (self.rng.u32(0..4) == 0).then(|| Duration::from_millis(self.rng.u64(0..4_000)));
        let run = slot.run(async |slot| {
            self.granted(bucket, cost, (asked_at, life), slot.start_at().micros());
            sleep(work).await;
            Ok::<_, LimitError>(())
        });
        let run = self.watch(Public::Slot(patience, Duration::ZERO)).on(run);
        let outcome = match leaves_after {
            Some(after) => timeout(after, run).await.ok(),
            None => Some(run.await),
        };
        if let Some(Err(LimitError::Acquire(error))) = outcome {
            self.is_unknown_for_a_reason(bucket, asked_at, &error);
        }
    }

    /// All or nothing, of buckets that may be of different types, and may become it.
    async fn takes_both(&mut self, one: &str, other: &str) {
        let request = Request::from(vec![one, other]);
        let client = self.process.client.clone();
        let patience = Duration::from_millis(self.rng.u64(200..=3_000));
        if self.rng.bool() {
            let slot = client.slot(request).timeout(patience).run(async |_| Ok::<_, LimitError>(()));
            let _ = self.watch(Public::Slot(patience, Duration::ZERO)).on(slot).await;
        } else if let Ok(Outcome::Granted(grant)) =
            self.watch(Public::Acquire).on(client.acquire(request)).await
        {
            sleep(WORK.mul_f64(self.rng.f64())).await;
            let _ = self.watch(Public::Release).on(grant.release()).await;
        }
    }

    /// Holds a grant for a while, over the end of its bucket at times, and ends as calls do.
    async fn hold(&mut self, bucket: &str, cost: i32, id: Option<(String, usize)>, mut grant: Grant) {
        sleep(Duration::from_millis(self.rng.u64(0..3_000))).await;
        let is_slot = grant.lease_ends().is_some();
        match self.rng.u32(0..8) {
            // Its lease ends, and a sweep finds it.
            0 if is_slot => return std::mem::forget(grant),
            1 => return drop(grant),
            2 if is_slot => drop(self.watch(Public::Renew(1)).on(grant.renew()).await),
            3..=6 if !is_slot => self.settles(bucket, cost, id, &mut grant).await,
            _ => {}
        }
        let _ = self.watch(Public::Release).on(grant.release()).await;
    }

    /// Of what it took it used half, or half more.
    async fn settles(&mut self, bucket: &str, cost: i32, id: Option<(String, usize)>, grant: &mut Grant) {
        let (cost, now) = (Micros::from(cost) * 1_000_000, self.universe.time());
        let used = if self.rng.bool() { cost / 2 } else { cost + cost / 2 };
        if let Some((id, life)) = &id {
            let name = name_of_life(bucket, *life);
            self.universe.record(|record| record.settled(id, &name, used.min(cost), now));
            if self.life(bucket).is_none_or(|(now, _)| now != *life) {
                self.universe.count("a settle of a call of a bucket that is gone");
            }
        }
        self.universe
            .ledger(|ledger| ledger.account(&self.process.name, bucket).settles((cost - used).max(0)));
        let used = Amount::from_micros(used.try_into().unwrap());
        let _ = self.watch(Public::Settle).on(grant.settle(bucket, used)).await;
    }

    /// Books tokens in the history, as of the life whose write took them; its name there, and that life.
    fn granted(
        &self,
        bucket: &str,
        cost: i32,
        (asked_at, life): (Micros, Option<(usize, bool)>),
        start_at: i64,
    ) -> Option<(String, usize)> {
        // Whether it was of tokens or of slots is not known where that changed meanwhile.
        let (_, is_of_slots) = life.filter(|life| self.life(bucket) == Some(*life))?;
        if is_of_slots {
            return None;
        }
        let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
        let told = Told { at: start_at.into(), cost: Micros::from(cost) * 1_000_000, now, by: Teller::Grant };
        let (taken_at, life) = taken_at(&self.universe, &self.process, bucket, told, error)?;
        let grip =
            Grip { asked_at, start_at, lease_ends: 0, booked: false, redeemed: false, transacted: false };
        let need = Need::of(&name_of_life(bucket, life), cost);
        let id =
            self.universe.record(|record| record.granted(&self.process.name, &need, now, grip, taken_at));
        self.universe.count("judged: a call of a bucket that was made anew");
        Some((id, life))
    }

    fn carries(
        &self,
        bucket: &str,
        cost: i32,
        (asked_at, life): (Micros, Option<(usize, bool)>),
        retry: &RetryIn,
    ) {
        let Some(ticket) = retry.ticket() else { return };
        if life.is_none() || self.life(bucket) != life {
            return;
        }
        let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
        let at = Micros::from(ticket.start_at().micros());
        let told = Told { at, cost: Micros::from(cost) * 1_000_000, now, by: Teller::Ticket };
        let Some((_, life)) = taken_at(&self.universe, &self.process, bucket, told, error) else { return };
        let (ticket, bucket) = (ticket.clone(), bucket.to_owned());
        self.queue.lock().unwrap().push_back(Carried { ticket, bucket, cost, asked_at, life });
    }

    async fn redeem(&mut self) {
        let Some(carried) = self.queue.lock().unwrap().pop_front() else { return };
        let now = self.universe.time() + Micros::from(self.process.clock_error());
        let wait = (Micros::from(carried.ticket.start_at().micros()) - now).clamp(0, 6_000_000);
        sleep(Duration::from_micros(wait.try_into().unwrap()) + Duration::from_millis(self.rng.u64(0..300)))
            .await;
        let Carried { ticket, bucket, cost, asked_at, life } = &carried;
        let before = self.life(bucket).map(|(life, _)| life);
        if before != Some(*life) {
            self.universe.count("a ticket of a bucket that is gone");
        }
        match self.watch(Public::Redeem(1)).on(self.process.client.redeem(ticket)).await {
            // Of a bucket before, too: its start was booked there, and counts there.
            Ok(Redeemed::Granted(grant)) => {
                let (now, start_at) = (self.universe.time(), grant.start_at().micros());
                let (asked_at, need) = (*asked_at, Need::of(&name_of_life(bucket, *life), *cost));
                let grip = Grip {
                    asked_at,
                    start_at,
                    lease_ends: 0,
                    booked: false,
                    redeemed: true,
                    transacted: false,
                };
                let name = &self.process.name;
                let id = self.universe.record(|record| record.granted(name, &need, now, grip, asked_at));
                let (bucket, cost, life) = (bucket.clone(), *cost, *life);
                self.hold(&bucket, cost, Some((id, life)), grant).await;
            }
            Ok(Redeemed::RetryIn(retry)) if retry.ticket().is_some() => {
                self.queue.lock().unwrap().push_back(carried)
            }
            _ => {}
        }
    }

    async fn is_told_to_pause(&mut self, bucket: &str) {
        if self.rng.bool() {
            let _ = self.process.client.penalize(bucket, 0.5).await;
        } else {
            let pause = Duration::from_millis(self.rng.u64(20..=1_000));
            let _ = self.watch(Public::CoolDown).on(self.process.client.cool_down(bucket, pause)).await;
        }
    }

    fn is_unknown_for_a_reason(&self, bucket: &str, asked_at: Micros, error: &AcquireError) {
        if !matches!(error, AcquireError::UnknownDimension { .. }) {
            return;
        }
        self.universe.count("judged: a bucket is unknown while it is not there");
        let (now, since) = (self.universe.time(), asked_at - UNKNOWN_FOR);
        if !self.universe.ledger(|ledger| ledger.was_absent_since(bucket, since)) {
            self.universe.violated(format!(
                "{bucket}: {} was told at {now}, {} us after it asked, that it is not there, and it was all the time",
                self.process.name,
                now - asked_at
            ));
        }
    }
}

/// When the tokens were taken that are there at a start which a caller of a process was told, and of which
/// life of their bucket.
pub(crate) fn taken_at(
    universe: &Universe,
    process: &Process,
    bucket: &str,
    told: Told,
    error: Micros,
) -> Option<(Micros, usize)> {
    let found = universe.ledger(|ledger| {
        let found = ledger.account(&process.name, bucket).told_start(bucket, told, error)?;
        Ok((found.written_at, ledger.life_at(bucket, found.written_at)))
    });
    match found {
        Ok((at, life)) => life.map(|(life, _)| (at, life)),
        Err(violation) => {
            universe.violated(violation);
            None
        }
    }
}
