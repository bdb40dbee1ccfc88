//! One run: the engine, the ledger that watches it, the true time, and what everyone shares.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use sluice_core::Timestamp;
use sluice_sdk::{Client, ClientBuilder, Clock};
use sluice_testkit::{EmbeddedDynamo, Fault, Faults, TestClock};
use tokio::time::Instant;

use crate::callers::Message;
use crate::conditions::stream;
use crate::cost;
use crate::disturbances::Disturbances;
use crate::ice::Ice;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::process::{Process, Role};
use crate::record::Record;
use crate::row::Micros;
use crate::scenario::{START, Scenario};
use crate::sweeps;
use crate::tally::Tally;
use crate::vendors::Vendors;

mod network;

pub(crate) const TABLE: &str = "ontopix-vendor-buckets-simulation";

/// AWS refuses a signature that is further off.
const SIGNATURES: Duration = Duration::from_secs(300);

/// Requests of a sweep of one bucket, one after the other, beside those of its scan.
const REQUESTS_OF_A_HEAL: u32 = 8;

/// What all parts of a run share.
pub(crate) struct Universe {
    pub(crate) scenario: Scenario,
    pub(crate) dynamo: EmbeddedDynamo,
    state: Mutex<State>,
    pub(crate) vendors: Mutex<Vendors>,
    /// The machines of all processes, by their names.
    pub(crate) machines: Mutex<Vec<(Arc<str>, Machine)>>,
    /// Work that waits for its start, with its tickets.
    pub(crate) queue: Mutex<VecDeque<Message>>,
    steps: AtomicU64,
    /// Requests of those who are there beside the workload.
    side_steps: AtomicU64,
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
    disturbances: Disturbances,
    /// When time jumped, by its timers and by the clock after the jump, and by how much.
    jumps: Vec<(Instant, Micros, Micros)>,
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
        let dynamo = scenario.conditions.page.map_or(dynamo.clone(), |rows| dynamo.with_pages_of(rows));
        let slack = scenario.conditions.slack(REQUESTS_OF_A_HEAL + scenario.conditions.pages());
        let state = State {
            network: Rng::with_seed(scenario.seed ^ 0x6E65_7477_6F72_6B00),
            ledger: Ledger::new(slack.as_micros().try_into().unwrap()),
            record: Record::new(&scenario),
            counts: BTreeMap::new(),
            journal: Journal::default(),
            violation: None,
            spoiled: BTreeMap::new(),
            disturbances: Disturbances::of(scenario.seed),
            jumps: Vec::new(),
        };
        let vendors = Mutex::new(Vendors::new(&scenario.buckets));
        Arc::new(Self {
            scenario,
            dynamo,
            state: Mutex::new(state),
            vendors,
            machines: Mutex::default(),
            queue: Mutex::default(),
            steps: AtomicU64::new(0),
            side_steps: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        })
    }

    /// Declares the limits, before anything goes wrong.
    pub(crate) async fn found(&self, operator: &Process) {
        self.quiet.store(true, Ordering::SeqCst);
        for bucket in &self.scenario.buckets {
            operator.client.ops().apply_limit(&bucket.dimension, &bucket.limit).await.unwrap();
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
        let (ice, tally, machine) = (Ice::default(), Tally::default(), self.machine(&name, role));
        let sent = tally.clone();
        let (universe, who, lives, held) =
            (Arc::clone(self), Arc::clone(&name), Arc::clone(&alive), ice.clone());
        faults.draw(move |call| match lives.load(Ordering::SeqCst) {
            true => universe.meet((&who, role), call, (&held, &sent)),
            false => Some(Fault::Hang),
        });
        let (universe, who, its) = (Arc::clone(self), Arc::clone(&name), machine.clone());
        faults.watch(move |answered| universe.see((&who, role), answered, &its));
        faults.refuse_signatures_off_by(SIGNATURES);
        let dynamo = self.dynamo.apart(faults);
        let is_metered = name.starts_with(cost::NAMES) || &*name == sweeps::LAST;
        let dynamo = if is_metered { dynamo.metered() } else { dynamo };
        let (time, shows) = (self.dynamo.clock().clone(), machine.clone());
        let clock = Clock::from_fn(move || Timestamp::from_micros(shows.shows(time.now().micros())));
        let (time, steady) = (self.dynamo.clock().clone(), machine.clone());
        let clock = clock.steady_by(move || steady.steady(time.now().micros()));
        let (prefix, drawn) = (Arc::clone(&name), AtomicU64::new(0));
        let ids = move || format!("{prefix}-{:04}", drawn.fetch_add(1, Ordering::SeqCst));
        let settings = settings(Client::builder(TABLE).renew_leases(false))
            .caller(&*name)
            .clock(clock.clone())
            .lease_ids(ids);
        let client = settings.dynamodb(dynamo.dynamodb_on(clock));
        Process { name, client, dynamo, machine, alive, ice, tally, tracker: None }
    }

    /// The machine of a process, its clock as wrong as the seed has it. Strangers and vandals go by the true
    /// time.
    fn machine(&self, name: &Arc<str>, role: Role) -> Machine {
        let machine = Machine::default();
        if self.scenario.conditions.wrong_clocks && !matches!(role, Role::Stranger | Role::Vandal) {
            machine.is_wrong(&mut stream(self.scenario.seed, &format!("the clock of {name}")));
        }
        self.machines.lock().unwrap().push((Arc::clone(name), machine.clone()));
        machine
    }

    /// How far the time of a process may be off at this moment, in microseconds.
    pub(crate) fn error_of(&self, process: &Process) -> Micros {
        Micros::from(self.scenario.clock_error) + process.machine.behind(self.time())
    }

    /// Counts what happened within a step.
    pub(crate) fn count(&self, name: &'static str) {
        *self.locked().counts.entry(name).or_default() += 1;
    }

    /// Counts what happened so often.
    pub(crate) fn count_many(&self, name: &'static str, times: u64) {
        if times > 0 {
            *self.locked().counts.entry(name).or_default() += times;
        }
    }

    /// A request beside the workload, which does not bring its end nearer.
    fn side_step(&self) {
        self.side_steps.fetch_add(1, Ordering::SeqCst);
    }

    /// All steps, those beside the workload among them.
    pub(crate) fn all_steps(&self) -> u64 {
        self.steps() + self.side_steps.load(Ordering::SeqCst)
    }

    /// Awaits something while nothing goes wrong.
    pub(crate) async fn undisturbed<F: Future>(&self, future: F) -> F::Output {
        let was_quiet = self.quiet.swap(true, Ordering::SeqCst);
        let output = future.await;
        self.quiet.store(was_quiet, Ordering::SeqCst);
        output
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

    pub(crate) fn disturbances<T>(&self, look: impl FnOnce(&mut Disturbances) -> T) -> T {
        look(&mut self.locked().disturbances)
    }

    /// Time jumped by so much, for all alike. Timers do not notice.
    pub(crate) fn jumped(&self, by: Micros) {
        let now = self.time();
        self.locked().jumps.push((Instant::now(), now, by));
    }

    /// Whether time jumped since.
    pub(crate) fn jumped_since(&self, at: Micros) -> bool {
        self.locked().jumps.last().is_some_and(|(_, jumped, _)| *jumped >= at)
    }

    /// By how much it jumped since, each time.
    pub(crate) fn jumps_since(&self, then: Instant) -> Vec<Micros> {
        self.locked().jumps.iter().filter(|(at, ..)| *at >= then).map(|(.., by)| *by).collect()
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
