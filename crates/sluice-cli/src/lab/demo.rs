//! `sluice demo`: several processes share the quotas of three vendors, one process is killed while it holds
//! slots, and two vendors allow less than was assumed. The vendors judge the result.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_ops::SweepOptions;
use sluice_sdk::Clock;
use sluice_sdk::core::Timestamp;
use sluice_testkit::EmbeddedDynamo;
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::failure::{Ended, Failure};

mod chart;
mod crew;
mod limits;
mod progress;
mod summary;
mod vendor;
pub(crate) mod worker;

use crew::Crew;
use limits::TABLE;
use progress::{Announcer, Progress};
use summary::Summary;
use vendor::Vendors;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many seconds the callers run, 15 to 600
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(15..=600))]
    seconds: u64,
    /// Caller processes; one of them is killed
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    processes: u32,
    /// Callers of the first vendor in each process
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    callers: u32,
    /// Print the figures as JSON in the last line, with what failed, and no progress
    #[arg(long)]
    json: bool,
}

/// Time for the processes to start before the first call.
const START_UP: Duration = Duration::from_millis(1_500);
/// When the first process is killed, after the first call.
const CRASH_AT: Duration = Duration::from_secs(1);
/// A call takes 0.9 s at most, and the lease of the killed process lasts longer.
const CALLS_END: Duration = Duration::from_millis(1_300);
/// Time between two checks of what the killed process held.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the killed process's slots may take to come back without a sweep: the lease's time plus 15 s.
const RECOVERY_AT_MOST: Duration = worker::LEASE_TTL.saturating_add(Duration::from_secs(15));
/// How long callers that are under way at the end may take to finish.
const WIND_DOWN: Duration = Duration::from_secs(15);

/// When the callers call: by the vendors' clock, and by the callers' clock.
#[derive(Clone, Copy, Debug)]
struct Run {
    begin: Instant,
    start: Timestamp,
    length: Duration,
}

/// What the crash left, and how it was recovered.
#[derive(Clone, Copy, Debug, Default)]
struct Recovery {
    crashed_holders: usize,
    slots_restored: usize,
    /// From the crash until nothing that it left remained.
    time: Option<Duration>,
}

pub(crate) async fn run(options: Options) -> Ended {
    let stop = crate::signals::stop_requested();
    let dynamo = EmbeddedDynamo::new()?;
    dynamo.create_table(TABLE).await?;
    let server = dynamo.serve(([127, 0, 0, 1], 0).into()).await?;
    limits::apply(&dynamo.client(TABLE)).await?;
    let (start, begin) = (Clock::system().now().after(START_UP), Instant::now() + START_UP);
    let length = Duration::from_secs(options.seconds);
    let vendors = Vendors::start(begin, length).await?;
    let crew = Crew::spawn(&options, &server.endpoint_url(), &vendors.url(), start, start.after(length))?;
    let mut progress = Progress::new(&options, vendors.clone(), dynamo.client(TABLE), crew.tally());
    let tally = crew.tally();
    progress.opening(&server.endpoint_url(), &vendors.url());
    let announcer = progress.announcer();
    let news = tokio::spawn(news(announcer.clone(), begin, length));
    let recovery = tokio::select! {
        recovery = play(&dynamo, crew, begin, length, &announcer) => recovery?,
        () = progress.run(begin, length) => return Err(Failure::new("the callers did not finish in time")),
        () = stop => return Ok(ExitCode::from(130)),
    };
    news.abort();
    progress.finish();
    let run = Run { begin, start, length };
    let summary = Summary::new(&run, &vendors, &recovery, &tally, leases(&dynamo).await?.len());
    if options.json {
        crate::output::json(&summary)?;
    } else {
        summary.print();
    }
    Ok(if summary.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The crash, the recovery by the other callers, and their end. No sweep runs while they call: a caller that
/// is refused a slot finds what the killed process left.
async fn play(
    dynamo: &EmbeddedDynamo,
    mut crew: Crew,
    begin: Instant,
    length: Duration,
    announcer: &Announcer,
) -> Result<Recovery, Failure> {
    sleep_until(begin + CRASH_AT).await;
    let crashed_at = crash(&mut crew).await?;
    announcer.say(&format!("{} was killed (SIGKILL)", crew::name(0)));
    let mut left = left_by_crashed(dynamo, crashed_at).await?;
    let mut recovery = Recovery { crashed_holders: left.len(), ..Recovery::default() };
    announcer.say(&format!("it held {} slots, which nobody gives back", left.len()));
    let (give_up, end) = (crashed_at + RECOVERY_AT_MOST, begin + length);
    let mut looks = interval(LOOK_EVERY);
    while recovery.time.is_none() && Instant::now() < give_up.min(end) {
        looks.tick().await;
        let there = leases(dynamo).await?;
        left.retain(|lease| there.contains(lease));
        recovery.slots_restored = recovery.crashed_holders - left.len();
        if left.is_empty() {
            recovery.time = Some(crashed_at.elapsed());
            announcer.say("a caller that was refused a slot found these slots and gave them back");
        }
    }
    sleep_until(end).await;
    crew.finished(WIND_DOWN).await?;
    dynamo.client(TABLE).ops().sweep(SweepOptions::default()).await?;
    Ok(recovery)
}

async fn news(announcer: Announcer, begin: Instant, length: Duration) {
    sleep_until(vendor::openai::drop_at(begin, length)).await;
    let limits::Lowered { at_first, later, .. } = limits::OPENAI_REQUESTS;
    announcer.say(&format!("openai lowers its limit from {at_first} calls a minute to {later}"));
    sleep_until(vendor::elevenlabs::busy_at(begin, length)).await;
    announcer.say(&format!("elevenlabs is busy for {:.1} s", vendor::elevenlabs::BUSY.as_secs_f64()));
}

/// Kills the first process with SIGKILL, once it has told of a grant; returns when.
async fn crash(crew: &mut Crew) -> Result<Instant, Failure> {
    let begun = crew.tally();
    for _ in 0..500 {
        if begun.with(|reports| reports.last.first().is_some_and(|first| first.granted > 0)) {
            crew.kill_first().await?;
            return Ok(Instant::now());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(Failure::new("the first process was granted nothing in 5 s, so there was nothing to crash; run the demo again"))
}

/// The leases of the killed process: those of the moment of the crash that nobody has given back when the calls of all
/// others have ended. (In a crowd a lease is in its bucket's row, and names no holder.)
async fn left_by_crashed(dynamo: &EmbeddedDynamo, crashed_at: Instant) -> Result<BTreeSet<String>, Failure> {
    // Requests that the process had sent may still arrive.
    sleep_until(crashed_at + Duration::from_millis(50)).await;
    let then = leases(dynamo).await?;
    sleep_until(crashed_at + CALLS_END).await;
    let left = &then & &leases(dynamo).await?;
    if left.is_empty() {
        return Err(Failure::new("the process held no slot at the moment when it was killed; run the demo again"));
    }
    Ok(left)
}

/// The keys of all leases.
async fn leases(dynamo: &EmbeddedDynamo) -> Result<BTreeSet<String>, Failure> {
    Ok(dynamo.client(TABLE).ops().leases().await?.into_iter().map(|row| row.key).collect())
}
