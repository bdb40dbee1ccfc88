//! A client's memory for each known bucket and each grant, in a process that did nothing else.

use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use sluice_sdk::{Client, Outcome};
use sluice_testkit::Meter;
use tokio::process::Command;
use tokio::time::Instant;

use super::Plan;
use crate::failure::{Ended, Failure};
use crate::lab::bench::buckets::many;
use crate::lab::bench::engine::Engine;
use crate::lab::bench::measure::{Case, Measure, Used};
use crate::lab::bench::process::resident_kb;
use crate::lab::bench::world::{ClientAt, Stage, sluice_at};

/// The number of buckets that the client learns.
pub(crate) const BUCKETS: usize = 10_000;
/// The number of grants from one of them.
pub(crate) const GRANTS: u64 = 10_000_000;
/// How long the grants may take, as a multiple of the time of another scenario.
const LONGEST: u32 = 10;
const CALLERS: usize = 64;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    longest_ms: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct MemoryReport {
    buckets_kb: Option<i64>,
    buckets_took: f64,
    grants: u64,
    grants_kb: Option<i64>,
    grants_took: f64,
}

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    plan.progress.step(format_args!("memory: {BUCKETS} buckets, and many grants"));
    let engine = Engine::start(BUCKETS).await?;
    let longest = (plan.length * LONGEST).as_millis().to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench-memory", "--endpoint", &engine.endpoint, "--longest-ms", &longest]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output().await?;
    if !output.status.success() {
        return Err(Failure::new(format!("the process that measures memory ended with {}", output.status)));
    }
    let report: MemoryReport = serde_json::from_slice(&output.stdout)?;
    let measure = |name, callers, grants, seconds, growth_kb| {
        let mut used = Used { seconds, ..Used::default() };
        used.tally.grants = grants;
        let case = Case { scenario: "memory", name, callers };
        let mut measure = used.measure(Stage::Loopback, case, "sluice");
        (measure.growth_kb, measure.resident_kb) = (growth_kb, None);
        measure.requests_per_grant = None;
        measure.writes_per_grant = None;
        measure.failed_writes_per_grant = None;
        measure
    };
    let buckets = u64::try_from(BUCKETS).unwrap_or(u64::MAX);
    Ok(vec![
        measure("10,000 buckets known", CALLERS, buckets, report.buckets_took, report.buckets_kb),
        measure("grants from one bucket", CALLERS, report.grants, report.grants_took, report.grants_kb),
    ])
}

pub(crate) async fn measure(options: Options) -> Ended {
    let ClientAt { settings, dynamo } = sluice_at(&options.endpoint, &Meter::default());
    let client = settings.dynamodb(dynamo);
    let name = |n: usize| Ok::<_, Failure>(many(n)?.to_string());
    // Connections and buffers, which every client has.
    ask(&client, std::iter::repeat_n(name(0)?, CALLERS * 10).collect()).await?;
    let (before, began) = (resident_kb(), Instant::now());
    ask(&client, (1..BUCKETS).map(name).collect::<Result<_, _>>()?).await?;
    let (buckets_took, buckets_kb) = (began.elapsed(), growth(before));

    let ClientAt { settings, dynamo } = sluice_at(&options.endpoint, &Meter::default());
    let client = settings.prefetch([name(0)?]).dynamodb(dynamo);
    let longest = Duration::from_millis(options.longest_ms);
    grants(&client, name(0)?, longest / 10, GRANTS / 10).await?;
    let (before, began) = (resident_kb(), Instant::now());
    let granted = grants(&client, name(0)?, longest, GRANTS).await?;
    let report = MemoryReport {
        buckets_kb,
        buckets_took: buckets_took.as_secs_f64(),
        grants: granted,
        grants_kb: growth(before),
        grants_took: began.elapsed().as_secs_f64(),
    };
    crate::output::json(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn growth(before_kb: Option<u64>) -> Option<i64> {
    resident_kb()?.checked_signed_diff(before_kb?)
}

/// Acquires each of `names` once, with several callers.
async fn ask(client: &Client, names: Vec<String>) -> Result<(), Failure> {
    let (names, next) = (Arc::new(names), Arc::new(AtomicUsize::new(0)));
    let callers = (0..CALLERS).map(|_| {
        let (client, names, next) = (client.clone(), Arc::clone(&names), Arc::clone(&next));
        tokio::spawn(async move {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Outcome::Granted(grant) = client.acquire(name).await? {
                    grant.release().await?;
                }
            }
            Ok::<_, Failure>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(())
}

/// Acquires until there are `most` grants, or the time is over.
async fn grants(client: &Client, name: String, longest: Duration, most: u64) -> Result<u64, Failure> {
    let end = Instant::now() + longest;
    let each = most.div_ceil(u64::try_from(CALLERS).unwrap_or(1));
    let callers = (0..CALLERS).map(|_| {
        let (client, name) = (client.clone(), name.clone());
        tokio::spawn(async move {
            let mut granted = 0;
            while granted < each && Instant::now() < end {
                if let Outcome::Granted(grant) = client.acquire(&name).await? {
                    grant.release().await?;
                    granted += 1;
                }
                if granted % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, Failure>(granted)
        })
    });
    let mut granted = 0;
    for caller in callers.collect::<Vec<_>>() {
        granted += caller.await??;
    }
    Ok(granted)
}
