//! What a seed makes: the limits, who calls, how wrong their clocks are, and how much goes wrong on the way.

use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate, Timestamp};
use sluice_sdk::{Leases, OnUnavailable};

use crate::conditions::Conditions;
use crate::row::Micros;

/// When every run begins: any instant would do.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

/// The largest error of a clock that is promised to do no harm, in microseconds.
pub(crate) const CLOCK_ERROR: i64 = 2_000_000;

/// From the beginning of one lull to that of the next, in microseconds.
const LULL_EVERY: Micros = 40_000_000;
/// How long each lasts: longer than any call, and than the time that a vendor may be silent in.
const LULL: Micros = 25_000_000;

/// How much goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Nothing but latency: what the ledger says must be exact.
    Calm,
    /// One request in fifty meets a fault.
    Unsettled,
    /// One in six.
    Storm,
}

impl Weather {
    /// One request in so many meets a fault; none where it is calm.
    pub(crate) const fn one_fault_in(self) -> Option<u32> {
        match self {
            Self::Calm => None,
            Self::Unsettled => Some(50),
            Self::Storm => Some(6),
        }
    }
}

/// One bucket, and the most that a call takes of it.
#[derive(Clone, Debug)]
pub(crate) struct BucketPlan {
    pub(crate) dimension: Dimension,
    pub(crate) limit: Limit,
    pub(crate) most: i32,
}

impl BucketPlan {
    pub(crate) const fn is_concurrent(&self) -> bool {
        self.limit.is_concurrent()
    }

    pub(crate) fn name(&self) -> &str {
        self.dimension.as_str()
    }
}

/// The world of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) weather: Weather,
    pub(crate) conditions: Conditions,
    pub(crate) buckets: Vec<BucketPlan>,
    pub(crate) processes: usize,
    pub(crate) callers_per_process: usize,
    pub(crate) sweepers: usize,
    /// Of a process's time, in microseconds; 0 for exact clocks, where the bounds are sharpest.
    pub(crate) clock_error: i64,
    pub(crate) lease_ttl: Duration,
    /// Whether processes take tokens ahead of demand.
    pub(crate) prefetches: bool,
    /// Whether calls take from several buckets at once.
    pub(crate) together: bool,
    /// Clients in other languages, which count nothing.
    pub(crate) strangers: bool,
    /// Limits that an operator changes, and penalties.
    pub(crate) operator: bool,
    /// Rows that someone spoils, and slots lost by hand.
    pub(crate) vandal: bool,
    /// Processes that die, and time that jumps.
    pub(crate) upheaval: bool,
    /// The runtime is dropped with everything in flight.
    pub(crate) ends_abruptly: bool,
    /// Nobody sweeps but the callers, holders crash, and someone always asks for all slots of each bucket.
    pub(crate) unswept: bool,
    /// Every now and then nobody begins a call, for longer than a vendor may be silent; then everyone does at
    /// once. Nothing else is there that keeps a process from knowing whether its vendor is down.
    pub(crate) lulls: bool,
    /// Longer than the seven days after which DynamoDB deletes the leases.
    pub(crate) abandoned_for_days: bool,
}

impl Scenario {
    pub(crate) fn of(seed: u64, steps: u64) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5117_1CE5);
        let weather = [Weather::Calm, Weather::Unsettled, Weather::Storm][rng.usize(0..3)];
        let conditions = Conditions::of(seed, weather);
        let clock_error = if rng.bool() { 0 } else { rng.i64(1..=CLOCK_ERROR) };
        // A process knows the time to within that by its first reply.
        let clock_error = if conditions.have_wrong_clocks() { CLOCK_ERROR } else { clock_error };
        let one_in = |rng: &mut Rng, many: u32| rng.u32(0..many) == 0;
        let scenario = Self {
            seed,
            steps,
            weather,
            conditions,
            buckets: buckets(&mut rng),
            processes: rng.usize(1..=3),
            callers_per_process: rng.usize(1..=4),
            sweepers: rng.usize(0..=2),
            clock_error,
            lease_ttl: Duration::from_secs(rng.u64(1..=6)),
            together: rng.bool(),
            prefetches: one_in(&mut rng, 2),
            strangers: one_in(&mut rng, 3),
            operator: one_in(&mut rng, 3),
            vandal: one_in(&mut rng, 4),
            upheaval: one_in(&mut rng, 2),
            ends_abruptly: one_in(&mut rng, 5),
            abandoned_for_days: one_in(&mut rng, 8),
            unswept: one_in(&mut rng, 4),
            lulls: false,
        };
        if scenario.unswept {
            scenario.without_sweepers()
        } else if one_in(&mut rng, 6) {
            scenario.with_lulls()
        } else {
            scenario
        }
    }

    /// It takes a while until a lease has ended and was found.
    fn without_sweepers(self) -> Self {
        let (steps, processes) = (self.steps * 2, self.processes.max(2));
        Self { steps, processes, sweepers: 0, upheaval: true, vandal: false, ..self }
    }

    fn with_lulls(self) -> Self {
        Self {
            conditions: self.conditions.calm(),
            lulls: true,
            strangers: false,
            operator: false,
            vandal: false,
            upheaval: false,
            ..self
        }
    }

    /// How long nobody begins a call, where there is a lull at `now`.
    pub(crate) fn lull(&self, now: Micros) -> Option<Duration> {
        let into = (now - Micros::from(START.micros())).rem_euclid(LULL_EVERY);
        let is_lull = self.lulls && into >= LULL_EVERY - LULL;
        is_lull.then(|| Duration::from_micros((LULL_EVERY - into).try_into().unwrap()))
    }

    /// How the client of a process is set.
    pub(crate) fn settings(&self, rng: &mut Rng) -> (Leases, OnUnavailable) {
        let leases = match rng.u32(0..6) {
            0 => Leases::All,
            1 | 2 => Leases::Inline,
            _ => Leases::Concurrent,
        };
        let unavailable = match rng.u32(0..8) {
            0 => OnUnavailable::Allow,
            1 => OnUnavailable::Share("0.5".parse().unwrap()),
            2 => OnUnavailable::EqualShare,
            _ => OnUnavailable::Error,
        };
        (leases, unavailable)
    }

    /// Whether every request is answered in time, and nobody stands still.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.weather == Weather::Calm && self.conditions.are_calm()
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<&BucketPlan> {
        self.buckets.iter().find(|bucket| bucket.name() == name)
    }
}

fn buckets(rng: &mut Rng) -> Vec<BucketPlan> {
    let mut buckets =
        vec![rate(rng, "openai#rpm", LimitType::Requests, 1), slots(rng, "elevenlabs#concurrent")];
    if rng.bool() {
        buckets.push(rate(rng, "openai#tpm", LimitType::Tokens, 100));
    }
    if rng.bool() {
        buckets.push(rate(rng, "anthropic#opus#rpm", LimitType::Requests, 1));
    }
    if rng.u32(0..3) == 0 {
        buckets.push(slots(rng, "sora#concurrent"));
    }
    buckets
}

/// From a burst of one call to one of twenty, refilled within a moment to half a minute. Half of them are so
/// small that starts must be booked, and that a token too many shows.
fn rate(rng: &mut Rng, name: &str, limit_type: LimitType, unit: i32) -> BucketPlan {
    let capacity = if rng.bool() { rng.i32(1..=3) } else { rng.i32(4..=20) } * unit;
    let whole = Amount::from_tokens(capacity);
    // Half of them are full again before a late request arrives.
    let window = if rng.bool() { rng.u64(300..=2_000) } else { rng.u64(2_000..=30_000) };
    let refill = Rate::per(whole, Duration::from_millis(window)).unwrap();
    let limit = Limit::rate(limit_type, whole, refill, Cost::ONE).unwrap();
    BucketPlan { dimension: Dimension::new(name).unwrap(), limit, most: (3 * unit).min(capacity) }
}

fn slots(rng: &mut Rng, name: &str) -> BucketPlan {
    let slots = rng.i32(1..=5);
    let limit = Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap();
    BucketPlan { dimension: Dimension::new(name).unwrap(), limit, most: slots.min(2) }
}
