//! One seed, from its first request to its verdict.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fastrand::Rng;
use sluice_history::Event;
use sluice_sdk::reservations::ReservationConfig;
use sluice_sdk::{Client, Leases, OnUnavailable};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::callers::{Admits, Caller};
use crate::machine::Resumed;
use crate::others;
use crate::process::{Process, Role};
use crate::scenario::{BucketPlan, Scenario};
use crate::universe::Universe;
use crate::vandal;
use crate::{STEPS, replay};
use crate::{cost, disturbances, foreign, frail, lone, mortal, products, service, slotted, sweeps};

/// Everything is over by then: calls, waits, late requests.
const WIND_DOWN: Duration = Duration::from_secs(200);

/// Longer than any lease of the simulation, for every clock.
const ALL_LEASES_ENDED: Duration = Duration::from_secs(60);

/// What a run says of itself.
pub(crate) struct Ran {
    pub(crate) steps: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) verdict: Result<(), String>,
    /// The longest that slots of ended leases were kept from those who asked, where nothing excused it.
    pub(crate) slowest_return: Duration,
    /// What its callers saw.
    pub(crate) history: Vec<Event>,
}

/// A step takes about a millisecond by the machine's clock. If the steps of a run (as many as a usual one has,
/// at least) take this long on average, some task never waits: virtual time stands still then, and no check of
/// the run gets its turn.
const LONGEST_STEP: Duration = Duration::from_millis(300);

/// Ends the program if the run does not end. Nothing else ends a task that never waits.
fn watch(scenario: &Scenario) -> Sender<Infallible> {
    let (seed, steps) = (scenario.seed, scenario.steps);
    let longest = LONGEST_STEP.saturating_mul(u32::try_from(steps.max(STEPS)).unwrap_or(u32::MAX));
    let (running, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
            // `eprintln!` would be kept for the end of the test.
            let _ = writeln!(
                std::io::stderr(),
                "seed {seed} does not end: after {longest:?} a task still runs, and never waits\nreplay: {}",
                replay(seed, steps)
            );
            std::process::exit(1);
        }
    });
    running
}

/// Runs `scenario`. Everything in it follows from its seed.
pub(crate) fn run(scenario: Scenario) -> Ran {
    let _running = watch(&scenario);
    fastrand::seed(scenario.seed);
    let runtime = virtual_time();
    // After the other, whose clock could not show an earlier time, and before the run, which may take longer
    // than it lasts: until it is used, its time stands still.
    let next = virtual_time();
    let abruptly = scenario.ends_abruptly;
    let (universe, processes) = runtime.block_on(busy(scenario));
    let runtime = if abruptly && universe.verdict().is_ok() {
        universe.act("runtime dropped", "everything in flight is gone");
        another_runtime(&universe, runtime, next)
    } else {
        runtime
    };
    runtime.block_on(quiet(&universe, &processes));
    if let Some(folder) = std::env::var_os("SLUICE_SIM_HISTORY") {
        std::fs::create_dir_all(&folder).expect("SLUICE_SIM_HISTORY is a folder, or can be made");
        let file = std::path::Path::new(&folder).join(format!("seed-{}.ndjson", universe.scenario.seed));
        universe.record(|record| record.save(&file)).expect("the history is written");
    }
    let history = universe.record(|record| record.events().to_vec());
    let slowest = universe.ledger(|ledger| ledger.slowest_return());
    let slowest_return = Duration::from_micros(slowest.try_into().unwrap());
    Ran {
        steps: universe.all_steps(),
        counts: universe.counts(),
        verdict: universe.verdict(),
        slowest_return,
        history,
    }
}

fn virtual_time() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// Drops the runtime, with every task as it stands, and goes on in another at the same time.
fn another_runtime(universe: &Arc<Universe>, runtime: Runtime, next: Runtime) -> Runtime {
    let before = runtime.block_on(async { universe.dynamo.clock().now() });
    drop(runtime);
    let after = next.block_on(async { universe.dynamo.clock().now() });
    assert!(after <= before, "time goes back: {before}, {after}");
    universe.dynamo.clock().advance(before.since(after));
    next
}

/// The callers and everyone else, until the steps are used up.
async fn busy(scenario: Scenario) -> (Arc<Universe>, Vec<Process>) {
    let universe = Universe::new(scenario).await;
    let scenario = &universe.scenario;
    scenario.conditions.kinds().for_each(|kind| universe.count(kind));
    let mut rng = Rng::with_seed(scenario.seed);
    let operator = universe.process("founder", Role::Operator, |client| client);
    universe.found(&operator).await;
    let mut tasks = JoinSet::new();
    service::begin(&universe, &operator, &mut tasks).await;
    cost::begin(&universe, &operator, &mut tasks).await;
    lone::begin(&universe, &operator, &mut tasks).await;
    mortal::begin(&universe, &operator, &mut tasks).await;
    frail::begin(&universe, &operator, &mut tasks).await;
    products::begin(&universe, &operator, &mut tasks).await;
    slotted::begin(&universe, &operator, &mut tasks).await;
    others::everyone(&universe, &mut rng, &mut tasks);
    disturbances::begin(&universe, &mut tasks);
    foreign::found(&universe).await;
    let (births, mut born) = tokio::sync::mpsc::unbounded_channel();
    let mut breeder = Breeder { universe: Arc::clone(&universe), rng: rng.fork(), births, born: 0 };
    let processes: Vec<Process> = (0..scenario.processes).map(|_| breeder.process()).collect();
    let mut all = processes.clone();
    let fate_rng = rng.fork();
    tasks.spawn(others::fate(Arc::clone(&universe), processes, move || breeder.process(), fate_rng));
    let mut judged_at = 0;
    let mut last = Instant::now();
    let mut steps = 0;
    while !universe.is_over() {
        while let Ok((process, caller)) = born.try_recv() {
            tasks.spawn(process.ice.on(Caller::live(caller)));
            if !all.iter().any(|known: &Process| known.name == process.name) {
                all.push(process);
            }
        }
        sleep(Duration::from_millis(50)).await;
        let (now, error) = (universe.time(), scenario.clock_error.into());
        universe.check(universe.ledger(|ledger| ledger.slots_come_back(now, error)));
        if universe.steps() >= judged_at {
            judged_at = universe.steps() + 50;
            universe.check(universe.record(|record| record.judged()));
        }
        if universe.steps() > steps {
            (steps, last) = (universe.steps(), Instant::now());
        } else if last.elapsed() > WIND_DOWN {
            universe.violated("nothing happens any more".into());
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                universe.violated(format!("a task panicked: {error}"));
            }
        }
    }
    if !scenario.ends_abruptly {
        wind_down(&universe, tasks).await;
    }
    (universe, all)
}

/// Requests that AWS refused for their signatures.
fn count_refused_signatures(universe: &Universe, processes: &[Process]) {
    let refused = processes.iter().map(|process| process.dynamo.faults().refused_signatures()).sum();
    universe.count_many("a request is signed by a wrong clock", refused);
}

/// Everyone comes to an end by himself, and in time.
async fn wind_down(universe: &Arc<Universe>, mut tasks: JoinSet<()>) {
    let end = tokio::time::timeout(WIND_DOWN, async {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                universe.violated(format!("a task panicked: {error}"));
            }
        }
    });
    if end.await.is_err() {
        universe.violated(format!("{} tasks did not come to an end", tasks.len()));
    }
}

/// Makes processes, and sends their callers to whoever runs them.
struct Breeder {
    universe: Arc<Universe>,
    rng: Rng,
    births: tokio::sync::mpsc::UnboundedSender<(Process, Caller)>,
    born: usize,
}

impl Breeder {
    fn process(&mut self) -> Process {
        let scenario = &self.universe.scenario;
        let (leases, unavailable) = scenario.settings(&mut self.rng);
        let admits = Admits::drawn(&mut self.rng);
        let ttl = scenario.lease_ttl;
        let rates = scenario.buckets.iter().filter(|bucket| !bucket.is_concurrent());
        let prefetched: Vec<&str> = rates.filter(|_| scenario.prefetches).map(BucketPlan::name).collect();
        let settings = |client: sluice_sdk::ClientBuilder| {
            let client =
                client.leases(leases).on_unavailable(unavailable).lease_ttl(ttl).prefetch(&prefetched);
            client.admission(admits.mode).staleness(admits.staleness)
        };
        let mut process = self.universe.process(&format!("process-{}", self.born), Role::Process, settings);
        // A lease outlasts it: what is forgotten is given back by its own process.
        let mut patience = ReservationConfig::default();
        patience.max_reservations = self.rng.usize(1..=6);
        (patience.max_reservation_age, patience.stale_cleanup_interval) =
            (ttl / 3, Duration::from_millis(200));
        let tracker = process.client.reservations(patience);
        tracker.start();
        process.tracker = Some(tracker);
        self.born += 1;
        let most = scenario.clock_error;
        process.set_clock_error(self.rng.i64(-most..=most));
        for _ in 0..scenario.callers_per_process {
            let caller = Caller {
                universe: Arc::clone(&self.universe),
                process: process.clone(),
                rng: self.rng.fork(),
                has_leases: leases == Leases::All,
                answers_alone: unavailable != OnUnavailable::Error,
                admits,
            };
            let _ = self.births.send((process.clone(), caller));
        }
        process
    }
}

/// Nothing goes wrong any more, every holder is gone: what is left must add up, and two sweeps must leave
/// nothing behind.
async fn quiet(universe: &Arc<Universe>, processes: &[Process]) {
    universe.calm_down();
    count_refused_signatures(universe, processes);
    foreign::remove(universe).await;
    processes.iter().for_each(|process| process.thaw(universe.time(), Resumed::Set));
    // Requests that are late, releases that go on by themselves.
    sleep(Duration::from_secs(30)).await;
    vandal::mend_all(universe).await;
    universe.check(universe.record(|record| record.judged()));
    if universe.scenario.ends_abruptly {
        outlive(universe, processes).await;
    } else {
        accounts_add_up(universe, processes);
    }
    if universe.verdict().is_err() {
        return;
    }
    if universe.scenario.abandoned_for_days {
        universe.dynamo.clock().advance(Duration::from_secs(8 * 24 * 60 * 60));
        others::ttl_sweep(universe);
    } else {
        universe.dynamo.clock().advance(ALL_LEASES_ENDED);
    }
    sweeps::last(universe).await;
    slotted::ends(universe).await;
    nothing_is_left(universe).await;
}

/// Clients that were in the middle of something when their runtime was dropped still serve.
async fn outlive(universe: &Universe, processes: &[Process]) {
    for process in processes.iter().filter(|process| process.is_alive()) {
        universe.act("a client outlives its runtime", &process.name);
        for bucket in &universe.scenario.buckets {
            let slot = process.client.slot(bucket.name()).timeout(Duration::from_secs(5));
            let call = slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(()));
            if tokio::time::timeout(Duration::from_secs(60), call).await.is_err() {
                universe.violated(format!(
                    "{} hangs on {} in its second runtime",
                    process.name,
                    bucket.name()
                ));
            }
        }
    }
    sleep(Duration::from_secs(30)).await;
}

/// What was taken was used, or there was an attempt to give it back, or an excuse.
fn accounts_add_up(universe: &Universe, processes: &[Process]) {
    let calm = universe.scenario.is_undisturbed();
    for process in processes.iter().filter(|process| process.is_alive()) {
        let accounts = universe.ledger(|ledger| ledger.accounts.clone());
        for ((name, bucket), account) in accounts.iter().filter(|((name, _), _)| **name == *process.name) {
            // Where time jumps, a start may be past before its call is given up, and its tokens have flowed
            // back. What was taken ahead of demand may have, too.
            let stands_still = universe.scenario.upheaval || universe.scenario.conditions.stand_still();
            if !stands_still && !universe.scenario.prefetches {
                universe.check(account.is_used_up(name, bucket));
            }
        }
        let kept = process
            .tracker
            .as_ref()
            .map_or(0, sluice_sdk::reservations::ReservationTracker::reservation_count);
        if kept > 0 {
            universe.violated(format!("the tracker of {} still holds {kept} grants", process.name));
        }
        let orderly = calm && !universe.scenario.upheaval && !universe.scenario.vandal;
        let outlast = leases_outlast_their_calls(universe.scenario.lease_ttl, universe.scenario.clock_error);
        let (swept, abandoned) = universe.ledger(|ledger| {
            let count = |map: &BTreeMap<String, u64>| map.get(&*process.name).copied().unwrap_or(0);
            (count(&ledger.swept), count(&ledger.abandoned))
        });
        if orderly && outlast && swept > abandoned {
            let name = &process.name;
            universe.violated(format!("{name} left {abandoned} leases to be swept, and {swept} were"));
        }
    }
}

/// Whether a lease lasts until its holder renews or releases it, whatever the clocks say: with exact ones 2 s
/// are enough. The clock of a holder that is behind ends its lease sooner, and that of a sweeper that is
/// ahead takes it sooner, each by its error.
fn leases_outlast_their_calls(lease_ttl: Duration, clock_error: i64) -> bool {
    lease_ttl >= Duration::from_secs(2) + 2 * Duration::from_micros(clock_error.unsigned_abs())
}

/// Seeds 2000581 and 2000301: leases of 2 s by a clock that was 1.9 s behind had ended before they were due
/// to be renewed.
#[test]
fn a_lease_that_clocks_may_end_before_its_renewal_is_no_fault_of_its_process() {
    let two = Duration::from_secs(2);
    assert!(leases_outlast_their_calls(two, 0));
    assert!(!leases_outlast_their_calls(two, 1_955_627));
    assert!(leases_outlast_their_calls(Duration::from_secs(6), 2_000_000));
}

/// Each bucket is back at what its limits say, and no lease is left.
async fn nothing_is_left(universe: &Universe) {
    let client: Client = universe.dynamo.client(crate::universe::TABLE);
    let leases: Vec<String> =
        client.ops().leases().await.expect("leases").into_iter().map(|row| row.key).collect();
    if !leases.is_empty() {
        universe.violated(format!("after two sweeps there are still {}", leases.join(", ")));
    }
    for bucket in client.ops().buckets().await.expect("buckets") {
        let read = bucket.bucket.expect("a bucket that can be read");
        if read.limit().is_concurrent() && read.tokens() != read.limit().capacity() {
            let (free, of) = (read.tokens(), read.limit().capacity());
            universe.violated(format!("{}: {free} slots of {of} are free when all are back", bucket.key));
        }
        let known = universe.ledger(|ledger| ledger.bucket(&bucket.key).map(|row| (row.version, row.tokens)));
        if known != Some((i128::from(read.version()), i128::from(read.tokens().micros()))) {
            universe.violated(format!("{}: {known:?} is in the ledger, {read:?} in the table", bucket.key));
        }
    }
}
