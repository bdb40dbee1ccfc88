//! Products that share slots: each share has a row of its own. Operators declare, change and remove shares
//! and limits in the middle of the run, also two at a time, and some are cut off between two steps. Callers
//! name a share, one that the bucket lacks, or none; some crash.
//!
//! Judged here and by the history: no line grants more than it has; that a grant is of the line that it says;
//! in runs whose shares stay and where nothing goes wrong, whoever waits for a slot of his share has it in
//! time. Where every request is answered in time, the history judges what shares are guaranteed, also beside
//! holders that crash, cool-downs, and operators. At the end an operator comes to its end, and each share has
//! all of its slots at once. The rest is the ledger's (`ledger/slot_rows.rs`).

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, DeclaredShare, Dimension, Limit, ShareName, Split};
use sluice_sdk::{Client, Grant, Leases, Outcome, Request};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::conditions::stream;
use crate::ledger::{COMMON, SLOTTED};
use crate::process::{Process, Role};
use crate::products::{FOREVER, SHARES};
use crate::row::Micros;
use crate::universe::Universe;

mod caller;

use caller::Caller;

pub(crate) fn names() -> [String; 2] {
    ["a", "b"].map(|name| format!("{SLOTTED}{name}#concurrent"))
}

fn dimension(name: &str) -> Dimension {
    Dimension::new(name).unwrap()
}

fn have_shares(universe: &Universe) -> bool {
    !universe.scenario.lulls && universe.scenario.conditions.slot_shares
}

/// Declares the buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    if !have_shares(universe) {
        return;
    }
    universe.count("slots have shares");
    let scenario = &universe.scenario;
    let mut rng = stream(scenario.seed, "who has shares of slots");
    let is_judged = scenario.is_undisturbed() && !scenario.upheaval;
    let manner = match rng.u32(0..3) {
        0 if is_judged && !scenario.ends_abruptly => Manner::Orderly,
        1 | 2 if is_judged => Manner::Busy,
        _ => Manner::Usual,
    };
    for name in names() {
        let split = split(&mut rng);
        declare(universe, operator, &name, split.whole());
        universe.record(|record| record.has_slots(&name));
        universe.undisturbed(operator.client.ops().apply_split(&dimension(&name), &split)).await.unwrap();
        if !is_judged {
            universe.record(|record| record.guarantees_nothing(&name));
        }
    }
    if is_judged {
        universe.count("guarantees of slots are judged");
    }
    let registrars = if manner == Manner::Orderly { 0 } else { rng.u32(0..=2) };
    for at in 0..registrars {
        let registrar = universe.process(&format!("slot-registrar-{at}"), Role::Operator, |client| client);
        registrar.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
        tasks.spawn(changes_shares(Arc::clone(universe), registrar, rng.fork()));
    }
    for at in 0..2 {
        let product = Product { universe: Arc::clone(universe), at, manner };
        tasks.spawn(product.lives(rng.fork()));
    }
}

/// How callers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Usual,
    /// Nothing goes wrong, and the shares stay: whoever waits has a slot in time.
    Orderly,
    /// They want more than there is, and hold it for long.
    Busy,
}

impl Manner {
    const fn callers(self) -> std::ops::RangeInclusive<u32> {
        match self {
            Self::Busy => 5..=8,
            Self::Usual | Self::Orderly => 2..=3,
        }
    }

    /// The longest that a call lasts, in milliseconds.
    const fn work(self) -> u64 {
        match self {
            Self::Usual => 1_000,
            Self::Orderly => 200,
            Self::Busy => 4_000,
        }
    }

    /// How long a caller waits, in milliseconds. Of orderly callers nobody waits so long: all before it are
    /// done sooner.
    const fn patience(self) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::Usual => 200..=6_000,
            Self::Orderly => 20_000..=20_000,
            Self::Busy => 2_000..=30_000,
        }
    }

    /// The longest pause between two calls, in milliseconds.
    const fn pause(self) -> u64 {
        match self {
            Self::Usual => 1_800,
            Self::Orderly => 500,
            Self::Busy => 300,
        }
    }
}

/// Tells the ledger what the whole of a bucket may be.
fn declare(universe: &Universe, operator: &Process, bucket: &str, whole: &Limit) {
    let (limit, now) = (Micros::from(whole.capacity().micros()), universe.time());
    universe.ledger(|ledger| ledger.declares_slots(bucket, &operator.name, limit, now));
}

/// Some slots, split at random.
fn split(rng: &mut Rng) -> Split {
    let slots = rng.i32(4..=9);
    let mut declared = Vec::new();
    for name in SHARES {
        let its = rng.i32(1..=(slots / 3).min(2));
        if rng.u32(0..4) == 0 {
            continue;
        }
        // Half a slot more, so that none is lost by rounding down.
        let part = (f64::from(its) + 0.5) / f64::from(slots);
        declared.push(DeclaredShare {
            name: ShareName::new(name).unwrap(),
            part: format!("{part:.4}").parse().unwrap(),
            floor: rng.bool().then(|| Amount::from_tokens(rng.i32(0..=its))),
            background: rng.u32(0..3) == 0,
        });
    }
    let whole = Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap();
    Split::new(whole, &declared).unwrap_or_else(|_| Split::from(whole))
}

/// Declares, changes and removes shares, and changes limits; now and then it goes away in the middle.
async fn changes_shares(universe: Arc<Universe>, operator: Process, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(2_000..=20_000))).await;
        let name = names()[rng.usize(0..2)].clone();
        let next = split(&mut rng);
        declare(&universe, &operator, &name, next.whole());
        universe.act("slots: shares change", &format!("{}: {name}: {next:?}", operator.name));
        let (dimension, ops) = (dimension(&name), operator.client.ops());
        match rng.u32(0..6) {
            // A limit alone: each share keeps its part.
            0 => drop(ops.apply_limit(&dimension, next.whole()).await),
            1 => {
                let after = Duration::from_millis(rng.u64(0..400));
                if timeout(after, ops.apply_split(&dimension, &next)).await.is_err() {
                    universe.count("slots: a change of shares is cut off");
                }
            }
            _ => drop(ops.apply_split(&dimension, &next).await),
        }
    }
}

/// One process after another, each with some callers.
struct Product {
    universe: Arc<Universe>,
    at: u32,
    manner: Manner,
}

impl Product {
    async fn lives(self, mut rng: Rng) {
        let mut born = 0;
        while !self.universe.is_over() {
            let default: Option<&'static str> = rng.choice(SHARES).filter(|_| rng.bool());
            let process = self.process(&format!("slots-{}-{born}", self.at), default, &mut rng);
            let mut callers = JoinSet::new();
            for _ in 0..rng.u32(self.manner.callers()) {
                let (universe, process, rng) = (Arc::clone(&self.universe), process.clone(), rng.fork());
                let caller = Caller { universe, process, default, rng, manner: self.manner };
                callers.spawn(caller.live());
            }
            let dies = self.universe.scenario.upheaval && rng.bool();
            let lifetime = Duration::from_millis(rng.u64(5_000..=60_000));
            let end = self.all_end(&process, &mut callers);
            if timeout(if dies { lifetime } else { FOREVER }, end).await.is_err() {
                self.universe.act("slots: a product dies", &process.name);
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
        let leases = if rng.bool() { Leases::Inline } else { Leases::Concurrent };
        let share: Option<ShareName> = share.map(|name| name.parse().unwrap());
        let process = self.universe.process(name, Role::Customer, |client| {
            let client = client.leases(leases).self_heal(false).lease_ttl(scenario.lease_ttl);
            client.share(share.clone()).note_use(false)
        });
        process.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
        process
    }
}

/// Every holder is gone. Whatever was left behind, an operator comes to its end, and each share has what it
/// is promised.
pub(crate) async fn ends(universe: &Arc<Universe>) {
    if !have_shares(universe) || universe.verdict().is_err() {
        return;
    }
    let operator = universe.process("last slot-registrar", Role::Operator, |client| client);
    let asks = universe.process("asks for all slots", Role::Customer, |client| client);
    let mut rng = stream(universe.scenario.seed, "the last shares of slots");
    for name in names() {
        let split = split(&mut rng);
        declare(universe, &operator, &name, split.whole());
        let (dimension, ops) = (dimension(&name), operator.client.ops());
        if let Err(error) = ops.apply_split(&dimension, &split).await {
            universe.violated(format!("{name}: its last shares were not declared: {error}"));
            return;
        }
        let bucket = ops.bucket(&dimension).await.unwrap().unwrap();
        if !ops.has_split(&bucket, &split).await.unwrap() {
            universe.violated(format!(
                "{name}: an operator came to its end, and it is not as it was declared: {bucket:?}"
            ));
        }
        universe.count("judged: an operator of slots comes to its end");
        universe.check(each_share_has_its_slots(&asks.client, &name, &split).await);
        universe.count("judged: each share has its slots");
    }
}

/// All of them at once, and nobody has more.
async fn each_share_has_its_slots(client: &Client, name: &str, split: &Split) -> Result<(), String> {
    let own = |share: &str, limit: &Limit| (share.to_owned(), limit.capacity());
    let shares = split.shares().iter().map(|share| own(share.name.as_str(), &share.limit));
    let mut held: Vec<Grant> = Vec::new();
    for (line, slots) in std::iter::once(own(COMMON, split.common())).chain(shares) {
        let request = Request::from(name).cost(name, Cost::new(slots).unwrap()).share(line.clone());
        match client.acquire(request).await {
            Ok(Outcome::Granted(grant)) if grant.paid_from(name) == Some(&*line) => held.push(grant),
            other => return Err(format!("{name}: callers of {line} ask for its {slots} slots: {other:?}")),
        }
    }
    if let Ok(Outcome::Granted(grant)) = client.acquire(Request::from(name)).await {
        return Err(format!("{name}: all of its slots are in use, and one more was granted: {grant:?}"));
    }
    for grant in held {
        grant.release().await.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}
