//! What product code does: acquire, slots, cancellations, and every way to end badly.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_sdk::{Basis, Outcome, Request, RetryIn, RetryReason};
use tokio::time::{sleep, timeout};

use crate::account::{Teller, Told};
use crate::ice::Ice;
use crate::ledger::Refused;
use crate::liveness::{Public, Stopwatch};
use crate::process::Process;
use crate::record::Grip;
use crate::row::Micros;
use crate::scenario::BucketPlan;
use crate::times;
use crate::universe::Universe;

mod admission;
mod calls;
mod dying;
mod holding;
mod slots;
mod streams;
mod tickets;
mod tracked;

pub(crate) use admission::Admits;
use dying::Dying;
pub(crate) use tickets::Message;

/// Nothing takes longer: not an acquire under the worst of faults, nor a slot with the longest timeout.
const NO_HANG: Duration = Duration::from_secs(120);

/// Refused, a call gives back what it took within this time.
const REFILLED_SOON: Micros = 2_000_000;

/// What a reply says of the time counts for so long.
const KNOWN_FOR: Micros = 60_000_000;

/// The time of a process is off by no more.
const CLOCK_ERROR: Micros = 2_000_000;

/// A call's needs: buckets, and what it takes of each.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) parts: Vec<(String, i32)>,
    pub(crate) concurrent: bool,
}

/// One caller of a process, until the run is over or the process dies.
pub(crate) struct Caller {
    pub(crate) universe: Arc<Universe>,
    pub(crate) process: Process,
    pub(crate) rng: Rng,
    /// Whether its process writes leases for rate buckets too.
    pub(crate) has_leases: bool,
    /// Whether its process answers by itself while DynamoDB is out.
    pub(crate) answers_alone: bool,
    /// How its process admits.
    pub(crate) admits: Admits,
}

impl Caller {
    pub(crate) async fn live(mut self) {
        while !self.universe.is_over() && self.process.is_alive() {
            if let Some(rest) = self.universe.scenario.lull(self.universe.time()) {
                sleep(rest).await;
                self.universe.act("a lull is over", &self.process.name);
            }
            let need = self.need();
            if self.rng.u32(0..4) == 0 {
                self.redeem().await;
            }
            self.universe.act("a call begins", &format!("{} wants {:?}", self.process.name, need.parts));
            if self.rng.u32(0..30) == 0 {
                self.cools_down(&need).await;
            }
            if need.parts.len() == 1 && self.rng.u32(0..4) == 0 && !self.is_admitted(&need).await {
                continue;
            }
            let (ice, universe, name) =
                (self.process.ice.clone(), Arc::clone(&self.universe), Arc::clone(&self.process.name));
            let call = async {
                match self.rng.u32(0..12) {
                    10 | 11 => self.ticket(&need).await,
                    0..=3 => self.acquire(&need).await,
                    4..=8 => self.slot(&need).await,
                    _ => self.long_slot(&need).await,
                }
            };
            if !ends(&ice, call).await {
                universe.violated(format!("{name}: a call on {:?} did not end", need.parts));
            }
            sleep(Duration::from_millis(self.rng.u64(0..300))).await;
        }
    }

    fn need(&mut self) -> Need {
        let buckets = &self.universe.scenario.buckets;
        let many = if self.universe.scenario.together && self.rng.bool() {
            self.rng.usize(1..=buckets.len())
        } else {
            1
        };
        // A slot among them makes one transaction of it; rates alone are taken side by side.
        let rates_alone = many > 1 && self.rng.bool();
        let mut chosen: Vec<&BucketPlan> =
            buckets.iter().filter(|bucket| !rates_alone || !bucket.is_concurrent()).collect();
        self.rng.shuffle(&mut chosen);
        chosen.truncate(many);
        let concurrent = chosen.iter().any(|bucket| bucket.is_concurrent());
        let parts =
            chosen.iter().map(|bucket| (bucket.name().to_owned(), self.rng.i32(1..=bucket.most))).collect();
        Need { parts, concurrent }
    }

    async fn acquire(&mut self, need: &Need) {
        self.acquire_as(need, need.request(), Public::Acquire).await;
    }

    async fn acquire_as(&mut self, need: &Need, request: Request<'_>, call: Public) {
        let asked_at = self.universe.time();
        let dying = self.dies_at();
        let client = self.process.client.clone();
        let acquire = self.watch(call).on(client.acquire(request));
        let acquire = Dying::new(acquire, dying);
        let Some(answer) = acquire.await else {
            self.universe.act("dropped at an await", &format!("{}: acquire", self.process.name));
            return self.came_to_nothing(need);
        };
        match answer {
            Ok(Outcome::Granted(grant)) if grant.basis() == Basis::Table => {
                times::judge(&self.universe, &self.process, asked_at);
                let start_at = grant.start_at().micros();
                let grip = Grip {
                    asked_at,
                    start_at,
                    lease_ends: 0,
                    booked: false,
                    redeemed: false,
                    transacted: false,
                };
                self.hold(need, grip, grant).await;
            }
            Ok(Outcome::Granted(grant)) => {
                self.universe.act("granted without the table", &format!("{:?}", grant.basis()));
                self.came_to_nothing(need);
                let _ = self.watch(Public::Release).on(grant.release()).await;
            }
            Ok(Outcome::RetryIn(retry)) => {
                if need.parts.len() > 1 {
                    self.came_to_nothing(need);
                } else if retry.reason() == RetryReason::NoFreeSlot && self.process.is_alive() {
                    let (name, now) = (&need.parts[0].0, self.universe.time());
                    self.universe.ledger(|ledger| ledger.asks(&self.process.name, name, now));
                }
                self.is_refused_for_a_reason(need, asked_at, &retry);
                self.carries(need, asked_at, &retry);
                let wait = retry.wait().min(Duration::from_secs(3));
                sleep(wait.mul_f64(self.rng.f64())).await;
            }
            Err(error) => self.failed(need, &error.to_string()),
        }
    }

    /// A bucket that refuses tokens has none, or had none within the last second.
    fn is_refused_for_a_reason(&self, need: &Need, asked_at: Micros, retry: &RetryIn) {
        let [(bucket, cost)] = need.parts.as_slice() else { return };
        let (now, error) = (self.universe.time(), self.universe.error_of(&self.process));
        let stood_still = self.process.ice.was_frozen_since(asked_at - 5_000_000 - 2 * error);
        let is_judged =
            retry.reason() == RetryReason::Exhausted && retry.ticket().is_none() && !self.has_leases;
        if is_judged && !stood_still && !self.answers_alone {
            let (cost, process) = (Micros::from(*cost) * 1_000_000, &*self.process.name);
            let off = Micros::from(self.process.client.now().micros()) - now;
            let refused = Refused { process, cost, asked_at, now, error, off };
            self.universe.check(self.universe.ledger(|ledger| ledger.refused(bucket, refused)));
        }
    }

    /// Books a grant that its caller has in hand; returns its name in the history.
    fn granted(&self, need: &Need, grip: Grip) -> String {
        let (now, error) = (self.universe.time(), self.universe.error_of(&self.process));
        // By a time that is behind, before a reply has told it, a start may lie before its asking: as if it
        // had been asked for then. After a reply of which a freeze took a part, the time is known to two
        // seconds, and a clock that is exact is moved by as much.
        let since = grip.asked_at - KNOWN_FOR;
        let is_wide = self.universe.jumped_since(since) || self.process.ice.was_frozen_since(since);
        let is_behind = self.process.machine.behind(now) > 0
            || is_wide && Micros::from(grip.start_at) >= grip.asked_at - CLOCK_ERROR;
        let asked_at = if is_behind { grip.asked_at.min(grip.start_at.into()) } else { grip.asked_at };
        let grip = Grip { asked_at, ..grip };
        let (mut shared, mut taken_at) = (false, grip.asked_at);
        for (name, cost) in &need.parts {
            let cost = i128::from(*cost) * 1_000_000;
            let balance = self.universe.ledger(|ledger| {
                let account = ledger.account(&self.process.name, name);
                let start = Micros::from(grip.start_at);
                if self.universe.scenario.bucket(name).is_some_and(|bucket| !bucket.is_concurrent()) {
                    account.kept += cost;
                    if need.parts.len() == 1 && !self.has_leases && !grip.redeemed {
                        let start = Told { at: start, cost, now, by: Teller::Grant };
                        let found = account.told_start(name, start, error)?;
                        shared |= found.callers > 1;
                        taken_at = taken_at.min(found.written_at);
                    } else if let Some(at) = account.may_be_taken_over(grip.asked_at, start, error) {
                        taken_at = taken_at.min(at);
                    }
                }
                account.balance(&self.process.name, name)
            });
            self.universe.check(balance);
        }
        if shared {
            self.universe.count("one write, several callers");
        }
        if grip.booked {
            self.left_for_a_cool_down(need, grip.asked_at, now);
        }
        self.universe.record(|record| record.granted(&self.process.name, need, now, grip, taken_at))
    }

    /// Whoever booked a start into a cool-down leaves it, and books anew.
    fn left_for_a_cool_down(&self, need: &Need, asked_at: Micros, now: Micros) {
        let of_need = |name: &String| need.parts.iter().any(|(part, _)| part == name);
        let began = self.universe.ledger(|ledger| {
            let since = ledger.cool_downs.iter().rev().take_while(|(_, at)| *at >= asked_at);
            since.filter(|(name, _)| of_need(name)).count()
        });
        for _ in 0..began {
            self.universe.record(|record| record.left(&self.process.name, need, asked_at, now));
        }
    }

    /// A pause that the vendor asked for by other means than a refusal.
    async fn cools_down(&mut self, need: &Need) {
        let pause = Duration::from_millis(self.rng.u64(20..=2_500));
        let (name, _) = self.rng.choice(&need.parts).cloned().unwrap();
        self.universe.act("a cool-down is set", &format!("{}: {name} for {pause:?}", self.process.name));
        let _ = self.watch(Public::CoolDown).on(self.process.client.cool_down(&name, pause)).await;
    }

    /// A request that may have taken something, of which nothing was used. What flows back by itself in a
    /// moment is not given back; the rest has no excuse.
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
        self.excuse(need);
    }

    /// It may have taken tokens, and no caller learns of it.
    fn excuse(&self, need: &Need) {
        self.universe.ledger(|ledger| {
            for (name, cost) in &need.parts {
                ledger.account(&self.process.name, name).excused += Micros::from(*cost) * 1_000_000;
            }
        });
    }

    /// Judges how long a call takes that begins now.
    fn watch(&self, call: Public) -> Stopwatch {
        Stopwatch::of(&self.universe, &self.process, call)
    }

    /// The poll at which a future dies: most live.
    fn dies_at(&mut self) -> Option<u32> {
        (self.rng.u32(0..12) == 0).then(|| self.rng.u32(1..8))
    }
}

/// Whether a call ends. The time in which its process stands still does not count (seed 4100000).
async fn ends(ice: &Ice, call: impl Future<Output = ()>) -> bool {
    let mut call = std::pin::pin!(call);
    loop {
        let frozen = ice.stood_still();
        match timeout(NO_HANG, &mut call).await {
            Ok(()) => return true,
            Err(_) if ice.stood_still() > frozen => {}
            Err(_) => return false,
        }
    }
}

impl Need {
    pub(crate) fn of(bucket: &str, cost: i32) -> Self {
        Self { parts: vec![(bucket.to_owned(), cost)], concurrent: false }
    }

    fn request(&self) -> Request<'_> {
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| name.as_str()).collect();
        self.parts
            .iter()
            .fold(Request::from(names), |request, (name, cost)| request.cost(name.as_str(), *cost))
    }
}
