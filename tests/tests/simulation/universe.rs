//! One run: the engine, the ledger that watches it, the true time, and what everyone shares.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use sluice_sdk::{Client, ClientBuilder, Clock};
use sluice_testkit::{Answered, Call, EmbeddedDynamo, Fault, Faults, Operation, TestClock};

use crate::asking;
use crate::callers::Message;
use crate::faults;
use crate::journal::Journal;
use crate::ledger::{Ledger, Touched};
use crate::process::{Process, Role};
use crate::record::Record;
use crate::row::Micros;
use crate::scenario::{START, Scenario};
use crate::vendors::Vendors;
use crate::wire::{self, Change, is_give_back, keys_of, may_be_of_a_heal, name_of, update_of, verdict_of};

pub(crate) const TABLE: &str = "ontopix-vendor-buckets-simulation";

/// What all parts of a run share.
pub(crate) struct Universe {
    pub(crate) scenario: Scenario,
    pub(crate) dynamo: EmbeddedDynamo,
    state: Mutex<State>,
    pub(crate) vendors: Mutex<Vendors>,
    /// Work that waits for its start, with its tickets.
    pub(crate) queue: Mutex<VecDeque<Message>>,
    steps: AtomicU64,
    quiet: AtomicBool,
    broken: AtomicBool,
}

struct State {
    network: Rng,
    ledger: Ledger,
    record: Record,
    counts: BTreeMap<&'static str, u64>,
    journal: Journal,
    violation: Option<String>,
    /// Attributes that someone spoiled: what they should be, and what they are, by key.
    spoiled: BTreeMap<String, Spoilt>,
}

/// An attribute that makes no sense, and the value that it had.
#[derive(Clone, Debug)]
pub(crate) struct Spoilt {
    pub(crate) attribute: &'static str,
    pub(crate) was: Option<Value>,
    pub(crate) is: Value,
}

impl Universe {
    pub(crate) async fn new(scenario: Scenario) -> Arc<Self> {
        let dynamo = EmbeddedDynamo::with_clock(TestClock::new(START)).unwrap();
        dynamo.create_table(TABLE).await.unwrap();
        let state = State {
            network: Rng::with_seed(scenario.seed ^ 0x6E65_7477_6F72_6B00),
            ledger: Ledger::default(),
            record: Record::new(&scenario),
            counts: BTreeMap::new(),
            journal: Journal::default(),
            violation: None,
            spoiled: BTreeMap::new(),
        };
        let vendors = Mutex::new(Vendors::new(&scenario.buckets));
        Arc::new(Self {
            scenario,
            dynamo,
            state: Mutex::new(state),
            vendors,
            queue: Mutex::default(),
            steps: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        })
    }

    /// Declares the limits, before anything goes wrong.
    pub(crate) async fn found(&self, operator: &Process) {
        self.quiet.store(true, Ordering::SeqCst);
        for bucket in &self.scenario.buckets {
            operator.client.apply_limit(&bucket.dimension, &bucket.limit).await.unwrap();
        }
        self.quiet.store(false, Ordering::SeqCst);
    }

    /// A client that meets what the seed has in store, with these settings.
    pub(crate) fn process(
        self: &Arc<Self>,
        name: &str,
        role: Role,
        settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Process {
        let (name, alive): (Arc<str>, _) = (name.into(), Arc::new(AtomicBool::new(true)));
        let faults = Faults::default();
        let (universe, who, lives) = (Arc::clone(self), Arc::clone(&name), Arc::clone(&alive));
        faults.draw(move |call| universe.meet(&who, role, call, lives.load(Ordering::SeqCst)));
        let (universe, who) = (Arc::clone(self), Arc::clone(&name));
        faults.watch(move |answered| universe.see(&who, role, answered));
        let dynamo = self.dynamo.apart(faults);
        let clock_error = Arc::new(AtomicI64::new(0));
        let (time, off) = (self.dynamo.clock().clone(), Arc::clone(&clock_error));
        let clock = Clock::from_fn(move || {
            let micros = time.now().micros() + off.load(Ordering::SeqCst);
            sluice_core::Timestamp::from_micros(micros)
        });
        // Nobody sets it, so that the process knows when its clock jumped.
        let steady = self.dynamo.clock().clone();
        let clock = clock.steady_by(move || Duration::from_micros(steady.now().micros().unsigned_abs()));
        let (prefix, drawn) = (Arc::clone(&name), AtomicU64::new(0));
        let ids = move || format!("{prefix}-{:04}", drawn.fetch_add(1, Ordering::SeqCst));
        let settings = settings(Client::builder(TABLE)).caller(&*name).clock(clock).lease_ids(ids);
        let client = settings.dynamodb(dynamo.dynamodb());
        Process { name, client, dynamo, clock_error, alive, tracker: None }
    }

    /// The fate of a request, or its latency.
    fn meet(self: &Arc<Self>, who: &str, role: Role, call: Call<'_>, alive: bool) -> Option<Fault> {
        if !alive {
            return Some(Fault::Hang);
        }
        self.step();
        let mut state = self.locked();
        let State { network, ledger, record, counts, journal, .. } = &mut *state;
        let fault = match self.scenario.weather.one_fault_in() {
            _ if self.is_quiet() => return None,
            // What is rare meets more of them, or a run would hardly see it.
            Some(many) if network.u32(0..if is_give_back(call) { 3 } else { many }) == 0 => {
                let told = Arc::downgrade(self);
                let drawn = faults::draw(network, call, move || {
                    if let Some(universe) = told.upgrade() {
                        universe.count(faults::CONFLICT_BESIDE_CONDITION);
                    }
                });
                if drawn.name != faults::CONFLICT_BESIDE_CONDITION {
                    *counts.entry(drawn.name).or_default() += 1;
                }
                if is_give_back(call) {
                    record.return_sent(who, &keys_of(call)[0], self.time());
                }
                if role == Role::Process && (may_be_of_a_heal(call) || who.starts_with(asking::NAME)) {
                    ledger.heal_disturbed(self.time());
                }
                if role == Role::Process && (drawn.in_doubt || is_give_back(call)) {
                    doubt(ledger, who, call, &self.scenario);
                }
                let what = format!("{who}: {} {}: {}", name_of(call), keys_of(call).join(" "), drawn.name);
                journal.note(self.time(), &what);
                drawn.fault
            }
            _ => {
                if is_give_back(call) {
                    record.return_sent(who, &keys_of(call)[0], self.time());
                }
                faults::latency(network)
            }
        };
        Some(fault)
    }

    /// What the engine did.
    fn see(&self, who: &str, role: Role, answered: Answered<'_>) {
        let call = answered.call;
        let is_write = !matches!(call.operation, Operation::GetItem | Operation::BatchGetItem | Operation::Scan);
        if !is_write || call.operation == Operation::Other {
            return;
        }
        let keys = keys_of(call);
        let now = self.time();
        let mut state = self.locked();
        let State { ledger, record, journal, spoiled, counts, .. } = &mut *state;
        let what = if call.operation == Operation::UpdateItem { update_of(call) } else { String::new() };
        journal.note(now, &format!("{who}: {} {}{what} -> {}", name_of(call), keys.join(" "), verdict_of(answered)));
        if is_give_back(call) {
            record.return_arrived(who, &keys[0], now);
        }
        if answered.status != 200 {
            if role == Role::Process && is_give_back(call) {
                // Refused: others booked behind it, or the bucket was full meanwhile.
                doubt(ledger, who, call, &self.scenario);
            }
            let lost = wire::unmarked(answered, |key| self.dynamo.row(TABLE, key).unwrap());
            drop(state);
            match lost {
                Ok(true) => self.count("a mark was lost to another"),
                Ok(false) => {}
                Err(violation) => self.violated(format!("{who}: {violation}")),
            }
            return;
        }
        let rows = wire::changes(call).into_iter().map(|change| self.touched(change, spoiled)).collect();
        let error = Micros::from(self.scenario.clock_error);
        let judged = ledger.applied(role.writer(who), rows, now, error);
        if what.contains("if_not_exists(lots") {
            *counts.entry("a lot taken ahead").or_default() += 1;
        }
        for judgement in std::mem::take(&mut ledger.judgements) {
            *counts.entry(judgement).or_default() += 1;
        }
        for (name, bucket) in std::mem::take(&mut ledger.changed) {
            record.limit_changed(&name, &bucket, now);
        }
        for (name, amount) in std::mem::take(&mut ledger.given_back) {
            record.returned(&name, amount, now);
        }
        drop(state);
        if let Err(violation) = judged {
            self.violated(violation);
        }
    }

    /// A row as it would be if nobody had spoiled it.
    fn touched(&self, change: Change, spoiled: &mut BTreeMap<String, Spoilt>) -> Touched {
        let Change { key, purpose, reclaims } = change;
        let mut row = self.dynamo.row(TABLE, &key).unwrap();
        let mut was_spoiled = false;
        if let (Some(row), Some(spoilt)) = (&mut row, spoiled.get(&key)) {
            if row[spoilt.attribute] == spoilt.is {
                match &spoilt.was {
                    Some(was) => row[spoilt.attribute] = was.clone(),
                    None => drop(row.as_object_mut().map(|row| row.remove(spoilt.attribute))),
                }
            } else {
                was_spoiled = true;
                spoiled.remove(&key);
            }
        }
        Touched { key, row, purpose, reclaims, was_spoiled }
    }

    /// Counts what happened within a step.
    pub(crate) fn count(&self, name: &'static str) {
        *self.locked().counts.entry(name).or_default() += 1;
    }

    /// Counts an event of the run.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an event that is no request, under its name.
    pub(crate) fn act(&self, name: &'static str, what: &str) {
        self.step();
        let now = self.time();
        let mut state = self.locked();
        *state.counts.entry(name).or_default() += 1;
        state.journal.note(now, &format!("{name}: {what}"));
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Whether everyone should come to an end.
    pub(crate) fn is_over(&self) -> bool {
        self.broken.load(Ordering::SeqCst) || self.steps() >= self.scenario.steps
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn calm_down(&self) {
        self.quiet.store(true, Ordering::SeqCst);
    }

    fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    /// The true time.
    pub(crate) fn time(&self) -> Micros {
        Micros::from(self.dynamo.clock().now().micros())
    }

    pub(crate) fn ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.locked().ledger)
    }

    pub(crate) fn record<T>(&self, write: impl FnOnce(&mut Record) -> T) -> T {
        write(&mut self.locked().record)
    }

    pub(crate) fn spoiled<T>(&self, look: impl FnOnce(&mut BTreeMap<String, Spoilt>) -> T) -> T {
        look(&mut self.locked().spoiled)
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.locked().counts.clone()
    }

    /// Keeps the first violation, and ends the run.
    pub(crate) fn violated(&self, violation: String) {
        self.locked().violation.get_or_insert(violation);
        self.broken.store(true, Ordering::SeqCst);
    }

    pub(crate) fn check(&self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.violated(violation);
        }
    }

    /// The violation, with the operations that led to it.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let state = self.locked();
        match &state.violation {
            None => Ok(()),
            Some(violation) => {
                Err(format!("{violation}\nthe last operations:\n  {}", state.journal.lines().join("\n  ")))
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A take that its sender may repeat or never hear of, or a return that comes to nothing.
fn doubt(ledger: &mut Ledger, who: &str, call: Call<'_>, scenario: &Scenario) {
    for key in keys_of(call) {
        if let Some(bucket) = scenario.bucket(&key) {
            // As much as all callers of the process together may ask for in one write.
            let callers = Micros::try_from(scenario.callers_per_process).unwrap();
            ledger.account(who, &key).excused += Micros::from(bucket.most) * callers * 1_000_000;
        }
    }
}
