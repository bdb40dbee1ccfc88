//! One core: a client that takes tokens ahead, beside a limiter that knows only its own process.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use super::{Plan, on_one_thread};
use crate::failure::Failure;
use crate::lab::bench::buckets::{PLENTY, plenty};
use crate::lab::bench::histogram::Histogram;
use crate::lab::bench::measure::{Case, Measure, Used};
use crate::lab::bench::process::processor_time;
use crate::lab::bench::system::{System, TakeResult};
use crate::lab::bench::world::{Stage, World};

const CASE: Case<'static> = Case { scenario: "prefetch", name: "1 caller on one core", callers: 1 };
/// The time until the client knows the demand.
const WARM_UP: Duration = Duration::from_secs(1);
/// A caller that is never refused would not release the core; a caller that calls a vendor does.
const GRANTS_BETWEEN_YIELDS: u32 = 64;
/// Reading the clock takes as long as an answer from memory: one in this many is timed.
const GRANTS_BETWEEN_TIMED: u32 = 16;

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    let plan = plan.clone();
    on_one_thread(false, async move || {
        plan.progress.step("prefetch: the client on one core");
        let world = World::loopback(0).await?;
        let name = "openai#rpm".to_owned();
        world.bucket(&name, &plenty()?, PLENTY).await?;
        let settings = |settings| sluice_sdk::ClientBuilder::prefetch(settings, [&name]);
        let sluice = world.sluice(1, &[(&name, 1)], settings);
        let mut measures = Vec::new();
        for sluice in sluice {
            grants(&sluice, WARM_UP).await?;
            world.meter.reset();
            let began = processor_time();
            let mut used = grants(&sluice, plan.length).await?;
            used.note(&world, began);
            let system = "prefetch";
            measures.push(used.measure(Stage::Loopback, CASE, system));
        }
        plan.progress.step("prefetch: governor on one core");
        measures.push(in_memory(plan.length));
        Ok(measures)
    })
    .await
}

/// Asks without a pause.
async fn grants<S: System>(system: &S, length: Duration) -> Result<Used, Failure> {
    let mut used = Used::default();
    let began = Instant::now();
    let mut asked_at = began;
    while asked_at - began < length {
        for n in 0..GRANTS_BETWEEN_YIELDS {
            let is_timed = n % GRANTS_BETWEEN_TIMED == 0;
            if is_timed {
                asked_at = Instant::now();
            }
            match system.take().await? {
                TakeResult::Granted { held, .. } => {
                    used.tally.grants += 1;
                    if is_timed {
                        used.tally.latencies.record(asked_at.elapsed());
                    }
                    system.finish(held).await?;
                }
                TakeResult::Refused { .. } | TakeResult::GaveUp => used.tally.false_refusals += 1,
            }
            if asked_at - began >= length {
                break;
            }
        }
        tokio::task::yield_now().await;
        asked_at = Instant::now();
    }
    used.seconds = began.elapsed().as_secs_f64();
    Ok(used)
}

/// The quota a second: more than a core can ask for.
const QUOTA: NonZeroU32 = NonZeroU32::new(1_000_000_000).unwrap();

fn in_memory(length: Duration) -> Measure {
    let limiter = RateLimiter::direct(Quota::per_second(QUOTA));
    let (mut used, mut latencies) = (Used::default(), Histogram::default());
    let cpu = processor_time();
    let began = Instant::now();
    let mut asked_at = began;
    while asked_at - began < length {
        for n in 0..GRANTS_BETWEEN_YIELDS {
            let is_timed = n % GRANTS_BETWEEN_TIMED == 0;
            if is_timed {
                asked_at = Instant::now();
            }
            if std::hint::black_box(&limiter).check().is_ok() {
                used.tally.grants += 1;
                if is_timed {
                    latencies.record(asked_at.elapsed());
                }
            } else {
                used.tally.false_refusals += 1;
            }
        }
        asked_at = Instant::now();
    }
    used.seconds = began.elapsed().as_secs_f64();
    used.tally.latencies = latencies;
    used.cpu = processor_time().zip(cpu).map(|(now, cpu)| now.saturating_sub(cpu));
    let mut measure = used.measure(Stage::Loopback, CASE, "governor");
    // The limiter in memory sends no requests.
    measure.requests_per_grant = None;
    measure.writes_per_grant = None;
    measure.failed_writes_per_grant = None;
    measure
}
