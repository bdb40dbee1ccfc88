//! More demand than the limit allows, from callers that wait as told, in virtual time: limits by the minute
//! need minutes.
//!
//! The bucket is empty at first, so the n-th grant starts no earlier than n tokens' refill later. Figures are
//! for the minutes after a warm-up, in which every caller has joined the queue.

use std::time::Duration;

use sluice_sdk::core::{Amount, LimitType, Timestamp};
use sluice_testkit::yardstick::Reference;
use tokio::time::{Instant, sleep};

use super::{Plan, in_virtual_time};
use crate::failure::Failure;
use crate::lab::bench::buckets::per_minute;
use crate::lab::bench::load::Tally;
use crate::lab::bench::measure::{Case, Measure, Used};
use crate::lab::bench::system::{Sluice, System, TakeResult};
use crate::lab::bench::world::{Stage, World};

/// Tokens a minute, processes, callers in each process.
const CASES: [(i32, usize, usize); 5] =
    [(600, 1, 10), (600, 1, 50), (3_000, 1, 10), (600, 10, 1), (600, 50, 1)];
const WARM_UP: Duration = Duration::from_secs(15);
const LENGTH: Duration = Duration::from_secs(120);

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    let plan = plan.clone();
    in_virtual_time(async move || {
        let mut measures = Vec::new();
        for (rate, processes, callers) in CASES {
            let crowd = match (processes, callers) {
                (1, _) => format!("{callers} callers"),
                _ => format!("{processes} processes"),
            };
            plan.progress.step(format_args!("saturation: {rate} a minute, {crowd}, virtual minutes"));
            let name = format!("{rate}/min, {crowd}");
            let case = Case { scenario: "saturation", name: &name, callers: processes * callers };
            let run = Run { case, rate, processes, callers };
            measures.push(
                run.measure("sluice", |world| world.sluice(processes, &[(DIMENSION, 1)], |s| s)).await?,
            );
            measures
                .push(run.measure("reference", |world| world.reference(processes, &[(DIMENSION, 1)])).await?);
        }
        Ok(measures)
    })
    .await
}

const DIMENSION: &str = "openai#rpm";

struct Run<'a> {
    case: Case<'a>,
    rate: i32,
    processes: usize,
    callers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    asked_at: Instant,
    /// When the caller knew its place in the order.
    placed_at: Instant,
    at: Timestamp,
}

/// A limiter that lets callers wait.
trait Waits: System {
    /// Waits for a start. Returns how long it took until the place in the order was certain.
    fn start(&self) -> impl Future<Output = Result<Option<Duration>, Failure>> + Send;
}

impl Waits for Sluice {
    async fn start(&self) -> Result<Option<Duration>, Failure> {
        let slot = self.client.slot(DIMENSION).timeout(Duration::from_secs(60));
        match slot.run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.acquiring())).await {
            Ok(acquiring) => Ok(Some(acquiring)),
            Err(sluice_sdk::LimitError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Waits for Reference {
    /// The place in the order is certain only with the grant.
    async fn start(&self) -> Result<Option<Duration>, Failure> {
        let asked_at = Instant::now();
        loop {
            match self.take().await? {
                TakeResult::Granted { held, .. } => {
                    let waited = asked_at.elapsed();
                    let system = self.clone();
                    tokio::spawn(async move { system.finish(held).await });
                    return Ok(Some(waited));
                }
                TakeResult::Refused { wait } => sleep(wait).await,
                TakeResult::GaveUp => return Ok(None),
            }
        }
    }
}

impl Run<'_> {
    async fn measure<S: Waits>(
        &self,
        system: &'static str,
        processes: impl FnOnce(&World) -> Vec<S>,
    ) -> Result<Measure, Failure> {
        let world = World::modelled().await?;
        // A bucket as a vendor's limit makes it: at most a minute's worth.
        let limit = per_minute(LimitType::Requests, self.rate, Amount::from_tokens(self.rate))?;
        let (began, empty_at) = (Instant::now(), world.clock.now());
        world.bucket(DIMENSION, &limit, Amount::from_tokens(0)).await?;
        let (from, end) = (began + WARM_UP, began + WARM_UP + LENGTH);
        // Each caller asks at twice its share of the limit, unless it still waits.
        let every =
            Duration::from_secs(60) * u32::try_from(self.case.callers)? / (2 * u32::try_from(self.rate)?);
        let callers: Vec<_> = processes(&world)
            .into_iter()
            .flat_map(|process| std::iter::repeat_n(process, self.callers))
            .map(|system| tokio::spawn(call(system, world.clock.clone(), every, from, end)))
            .collect();
        tokio::time::sleep_until(from).await;
        world.meter.reset();
        tokio::time::sleep_until(end).await;
        let mut used = Used { seconds: LENGTH.as_secs_f64(), ..Used::default() };
        used.note(&world, None);
        let mut starts = Vec::new();
        for caller in callers {
            let (started, tally) = caller.await?;
            starts.extend(started);
            used.tally.add(tally);
        }
        let tally = &mut used.tally;
        let counted_from = empty_at.after(WARM_UP);
        let counted =
            starts.iter().filter(|start| (counted_from..counted_from.after(LENGTH)).contains(&start.at));
        tally.grants = u64::try_from(counted.count())?;
        let mut measure = used.measure(Stage::DynamoProfile, self.case, system);
        measure.above_bound = Some(above_bound(&starts, empty_at, self.rate));
        measure.out_of_order = Some(out_of_order(
            &mut starts,
            if self.processes == 1 { Known::AsAsked } else { Known::AsPlaced },
        ));
        measure.quota_used = Some(measure.grants_per_second * 60.0 / f64::from(self.rate));
        Ok(measure)
    }
}

/// Asks, waits and asks again until the end; a wait under way at the end is abandoned.
async fn call<S: Waits>(
    system: S,
    clock: sluice_sdk::Clock,
    every: Duration,
    from: Instant,
    end: Instant,
) -> (Vec<Start>, Tally) {
    let (mut starts, mut tally) = (Vec::new(), Tally::default());
    let mut next = Instant::now();
    loop {
        let asked_at = Instant::now();
        let Ok(started) = tokio::time::timeout_at(end, system.start()).await else { break };
        match started {
            Ok(Some(placed)) => {
                starts.push(Start { asked_at, placed_at: asked_at + placed, at: clock.now() });
                if Instant::now() >= from {
                    tally.latencies.record(asked_at.elapsed());
                }
            }
            Ok(None) => tally.false_refusals += u64::from(asked_at >= from),
            Err(error) => {
                tally.errors += 1;
                tally.last_error = Some(error.to_string());
            }
        }
        next = (next + every).max(Instant::now());
        tokio::time::sleep_until(next.min(end)).await;
        if Instant::now() >= end {
            break;
        }
    }
    (starts, tally)
}

/// Starts that come too early: the n-th may not come before n tokens have flowed into the empty bucket.
fn above_bound(starts: &[Start], empty_at: Timestamp, per_minute: i32) -> u64 {
    let mut at: Vec<Timestamp> = starts.iter().map(|start| start.at).collect();
    at.sort_unstable();
    let early = |(n, at): (usize, &Timestamp)| {
        let n = i64::try_from(n + 1).unwrap_or(i64::MAX);
        let earliest = n.saturating_mul(60_000_000) / i64::from(per_minute);
        at.micros_since(empty_at) < earliest
    };
    u64::try_from(at.iter().enumerate().filter(|start| early(*start)).count()).unwrap_or(u64::MAX)
}

/// How it is known that one caller was before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The callers are of one process: the one that asked first.
    AsAsked,
    /// The callers are of several processes, and their requests may overtake each other on the network: the
    /// one that had an answer before the other asked.
    AsPlaced,
}

/// Starts that come after a start that was asked for later.
fn out_of_order(starts: &mut [Start], known: Known) -> u64 {
    let known_at = |start: &Start| match known {
        Known::AsAsked => start.asked_at,
        Known::AsPlaced => start.placed_at,
    };
    let mut by_known = starts.to_vec();
    by_known.sort_by_key(known_at);
    starts.sort_by_key(|start| start.asked_at);
    let mut latest_before: Option<Timestamp> = None;
    let (mut next, mut count) = (0, 0);
    for start in starts.iter() {
        while let Some(earlier) = by_known.get(next).filter(|earlier| known_at(earlier) < start.asked_at) {
            latest_before = latest_before.max(Some(earlier.at));
            next += 1;
        }
        count += u64::from(latest_before.is_some_and(|latest| latest > start.at));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(asked_ms: u64, placed_ms: u64, at_ms: i64) -> Start {
        Start {
            asked_at: base() + Duration::from_millis(asked_ms),
            placed_at: base() + Duration::from_millis(placed_ms),
            at: Timestamp::from_micros(at_ms * 1_000),
        }
    }

    fn base() -> Instant {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now)
    }

    #[test]
    fn a_start_before_its_token_flowed_in_is_above_the_bound() {
        let starts = [start(0, 1, 100), start(0, 1, 199), start(0, 1, 300)];
        assert_eq!(above_bound(&starts, Timestamp::from_micros(0), 600), 1);
    }

    #[test]
    fn a_caller_that_is_passed_by_a_later_one_is_out_of_order() {
        let mut passed = [start(0, 5, 300), start(1, 6, 200), start(10, 12, 400)];
        assert_eq!(out_of_order(&mut passed, Known::AsAsked), 1);
        assert_eq!(
            out_of_order(&mut passed, Known::AsPlaced),
            0,
            "their requests were under way at the same time"
        );
        let mut waited = [start(0, 5, 300), start(6, 7, 200)];
        assert_eq!(out_of_order(&mut waited, Known::AsPlaced), 1);
    }
}
