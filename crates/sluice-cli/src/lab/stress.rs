//! `sluice stress`: many workers in several processes acquire and release as fast as allowed. A checker that
//! shares no code with the client judges the history that the workers write.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_core::ClockOffset;
use sluice_history::{Event, Kind, Limit, Share};
use sluice_sdk::core::{Bucket, Dimension, LimitType, ShareLimit};
use sluice_sdk::{AcquireError, Client, Clock};

use crate::connect::client;
use crate::duration::{duration, duration_within};
use crate::failure::{Ended, Failure};
use crate::history;
use crate::signals::stop_requested;

mod crew;
mod parts;
mod summary;
mod units;
pub(crate) mod worker;

use crew::Crew;
use parts::Parts;
use summary::Summary;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Buckets, as in openai#rpm; openai#tpm=1200 takes 1200 from it
    #[arg(required = true, value_name = "DIMENSION")]
    dimensions: Vec<String>,
    /// Workers in each process: each acquires, holds 5 to 15 ms and releases; if refused, it waits
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Processes, each with a client of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// How long to run: 1s to 1d; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration_within(LEAST, MOST))]
    length: Duration,
    /// No worker acquires in this time before the end, so that all is released
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    wind_down: Duration,
    /// Write every grant, refusal and release into this file (NDJSON, recreated); judge it as `sluice
    /// history` does
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write the history, and judge it later, with `sluice history`
    #[arg(long, requires = "history")]
    no_verdict: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_hours(24);
/// Time for the processes to start before the first call.
const START_UP: Duration = Duration::from_millis(500);

pub(crate) async fn run(options: Options) -> Ended {
    if options.wind_down >= options.length {
        let in_words = |time| humantime::format_duration(time);
        return Err(Failure::new(format!(
            "--wind-down {} leaves no time to acquire in --for {}: give more time",
            in_words(options.wind_down),
            in_words(options.length)
        )));
    }
    let client = client().await?;
    // A mistake in a cost is reported here once, and not by every worker.
    crate::acquire::request(&options.dimensions)?;
    let buckets = buckets(&client, &options.dimensions).await?;
    let limits = buckets.iter().map(limit).collect::<Result<Vec<_>, _>>()?;
    if options.history.is_some() {
        can_be_judged(client.clock_offset())?;
    }
    let parts = options.history.as_ref().map(|file| Parts::beside(file, options.processes)).transpose()?;
    let start = Clock::system().now().after(START_UP);
    let stop = stop_requested();
    let mut crew = Crew::spawn(&options, parts.as_ref(), start)?;
    if !options.json {
        let Options { processes, workers, length, .. } = &options;
        let dimensions = options.dimensions.join(", ");
        println!(
            "{processes} x {workers} workers on {dimensions} for {}",
            humantime::format_duration(*length)
        );
    }
    let reports = tokio::select! {
        reports = crew.finished() => reports?,
        () = stop => {
            crew.stop();
            crew.finished().await?
        }
    };
    let lasted = Duration::from_micros(
        u64::try_from(Clock::system().now().micros_since(start))
            .unwrap_or(0)
            .min(u64::try_from(options.length.as_micros()).unwrap_or(u64::MAX)),
    );
    let verdict = match parts {
        Some(parts) => {
            are_unchanged(&client, &options.dimensions, &buckets).await?;
            parts.merge(limits)?;
            if options.no_verdict { None } else { Some(parts.judge()?) }
        }
        None => None,
    };
    let summary = Summary::new(&options, reports, lasted, verdict);
    if options.json {
        crate::output::json(&summary)?;
    } else {
        summary.print();
    }
    Ok(summary.verdict.as_ref().map_or(ExitCode::SUCCESS, history::exit_code))
}

/// Whether the history of this run can be judged. A history gives starts and ends of leases by the table's
/// time, and everything else by this machine's clock, which all processes share. The two clocks must agree.
fn can_be_judged(offset: Option<ClockOffset>) -> Result<(), Failure> {
    match offset.filter(|offset| offset.exceeds(Duration::ZERO)) {
        Some(offset) => Err(Failure::new(format!(
            "this machine's clock is at least {} ms off DynamoDB's, so that a history cannot be judged: set it by NTP (chrony), or leave \
             out --history",
            offset.millis().abs()
        ))),
        None => Ok(()),
    }
}

/// The buckets among the arguments, without their costs.
fn names(dimensions: &[String]) -> impl Iterator<Item = &str> {
    dimensions.iter().map(|text| text.split_once('=').map_or(text.as_str(), |(name, _)| name))
}

async fn buckets(client: &Client, dimensions: &[String]) -> Result<Vec<Bucket>, Failure> {
    let mut names: Vec<&str> = names(dimensions).collect();
    names.sort_unstable();
    names.dedup();
    let mut buckets = Vec::new();
    for name in names {
        let dimension = Dimension::new(name)?;
        let Some(bucket) = client.ops().bucket(&dimension).await? else {
            return Err(AcquireError::UnknownDimension { dimension, table: client.table().to_owned() }.into());
        };
        buckets.push(bucket);
    }
    Ok(buckets)
}

/// The history contains the limits from before the run: if they changed, the run would be judged by the wrong
/// limits.
async fn are_unchanged(client: &Client, dimensions: &[String], before: &[Bucket]) -> Result<(), Failure> {
    let now = buckets(client, dimensions).await?;
    match before.iter().zip(&now).find(|(before, now)| before.split() != now.split()) {
        Some((bucket, _)) => Err(Failure::new(format!(
            "the limit of {} was changed during the run, so that nothing is judged",
            bucket.dimension()
        ))),
        None => Ok(()),
    }
}

/// The limit of the whole bucket as an event, with its shares. A bucket's first limit holds for all time
/// before it, whatever its moment.
fn limit(bucket: &Bucket) -> Result<Event, Failure> {
    let split = bucket.split();
    let limit = split.whole();
    let kind = match limit.limit_type() {
        LimitType::Requests => Kind::Requests,
        LimitType::Tokens => Kind::Tokens,
        LimitType::Concurrent => Kind::Concurrent,
    };
    let pico =
        |limit: &sluice_sdk::core::Limit| sluice_history::pico_per_sec(&limit.refill_rate().to_string());
    let share = |share: &ShareLimit| {
        Ok(Share::new(share.name.as_str(), share.limit.capacity().micros(), pico(&share.limit)?))
    };
    let shares = split.shares().iter().map(share).collect::<Result<_, Failure>>()?;
    let now = Clock::system().now().micros();
    let whole = Limit::new(bucket.dimension().as_str(), kind, limit.capacity().micros(), pico(limit)?, now);
    Ok(Event::Limit(whole.with_shares(shares)))
}
