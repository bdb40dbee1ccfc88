//! What goes wrong for a while, not for one request: brown-outs, throttling, processes that stand still.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use sluice_testkit::{Call, Fault, Operation};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::conditions::stream;
use crate::cost;
use crate::faults::Drawn;
use crate::machine::Resumed;
use crate::process::Process;
use crate::universe::Universe;
use crate::wire::{is_write, keys_of, read_keys};

/// Longer than this is not answered in time: its sender gives it up.
const IN_TIME: Duration = Duration::from_millis(900);

/// What lasts at a moment.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    is_browned_out: bool,
    throttled: Option<Throttled>,
    /// Draws what each request meets. Set where there is anything to draw.
    pub(crate) rng: Rng,
}

/// Which requests are throttled.
#[derive(Clone, Debug)]
struct Throttled {
    /// All rows where it is none.
    key: Option<String>,
    reads: bool,
    writes: bool,
}

impl Throttled {
    fn drawn(universe: &Universe, rng: &mut Rng) -> Self {
        let key = rng.bool().then(|| rng.choice(&universe.scenario.buckets).unwrap().name().to_owned());
        let (reads, writes) = [(true, true), (true, false), (false, true)][rng.usize(0..3)];
        Self { key, reads, writes }
    }

    fn is_of(&self, call: Call<'_>) -> bool {
        let is_write = is_write(call);
        // A scan reads rows of every key, and the partition of one is a part of it alone.
        let is_of_key = |key: &String| match call.operation {
            Operation::Scan => false,
            Operation::BatchGetItem => read_keys(call).contains(key),
            _ => keys_of(call).contains(key),
        };
        (if is_write { self.writes } else { self.reads }) && self.key.as_ref().is_none_or(is_of_key)
    }
}

impl Disturbances {
    pub(crate) fn of(seed: u64) -> Self {
        Self { is_browned_out: false, throttled: None, rng: stream(seed, "disturbances") }
    }

    /// What a request meets of what lasts at this moment, or by itself.
    pub(crate) fn meets(&mut self, call: Call<'_>, has_broken_bodies: bool) -> Option<Drawn> {
        let is_write = is_write(call);
        if self.throttled.as_ref().is_some_and(|throttled| throttled.is_of(call)) {
            return Some(Drawn {
                name: "throttled for a while",
                fault: throttled(call, &mut self.rng),
                in_doubt: false,
            });
        }
        if self.is_browned_out {
            let takes = Duration::from_millis(self.rng.u64(1_000..=3_000));
            let fault = if self.rng.bool() { Fault::Delay(takes) } else { Fault::DelayReply(takes) };
            return Some(Drawn { name: "slow in a brown-out", fault, in_doubt: is_write });
        }
        if has_broken_bodies && self.rng.u32(0..40) == 0 {
            let (name, fault) = match self.rng.u32(0..3) {
                0 => ("a body that stalls", Fault::StallBody),
                1 => ("a body that is cut", Fault::CutBody),
                _ => ("a body that trickles", Fault::Trickle(Duration::from_millis(self.rng.u64(1..=50)))),
            };
            return Some(Drawn { name, fault, in_doubt: is_write });
        }
        None
    }
}

/// What a healthy request takes, as a fault where that is too long.
pub(crate) fn latency(
    fault: Fault,
    is_write: bool,
    scale: impl Fn(Duration) -> Duration,
) -> Result<Fault, Drawn> {
    let (fault, takes) = match fault {
        Fault::Delay(usual) => (Fault::Delay(scale(usual)), scale(usual)),
        Fault::DelayReply(usual) => (Fault::DelayReply(scale(usual)), scale(usual)),
        other => (other, Duration::ZERO),
    };
    if takes < IN_TIME {
        Ok(fault)
    } else {
        Err(Drawn { name: "slower than an attempt may be", fault, in_doubt: is_write })
    }
}

fn throttled(call: Call<'_>, rng: &mut Rng) -> Fault {
    if call.operation == Operation::TransactWriteItems && rng.bool() {
        let code = ["ThrottlingError", "ProvisionedThroughputExceeded"][rng.usize(0..2)];
        let actions = keys_of(call).len().max(1);
        let at_fault = rng.usize(0..actions);
        let codes: Vec<&str> =
            (0..actions).map(|action| if action == at_fault { code } else { "None" }).collect();
        return Fault::cancelled(&codes);
    }
    if rng.bool() {
        return Fault::throttled();
    }
    Fault::service("ThrottlingException", 400, json!({ "message": "injected" }))
}

/// Everything of this kind that the seed has.
pub(crate) fn begin(universe: &Arc<Universe>, tasks: &mut JoinSet<()>) {
    let (conditions, seed) = (universe.scenario.conditions, universe.scenario.seed);
    if conditions.brown_outs {
        tasks.spawn(brown_outs(Arc::clone(universe), stream(seed, "when brown-outs are")));
    }
    if conditions.throttling {
        tasks.spawn(throttling(Arc::clone(universe), stream(seed, "when throttling is")));
    }
    if conditions.set_clocks {
        tasks.spawn(set_clocks(Arc::clone(universe), stream(seed, "whose clock is set")));
    }
}

async fn brown_outs(universe: Arc<Universe>, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(1_000..=20_000))).await;
        let lasts = Duration::from_millis(rng.u64(1_500..=8_000));
        universe.act("a brown-out begins", &format!("for {lasts:?}"));
        universe.disturbances(|now| now.is_browned_out = true);
        sleep(lasts).await;
        universe.disturbances(|now| now.is_browned_out = false);
    }
}

async fn throttling(universe: Arc<Universe>, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(1_000..=20_000))).await;
        let throttled = Throttled::drawn(&universe, &mut rng);
        // Many are short, as of a partition that is split; the longest outlast every timeout.
        let lasts =
            Duration::from_millis(if rng.bool() { rng.u64(1_000..=4_000) } else { rng.u64(4_000..=20_000) });
        universe.act("throttling begins", &format!("{throttled:?} for {lasts:?}"));
        universe.disturbances(|now| now.throttled = Some(throttled));
        sleep(lasts).await;
        universe.disturbances(|now| now.throttled = None);
    }
}

/// A process stands still for a while, and its clocks go on.
pub(crate) fn freezes(universe: &Arc<Universe>, process: &Process, rng: &mut Rng) {
    let lasts =
        Duration::from_millis(if rng.bool() { rng.u64(1_000..=6_000) } else { rng.u64(6_000..=60_000) });
    if stands_still(universe, process, lasts, None) {
        universe.act("a process is frozen", &format!("{} for {lasts:?}", process.name));
    }
}

/// A machine stands still for a while, and its clocks with it.
pub(crate) fn snapshots(universe: &Arc<Universe>, process: &Process, rng: &mut Rng) {
    let lasts =
        Duration::from_millis(if rng.bool() { rng.u64(500..=6_000) } else { rng.u64(6_000..=60_000) });
    let resumed = [Resumed::Set, Resumed::Unset, Resumed::Counted][rng.usize(0..3)];
    if stands_still(universe, process, lasts, Some(resumed)) {
        universe.act("a machine is stopped", &format!("{} for {lasts:?}, and {resumed:?}", process.name));
    }
}

/// False where it stands already.
fn stands_still(
    universe: &Arc<Universe>,
    process: &Process,
    lasts: Duration,
    resumed: Option<Resumed>,
) -> bool {
    let now = universe.time();
    if process.ice.was_frozen_since(now) {
        return false;
    }
    process.ice.freeze(now);
    if resumed.is_some() {
        process.machine.stop(i64::try_from(now).unwrap());
    }
    universe.ledger(|ledger| ledger.stopped(&process.name, now));
    let (universe, process) = (Arc::clone(universe), process.clone());
    tokio::spawn(async move {
        sleep(lasts).await;
        match resumed {
            None => universe.act("a process thaws", &process.name),
            Some(Resumed::Set) => universe.act("a machine is resumed, and its clock set", &process.name),
            Some(Resumed::Unset) => {
                universe.act("a machine is resumed, and neither clock tells", &process.name)
            }
            Some(Resumed::Counted) => {
                universe.act("a machine is resumed, and its clock is behind", &process.name)
            }
        }
        process.thaw(universe.time(), resumed.unwrap_or(Resumed::Set));
    });
    true
}

/// Someone sets the clock of a machine, whoever works there: not of those whose requests are counted, since
/// each setting costs a read.
async fn set_clocks(universe: Arc<Universe>, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(300..=10_000))).await;
        let machines = universe.machines.lock().unwrap().clone();
        let set: Vec<_> = machines.into_iter().filter(|(name, _)| !name.starts_with(cost::NAMES)).collect();
        let Some((name, machine)) = rng.choice(&set) else { continue };
        let by = machine.is_set(i64::try_from(universe.time()).unwrap(), &mut rng);
        universe.act("a clock is set", &format!("{name} by {by} us"));
    }
}
