//! Products that share buckets: each bucket has shares, some for background work, that are declared, changed
//! and removed in the middle of the run. Callers name a share, one that the bucket lacks, or none; a client
//! that knows of none takes of the rest.
//!
//! Judged here and by the history: the window bound of the whole bucket and of each line; that a grant is of
//! the line that it says, and a background borrower left a call more; that a refusal has a reason in the own
//! line. In orderly runs (no faults, nobody who leaves a start behind, no debts) the history judges the
//! guarantees too. The rest is the ledger's (`ledger/shares.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, DeclaredShare, Dimension, Limit, LimitType, Rate, ShareName, Split};
use sluice_sdk::Leases;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::conditions::stream;
use crate::ledger::SHARED;
use crate::others;
use crate::process::{Process, Role};
use crate::row::Micros;
use crate::universe::Universe;

mod caller;

use caller::{Caller, Carried};

/// Shares that a bucket may have, and one that it never has.
pub(crate) const SHARES: [&str; 3] = ["search", "batch", "checkout/bulk"];
pub(crate) const UNKNOWN: &str = "nobody";

/// The longest that a caller waits: with its wait, no process books further ahead than the ledger allows.
const PATIENCE: std::ops::RangeInclusive<u64> = 200..=6_000;

/// Longer than any run.
pub(crate) const FOREVER: Duration = Duration::from_secs(1_000_000_000);

pub(crate) fn names() -> [String; 2] {
    ["a", "b"].map(|name| format!("{SHARED}{name}#rpm"))
}

/// Declares the buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    let scenario = &universe.scenario;
    if scenario.lulls || !scenario.conditions.shares {
        return;
    }
    universe.count("buckets have shares");
    let mut rng = stream(scenario.seed, "who has shares");
    let is_orderly = scenario.is_undisturbed() && !scenario.upheaval && !scenario.ends_abruptly && rng.bool();
    for name in names() {
        let split = split(&mut rng, None);
        declare(universe, &name, &split);
        let dimension = Dimension::new(&name).unwrap();
        universe.undisturbed(operator.client.ops().apply_split(&dimension, &split)).await.unwrap();
    }
    let registrar = universe.process("registrar", Role::Operator, |client| client);
    registrar.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
    tasks.spawn(changes_shares(Arc::clone(universe), registrar, rng.fork()));
    if scenario.strangers && !is_orderly {
        let stranger = universe.process("stranger-of-shares", Role::Stranger, |client| client);
        tasks.spawn(knows_no_shares(Arc::clone(universe), stranger, rng.fork()));
    }
    let queue = Arc::default();
    if is_orderly {
        universe.count("guarantees are judged");
    } else {
        universe.record(|record| names().iter().for_each(|name| record.guarantees_nothing(name)));
    }
    for at in 0..rng.u32(2..=3) {
        let product = Product { universe: Arc::clone(universe), at, is_orderly, queue: Arc::clone(&queue) };
        tasks.spawn(product.lives(rng.fork()));
    }
}

/// Tells the ledger what the whole of a bucket may be.
pub(crate) fn declare(universe: &Universe, bucket: &str, split: &Split) {
    let rate = sluice_history::pico_per_sec(&split.whole().refill_rate().to_string()).unwrap();
    let whole = (Micros::from(split.whole().capacity().micros()), i128::from(rate));
    universe.ledger(|ledger| ledger.declares(bucket, whole));
}

/// A limit of some calls a second, mostly that which it was, split at random.
fn split(rng: &mut Rng, was: Option<&Split>) -> Split {
    let whole = match was {
        Some(was) if rng.u32(0..3) > 0 => *was.whole(),
        _ => {
            let capacity = Amount::from_tokens(rng.i32(8..=24));
            let refill = Rate::per(capacity, Duration::from_millis(rng.u64(1_000..=10_000))).unwrap();
            Limit::rate(LimitType::Requests, capacity, refill, Cost::ONE).unwrap()
        }
    };
    let tokens = i32::try_from(whole.capacity().micros() / 1_000_000).unwrap();
    let mut declared = Vec::new();
    for name in SHARES {
        if rng.u32(0..4) == 0 {
            continue;
        }
        // Half a token more, so that none is lost by rounding down.
        let its = rng.i32(1..=tokens / 5);
        let part = (f64::from(its) + 0.5) / f64::from(tokens);
        declared.push(DeclaredShare {
            name: ShareName::new(name).unwrap(),
            part: format!("{part:.4}").parse().unwrap(),
            floor: rng.bool().then(|| Amount::from_tokens(rng.i32(0..=its))),
            background: rng.u32(0..3) == 0,
        });
    }
    Split::new(whole, &declared).unwrap()
}

/// Declares, changes and removes shares, changes limits, and penalizes.
async fn changes_shares(universe: Arc<Universe>, operator: Process, mut rng: Rng) {
    let mut splits: Vec<(Dimension, Split)> = Vec::new();
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(1_000..=12_000))).await;
        let name = names()[rng.usize(0..2)].clone();
        let dimension = Dimension::new(&name).unwrap();
        let known = splits.iter().position(|(of, _)| *of == dimension);
        let next = split(&mut rng, known.map(|at| &splits[at].1));
        declare(&universe, &name, &next);
        universe.act("shares change", &format!("{name}: {next:?}"));
        if rng.u32(0..4) == 0 {
            // A limit alone: each share keeps its part.
            let _ = operator.client.ops().apply_limit(&dimension, next.whole()).await;
            continue;
        }
        let _ = operator.client.ops().apply_split(&dimension, &next).await;
        match known {
            Some(at) => splits[at].1 = next,
            None => splits.push((dimension, next)),
        }
    }
}

/// A client in another language: it takes what the row's own attributes say that there is.
async fn knows_no_shares(universe: Arc<Universe>, process: Process, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(50..=2_000))).await;
        others::take_tokens(&universe, &process, &names()[rng.usize(0..2)]).await;
    }
}

/// One process after another, each with some callers.
struct Product {
    universe: Arc<Universe>,
    at: u32,
    is_orderly: bool,
    queue: Arc<Mutex<VecDeque<Carried>>>,
}

impl Product {
    async fn lives(self, mut rng: Rng) {
        let mut born = 0;
        while !self.universe.is_over() {
            let default: Option<&'static str> = rng.choice(SHARES).filter(|_| rng.bool());
            let process = self.process(&format!("product-{}-{born}", self.at), default, &mut rng);
            let mut callers = JoinSet::new();
            for _ in 0..rng.u32(2..=4) {
                let (universe, queue) = (Arc::clone(&self.universe), Arc::clone(&self.queue));
                let (process, rng, is_orderly) = (process.clone(), rng.fork(), self.is_orderly);
                let caller = Caller { universe, process, default, rng, queue, is_orderly };
                callers.spawn(caller.live());
            }
            let lifetime = Duration::from_millis(rng.u64(5_000..=60_000));
            let dies = self.universe.scenario.upheaval && rng.bool();
            let end = self.all_end(&process, &mut callers);
            let longest = if dies { lifetime } else { FOREVER };
            if tokio::time::timeout(longest, end).await.is_err() {
                self.universe.act("a product dies", &process.name);
                process.kill();
                callers.shutdown().await;
            }
            born += 1;
        }
    }

    async fn all_end(&self, process: &Process, callers: &mut JoinSet<()>) {
        while let Some(ended) = callers.join_next().await {
            if let Err(error) = ended {
                self.universe.violated(format!("a caller of {} panicked: {error}", process.name));
            }
        }
    }

    fn process(&self, name: &str, share: Option<&str>, rng: &mut Rng) -> Process {
        let scenario = &self.universe.scenario;
        let leases = if !self.is_orderly && rng.u32(0..6) == 0 { Leases::All } else { Leases::Concurrent };
        let share: Option<ShareName> = share.map(|name| name.parse().unwrap());
        let ahead = names();
        let ahead: Vec<&str> = ahead.iter().map(String::as_str).filter(|_| self.prefetches()).collect();
        let process = self.universe.process(name, Role::Customer, |client| {
            let client =
                client.leases(leases).self_heal(false).lease_ttl(scenario.lease_ttl).prefetch(&ahead);
            client.share(share.clone()).note_use(false)
        });
        process.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
        process
    }

    fn prefetches(&self) -> bool {
        self.universe.scenario.prefetches && !self.is_orderly
    }
}
