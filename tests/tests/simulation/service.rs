//! Service: whoever asks within its part of a limit, and waits as it is told, gets at least 90 % of what it
//! asks for.
//!
//! Customers share two buckets with nobody else: tokens, which they ask for by `acquire` and come back for
//! exactly after the wait that they were told, and slots, which they wait for in a `slot`. Together they ask
//! for four fifths of the tokens, or for as many slots as leave a third of the time. What is asked for counts
//! as served where it is had within `PATIENCE` of the moment at which it was due.
//!
//! In half of the seeds with shares, the tokens are a share of a bucket, and a neighbour asks for all that it
//! can borrow: the customers get their part beside it, too, and what it takes excuses nothing.
//!
//! Excused, and counted apart, is what was due or asked for within `AFTER` of a fault that a request of the
//! same process met, and waits for slots while a lease that nobody uses holds one: its take was delivered
//! after its caller had gone, or its release met faults; and waits for tokens in which nine tenths of what
//! flowed back was taken: by takes whose replies were lost and that took twice, or by those who came back
//! from an outage. A call for tokens that is overdue before it is asked for (by a second after faults, else
//! by `PATIENCE`) is not made, and counts as excused: the call before took so long, which counts by itself.
//! Nothing else is excused: not what other processes met, no clock that is wrong or set.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, DeclaredShare, Dimension, Limit, LimitType, Rate, Split};
use sluice_sdk::{Leases, Outcome, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::conditions::stream;
use crate::ledger::{COMMON, name_of_line};
use crate::liveness::{Public, Stopwatch};
use crate::process::{Process, Role};
use crate::products::declare;
use crate::row::Micros;
use crate::times;
use crate::universe::Universe;
use crate::waits::Wait;

/// A bucket of their own, or one with shares.
const TOKENS: [&str; 2] = ["customer#rpm", "shared#customer#rpm"];
const SHARE: &str = "customer";
/// What it borrows excuses nothing.
const NEIGHBOUR: &str = "neighbour";
const SLOTS: &str = "customer#concurrent";

/// What is had so long after it was due was had in time.
const PATIENCE: Duration = Duration::from_secs(5);

/// What fell due so long ago, while requests met faults, is not asked for: all of it together would be more
/// than flows back.
const OVERDUE: Duration = Duration::from_secs(1);

/// A fault excuses what is due or asked for so long after it.
const AFTER: Micros = 2_000_000;

/// Longer than any slot.
const LEASE: Duration = Duration::from_secs(10);

/// A lease that lives longer is in nobody's use. Slots are held for less than half a second.
const UNUSED: Micros = 5_000_000;

/// A request whose fault was drawn at its sending is delivered no later than so much after it.
const UNDERWAY: Micros = 10_000_000;

/// Fewer say nothing.
const ASKED_AT_LEAST: u64 = 15;

/// What one customer asked for.
#[derive(Debug, Default)]
struct Served {
    asked: u64,
    in_time: u64,
    excused: u64,
}

/// Where customers ask, and how much.
struct Demand {
    /// The bucket of the tokens, and what customers have of it.
    bucket: &'static str,
    tokens: Limit,
    /// Between two calls of one customer for tokens.
    every: Duration,
    slots: Limit,
    /// How long a slot is held, and how long its holder stays away.
    holds: Duration,
    rests: Duration,
}

impl Demand {
    fn drawn(universe: &Universe, customers: u32, rng: &mut Rng) -> Self {
        let (capacity, per_second) = (rng.u32(1..=5), rng.u32(2..=12));
        // Who is slower than a bucket fills up is overtaken by those who are not. Twice what flows back
        // during the slowest requests is enough (docs/semantics.md, *What cannot be promised*).
        let meanwhile =
            universe.scenario.conditions.longest(2).mul_f64(per_second.into()).as_secs_f64().ceil();
        let has_shares = universe.scenario.conditions.shares
            && stream(universe.scenario.seed, "customers have a share").bool();
        // What a borrower leaves is a quarter.
        let capacity = capacity.max(meanwhile as u32) * if has_shares { 4 } else { 1 };
        let whole = Amount::from_tokens(capacity.try_into().unwrap());
        let refill = Rate::per(whole, Duration::from_secs(capacity.into()) / per_second).unwrap();
        let slots = rng.u32(1..=3).min(customers);
        let holds = Duration::from_millis(rng.u64(50..=400));
        // With its requests, and the pause until the next in line looks.
        let kept = holds + Duration::from_millis(200) + universe.scenario.conditions.slack(4);
        Self {
            bucket: TOKENS[usize::from(has_shares)],
            tokens: Limit::rate(LimitType::Requests, whole, refill, Cost::ONE).unwrap(),
            every: Duration::from_secs(customers.into()).mul_f64(1.25) / per_second,
            slots: Limit::concurrent(Amount::from_tokens(slots.try_into().unwrap()), Cost::ONE).unwrap(),
            holds,
            rests: (kept * customers * 3 / (slots * 2)).saturating_sub(kept).max(Duration::from_millis(50)),
        }
    }

    fn has_shares(&self) -> bool {
        self.bucket == TOKENS[1]
    }

    /// All of the bucket of the tokens: as much again, if the customers have a share of it.
    fn split(&self) -> Split {
        if !self.has_shares() {
            return self.tokens.into();
        }
        let twice = |amount: Amount| amount.plus(amount);
        let capacity = twice(self.tokens.capacity());
        let fills_in = self.tokens.refill_rate().time_for(self.tokens.capacity()).unwrap();
        let whole =
            Limit::rate(LimitType::Requests, capacity, Rate::per(capacity, fills_in).unwrap(), Cost::ONE);
        let half = DeclaredShare {
            name: SHARE.parse().unwrap(),
            part: "0.5".parse().unwrap(),
            floor: None,
            background: false,
        };
        Split::new(whole.unwrap(), &[half]).unwrap()
    }

    fn request(&self) -> Request<'static> {
        let request = Request::from(self.bucket);
        if self.has_shares() { request.share(SHARE) } else { request }
    }
}

/// A neighbour without a share, who wants all that there is.
async fn borrows(universe: Arc<Universe>, demand: Arc<Demand>) {
    let process =
        universe.process(NEIGHBOUR, Role::Customer, |client| client.self_heal(false).note_use(false));
    while !universe.is_over() {
        match process.client.acquire(demand.bucket).await {
            Ok(Outcome::Granted(grant)) => {
                if grant.paid_from(demand.bucket) == Some(SHARE) {
                    universe.count("a neighbour borrows of customers");
                }
                drop(grant.release().await);
            }
            Ok(Outcome::RetryIn(retry)) => sleep(retry.wait().max(Duration::from_millis(1))).await,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whether there are customers in a seed.
fn has_customers(universe: &Universe) -> bool {
    !universe.scenario.lulls && stream(universe.scenario.seed, "customers").u32(0..3) == 0
}

/// Founds their buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    if !has_customers(universe) {
        return;
    }
    let mut rng = stream(universe.scenario.seed, "what customers ask");
    let customers = rng.u32(2..=4);
    let demand = Arc::new(Demand::drawn(universe, customers, &mut rng));
    for (name, split) in [(demand.bucket, demand.split()), (SLOTS, demand.slots.into())] {
        let bucket = Dimension::new(name).unwrap();
        if demand.has_shares() {
            declare(universe, name, &split);
        }
        universe.undisturbed(operator.client.ops().apply_split(&bucket, &split)).await.unwrap();
    }
    if demand.has_shares() {
        universe.count("customers have a share");
        universe.record(|record| record.guarantees_nothing(demand.bucket));
        tasks.spawn(borrows(Arc::clone(universe), Arc::clone(&demand)));
    }
    let shared = rng.bool().then(|| process(universe, &demand, "customer-shared", &mut rng));
    let processes = Arc::new(Mutex::new(Vec::new()));
    for at in 0..customers {
        let process = shared
            .clone()
            .filter(|_| at < 2)
            .unwrap_or_else(|| process(universe, &demand, &format!("customer-{at}"), &mut rng));
        processes.lock().unwrap().push(process.clone());
        let customer = |rng: Rng| Customer {
            universe: Arc::clone(universe),
            process: process.clone(),
            processes: Arc::clone(&processes),
            demand: Arc::clone(&demand),
            rng,
            served: Served::default(),
        };
        tasks.spawn(customer(rng.fork()).asks_for_tokens());
        tasks.spawn(customer(rng.fork()).waits_for_slots());
    }
}

fn process(universe: &Arc<Universe>, demand: &Demand, name: &str, rng: &mut Rng) -> Process {
    let leases = if rng.bool() { Leases::Inline } else { Leases::Concurrent };
    // No holder of theirs crashes.
    let process = universe.process(name, Role::Customer, |client| {
        let client = client.leases(leases).self_heal(false).lease_ttl(LEASE);
        // Notes of use are judged in buckets without shares.
        client.note_use(!demand.has_shares())
    });
    let most = universe.scenario.clock_error;
    process.set_clock_error(rng.i64(-most..=most));
    process
}

struct Customer {
    universe: Arc<Universe>,
    process: Process,
    /// Those of all customers.
    processes: Arc<Mutex<Vec<Process>>>,
    demand: Arc<Demand>,
    rng: Rng,
    served: Served,
}

impl Customer {
    async fn asks_for_tokens(mut self) {
        let mut due = Instant::now() + self.demand.every.mul_f64(self.rng.f64());
        while !self.universe.is_over() {
            sleep_until(due).await;
            let is_old = due.elapsed() > OVERDUE
                && self.process.tally.met_fault(self.time_at(due) - AFTER, self.universe.time());
            if is_old || due.elapsed() > PATIENCE {
                // The call before took so long, which counts by itself: nobody asks for what is no use any
                // more.
                self.served.excused += 1;
                due += self.demand.every.mul_f64(0.5 + self.rng.f64());
                continue;
            }
            let since = self.universe.time();
            let is_served = self.token(due + PATIENCE).await;
            let is_excused = !is_served && self.was_used_up(due);
            self.counts(since, due, is_served, is_excused);
            due += self.demand.every.mul_f64(0.5 + self.rng.f64());
        }
        let bucket = self.demand.bucket;
        self.judge(bucket);
    }

    /// Asks until it is granted, and comes back as it is told.
    async fn token(&self, until: Instant) -> bool {
        loop {
            let ask = Stopwatch::of(&self.universe, &self.process, Public::Acquire);
            let asked_at = self.universe.time();
            match ask.on(self.process.client.acquire(self.demand.request())).await {
                Ok(Outcome::Granted(grant)) => {
                    times::judge(&self.universe, &self.process, asked_at);
                    drop(grant.release().await);
                    return true;
                }
                Ok(Outcome::RetryIn(retry)) if Instant::now() + retry.wait() <= until => {
                    sleep(retry.wait()).await
                }
                Ok(Outcome::RetryIn(_)) => return false,
                Err(_) if Instant::now() < until => sleep(Duration::from_millis(100)).await,
                Err(_) => return false,
            }
        }
    }

    /// Whether others took nearly all that flowed back since then, or for as long as this customer is
    /// patient.
    fn was_used_up(&self, due: Instant) -> bool {
        let long = due.elapsed().max(PATIENCE);
        // Where all stand still, nobody takes anything, and no more flows back than the bucket holds.
        let jumps = self.universe.jumps_since(Instant::now() - long);
        let long = Micros::try_from(long.as_micros()).unwrap();
        let from = self.universe.time() - long - jumps.iter().sum::<Micros>();
        let line = if self.demand.has_shares() { SHARE } else { COMMON };
        let line = name_of_line(self.demand.bucket, line);
        self.universe.ledger(|ledger| ledger.was_used_up((&line, NEIGHBOUR), from, (long, &jumps)))
    }

    /// The true time then.
    fn time_at(&self, then: Instant) -> Micros {
        let waited = Micros::try_from(then.elapsed().as_micros()).unwrap();
        self.universe.time() - waited - self.universe.jumps_since(then).iter().sum::<Micros>()
    }

    async fn waits_for_slots(mut self) {
        while !self.universe.is_over() {
            let (since, due) = (self.universe.time(), Instant::now());
            let timeout = PATIENCE + self.demand.holds * 2;
            let slot = self.process.client.slot(SLOTS).timeout(timeout).max_wait(PATIENCE);
            let watch = Stopwatch::of(&self.universe, &self.process, Public::Slot(timeout, Duration::ZERO));
            let mut is_served = false;
            let call = slot.run(async |_| {
                is_served = true;
                sleep(self.demand.holds).await;
                Ok::<_, sluice_sdk::LimitError>(())
            });
            let (wait, came) = (Wait::begins(PATIENCE), watch.on(call).await);
            if !is_served {
                wait.judge((&self.universe, &self.process), came.as_ref().err(), false);
            }
            self.counts(since, due, is_served, !is_served && self.was_out(since));
            sleep(self.demand.rests.mul_f64(0.5 + self.rng.f64())).await;
        }
        self.judge(SLOTS);
    }

    /// Whether a lease that nobody uses, and of which a process met a fault, has held a slot since.
    fn was_out(&self, since: Micros) -> bool {
        let now = self.universe.time();
        let long = self.universe.ledger(|ledger| ledger.long_lives(SLOTS, since, now, UNUSED));
        let processes = self.processes.lock().unwrap();
        let met_fault = |(id, born): &(String, Micros)| {
            let its = |process: &&Process| id.contains(&*process.name);
            processes.iter().filter(its).any(|holder| holder.tally.met_fault(born - UNDERWAY, born + UNUSED))
        };
        long.iter().any(met_fault)
    }

    fn counts(&mut self, since: Micros, due: Instant, is_served: bool, is_excused: bool) {
        if is_excused
            || self.process.tally.met_fault(since.min(self.time_at(due)) - AFTER, self.universe.time())
        {
            self.served.excused += 1;
            return;
        }
        self.served.asked += 1;
        self.served.in_time += u64::from(is_served);
    }

    fn judge(self, bucket: &str) {
        let Self { universe, process, served, .. } = self;
        let Served { asked, in_time, excused } = served;
        universe.count_many("service: asked, and excused", excused);
        if asked < ASKED_AT_LEAST {
            return;
        }
        universe.count_many("service: asked, and judged", asked);
        if in_time * 10 < asked * 9 {
            universe.violated(format!(
                "{bucket}: {} asked for its part {asked} times, and was served {in_time}",
                process.name
            ));
        }
    }
}
