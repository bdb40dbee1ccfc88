//! Valid but wrong numbers in rows, written by hand while callers use them: an anchor hours ahead, more
//! tokens than the capacity, levels far below zero, a pause of days, absurd counters, leases that say more
//! than they took.
//!
//! Promised, and judged here: from the wrong write on a rate bucket holds its bound as if it had been made
//! then; an anchor of the future is moved back by the first call that finds too little before it, once in the
//! time in which the bucket fills; every call returns within its bound. What slots may come to, the ledger
//! judges (`ledger/damage.rs`), and two sweeps running put it right, which the end of the run asks.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_core::schema::KEY;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_sdk::{Grant, Leases, Outcome, Request, RetryReason};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::account::{Teller, Told};
use crate::callers::Need;
use crate::conditions::stream;
use crate::ledger::{FRAIL, name_of_life};
use crate::liveness::{Public, Stopwatch};
use crate::mortal::taken_at;
use crate::others::{number, seconds};
use crate::process::{Process, Role};
use crate::record::Grip;
use crate::row::Micros;
use crate::universe::{TABLE, Universe};

const HOUR: Micros = 3_600_000_000;

/// An anchor that lies further ahead than two clocks differ is one of the future.
const FURTHEST_APART: Micros = 4_000_000;

/// What a process has read of a bucket it goes by for a second, and a reply takes up to another.
const UNREAD: Micros = 2_100_000;

/// Counters: absurd, or negative where they only grow. Fewer tokens returned than were would let more of them
/// come back, which is a bound that nobody promises.
const COUNTERS: [(&str, &[&str]); 10] = [
    ("version", &["-7", "1000000000000"]),
    ("observed", &["-1000000", "1000000000"]),
    ("observed_version", &["-3", "1000000000000000"]),
    ("returned", &["1000000000"]),
    ("lots", &["1000000000"]),
    ("admitted", &["-5", "1000000000"]),
    ("admitted_inline", &["-5", "1000000000"]),
    ("counted", &["-9", "1000000000000"]),
    ("capped", &["-5", "1000000000"]),
    ("drift", &["-1000", "1000", "2", "-1"]),
];

fn tokens() -> String {
    format!("{FRAIL}rpm")
}

fn slots() -> String {
    format!("{FRAIL}concurrent")
}

/// Founds the buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    if universe.scenario.lulls || !universe.scenario.conditions.wrong_numbers {
        return;
    }
    let mut rng = stream(universe.scenario.seed, "whose rows are wrong");
    let capacity = Amount::from_tokens(rng.i32(2..=6));
    let refill = Rate::per(capacity, Duration::from_millis(rng.u64(1_000..=6_000))).unwrap();
    let rate = Limit::rate(LimitType::Requests, capacity, refill, Cost::ONE).unwrap();
    let concurrent = Limit::concurrent(Amount::from_tokens(rng.i32(3..=5)), Cost::ONE).unwrap();
    for (name, limit) in [(tokens(), rate), (slots(), concurrent)] {
        universe
            .undisturbed(operator.client.ops().apply_limit(&Dimension::new(&name).unwrap(), &limit))
            .await
            .unwrap();
    }
    let forger = universe.process("forger", Role::Vandal, |client| client);
    tasks.spawn(Forger { universe: Arc::clone(universe), process: forger, rng: rng.fork() }.live());
    for at in 0..2 {
        let leases = if at == 0 { Leases::Inline } else { Leases::Concurrent };
        let ttl = universe.scenario.lease_ttl;
        let settings =
            |client: sluice_sdk::ClientBuilder| client.leases(leases).self_heal(false).lease_ttl(ttl);
        let process = universe.process(&format!("frail-{at}"), Role::Customer, settings);
        process.set_clock_error(rng.i64(-universe.scenario.clock_error..=universe.scenario.clock_error));
        for _ in 0..2 {
            let caller = Caller { universe: Arc::clone(universe), process: process.clone(), rng: rng.fork() };
            tasks.spawn(caller.live());
        }
    }
}

/// Someone who writes wrong numbers.
struct Forger {
    universe: Arc<Universe>,
    process: Process,
    rng: Rng,
}

impl Forger {
    async fn live(mut self) {
        while !self.universe.is_over() {
            sleep(Duration::from_millis(self.rng.u64(500..=6_000))).await;
            let now = self.universe.time();
            match self.rng.u32(0..10) {
                0 | 1 => {
                    let at = now + HOUR * Micros::from(self.rng.u32(1..=48));
                    self.writes("wrong: an anchor of the future", &tokens(), "last_refill_at", seconds(at))
                        .await;
                }
                2 => {
                    let much = self.rng.u32(7..=10_000).to_string();
                    self.writes("wrong: tokens above the capacity", &tokens(), "tokens", much).await;
                }
                3 => {
                    let more = self.rng.i32(4..=8).to_string();
                    self.writes("wrong: slots above the capacity", &slots(), "tokens", more).await;
                }
                4 => {
                    let (bucket, low) = if self.rng.bool() { (tokens(), "-30") } else { (slots(), "-2") };
                    self.writes("wrong: a level below zero", &bucket, "tokens", low.into()).await;
                }
                5 => self.pauses().await,
                6 | 7 => self.counts().await,
                _ => self.claims().await,
            }
        }
    }

    async fn writes(&self, what: &'static str, key: &str, attribute: &str, value: String) {
        self.universe.act(what, &format!("{key} {attribute} = {value}"));
        self.updates(key, "SET #name = :value", &[("#name", attribute)], Some(value)).await;
    }

    async fn updates(&self, key: &str, update: &str, names: &[(&str, &str)], value: Option<String>) {
        let request =
            self.process.dynamo.dynamodb().update_item().table_name(TABLE).key(KEY, crate::others::text(key));
        let request =
            request.update_expression(update).condition_expression("attribute_exists(vendor_dimension)");
        let request = names.iter().fold(request, |request, (name, attribute)| {
            request.expression_attribute_names(*name, *attribute)
        });
        let request = match value {
            Some(value) => request.expression_attribute_values(":value", number(value)),
            None => request,
        };
        let _ = request.send().await;
    }

    /// Nobody cuts a pause short but people.
    async fn pauses(&mut self) {
        let bucket = if self.rng.bool() { tokens() } else { slots() };
        let until = self.universe.time() + HOUR * 24 * Micros::from(self.rng.u32(1..=30));
        self.writes("wrong: a pause of days", &bucket, "blocked_until", seconds(until)).await;
        sleep(Duration::from_millis(self.rng.u64(500..=4_000))).await;
        self.updates(&bucket, "REMOVE #name", &[("#name", "blocked_until")], None).await;
    }

    async fn counts(&mut self) {
        let bucket = if self.rng.bool() { tokens() } else { slots() };
        let (attribute, values) = *self.rng.choice(&COUNTERS).unwrap();
        let value = (*self.rng.choice(values).unwrap()).to_owned();
        self.writes("wrong: a counter", &bucket, attribute, value).await;
        if attribute == "drift" {
            let now = seconds(self.universe.time());
            self.updates(&bucket, "SET #name = :value", &[("#name", "drift_seen_at")], Some(now)).await;
        }
    }

    /// A lease says another cost than it took.
    async fn claims(&mut self) {
        let says = self.rng.i32(1..=9).to_string();
        let leases: Vec<String> = self.universe.ledger(|ledger| {
            let of_frail = ledger.leases().filter(|(_, lease)| lease.dimension == slots());
            of_frail.map(|(key, _)| key.clone()).collect()
        });
        let inline: Vec<String> = self.universe.ledger(|ledger| {
            ledger.bucket(&slots()).into_iter().flat_map(|row| row.inline.keys().cloned()).collect()
        });
        if let Some(key) =
            self.rng.choice(&leases).filter(|_| inline.is_empty() || self.universe.time() % 2 == 0)
        {
            self.writes("wrong: the cost of a lease row", key, "cost", says).await;
        } else if let Some(id) = self.rng.choice(&inline) {
            self.universe.act("wrong: the cost of an inline lease", &format!("{id} {says}"));
            let names = [("#leases", "leases"), ("#lease", id.as_str()), ("#cost", "c")];
            self.updates_there(&names, says).await;
        }
    }

    /// Only a lease that is there: a path to one that is not is an error.
    async fn updates_there(&self, names: &[(&str, &str)], says: String) {
        self.updates(&slots(), "SET #leases.#lease.#cost = :value", names, Some(says)).await;
    }
}

struct Caller {
    universe: Arc<Universe>,
    process: Process,
    rng: Rng,
}

impl Caller {
    async fn live(mut self) {
        while !self.universe.is_over() {
            match self.rng.u32(0..4) {
                0 | 1 => self.takes_tokens().await,
                2 => self.takes_slots().await,
                _ => self.waits().await,
            }
            sleep(Duration::from_millis(self.rng.u64(0..400))).await;
        }
    }

    fn watch(&self, call: Public) -> Stopwatch {
        Stopwatch::of(&self.universe, &self.process, call)
    }

    async fn asks(&self, bucket: &str, cost: i32) -> Option<Outcome> {
        let request = Request::from(vec![bucket]).cost(bucket, cost);
        self.watch(Public::Acquire).on(self.process.client.acquire(request)).await.ok()
    }

    async fn takes_tokens(&mut self) {
        let (bucket, cost, asked_at) = (tokens(), self.rng.i32(1..=2), self.universe.time());
        let Some(outcome) = self.asks(&bucket, cost).await else { return };
        match outcome {
            Outcome::Granted(grant) => {
                let named = self.granted(&bucket, cost, asked_at, grant.start_at().micros());
                self.ends(&bucket, cost, (named, grant)).await;
            }
            Outcome::RetryIn(retry) => {
                if retry.reason() == RetryReason::Exhausted {
                    self.is_repaired(&bucket, asked_at);
                }
                sleep(retry.wait().min(Duration::from_secs(1)).mul_f64(self.rng.f64())).await;
            }
        }
    }

    /// Settles at times what it did not use.
    async fn ends(&mut self, bucket: &str, cost: i32, (named, mut grant): (Option<(String, String)>, Grant)) {
        sleep(Duration::from_millis(self.rng.u64(0..1_500))).await;
        if self.rng.u32(0..3) == 0 {
            let left = Micros::from(cost) * 500_000;
            self.universe.ledger(|ledger| ledger.account(&self.process.name, bucket).settles(left));
            if let Some((id, name)) = &named {
                self.universe.record(|record| record.settled(id, name, left, self.universe.time()));
            }
            let used = Amount::from_micros(left.try_into().unwrap());
            let _ = self.watch(Public::Settle).on(grant.settle(bucket, used)).await;
        }
        let _ = self.watch(Public::Release).on(grant.release()).await;
    }

    async fn takes_slots(&mut self) {
        let cost = self.rng.i32(1..=2);
        let Some(Outcome::Granted(grant)) = self.asks(&slots(), cost).await else { return };
        sleep(Duration::from_millis(self.rng.u64(0..3_000))).await;
        if self.rng.u32(0..4) == 0 {
            // Its lease ends, and a sweep or a caller finds it.
            return std::mem::forget(grant);
        }
        let _ = self.watch(Public::Release).on(grant.release()).await;
    }

    async fn waits(&mut self) {
        let (bucket, asked_at) = (if self.rng.bool() { tokens() } else { slots() }, self.universe.time());
        let patience = Duration::from_millis(self.rng.u64(200..=4_000));
        let work = Duration::from_millis(self.rng.u64(0..1_000));
        let run = self.process.client.slot(bucket.as_str()).timeout(patience).run(async |slot| {
            if bucket == tokens() {
                self.granted(&bucket, 1, asked_at, slot.start_at().micros());
            }
            sleep(work).await;
            Ok::<_, sluice_sdk::LimitError>(())
        });
        let _ = self.watch(Public::Slot(patience, Duration::ZERO)).on(run).await;
    }

    /// Books tokens in the history, as taken since the last wrong number or before it; what the call and its
    /// bucket are called there.
    fn granted(&self, bucket: &str, cost: i32, asked_at: Micros, start_at: i64) -> Option<(String, String)> {
        let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
        let told = Told { at: start_at.into(), cost: Micros::from(cost) * 1_000_000, now, by: Teller::Grant };
        let (taken_at, life) = taken_at(&self.universe, &self.process, bucket, told, error)?;
        let grip =
            Grip { asked_at, start_at, lease_ends: 0, booked: false, redeemed: false, transacted: false };
        let name = name_of_life(bucket, life);
        let need = Need::of(&name, cost);
        let id =
            self.universe.record(|record| record.granted(&self.process.name, &need, now, grip, taken_at));
        if life > 0 {
            self.universe.count("judged: a call after a wrong number");
        }
        Some((id, name))
    }

    /// A call that finds too little before an anchor of the future moves it back, once in the time in which
    /// the bucket fills up, unless a request of its process met a fault. A repair that fails since others
    /// take keeps no call from its answer: the next one repairs.
    fn is_repaired(&self, bucket: &str, asked_at: Micros) {
        let (now, error) = (self.universe.time(), Micros::from(self.universe.scenario.clock_error));
        let (row, damaged_at) =
            self.universe.ledger(|ledger| (ledger.bucket(bucket).cloned(), ledger.damaged_at(bucket)));
        let (Some(row), Some(damaged_at)) = (row, damaged_at) else { return };
        let had_read = asked_at - UNREAD - 2 * error;
        if damaged_at >= had_read || self.process.tally.met_fault(had_read, now) {
            return;
        }
        let fills_in = row.capacity * 1_000_000_000_000 / row.rate;
        if row.repaired_at.is_some_and(|at| at + fills_in >= had_read) {
            return;
        }
        let failed_at = self.universe.ledger(|ledger| ledger.failed_to_repair_at(&self.process.name, bucket));
        if failed_at.is_some_and(|at| at >= asked_at) {
            return;
        }
        self.universe.count("judged: no anchor of the future stays");
        if row.anchor > now + FURTHEST_APART + 2 * error {
            let name = &self.process.name;
            self.universe.violated(format!(
                "{bucket}: {name} asked at {asked_at}, and left its anchor as it was: {row:?}"
            ));
        }
    }
}
