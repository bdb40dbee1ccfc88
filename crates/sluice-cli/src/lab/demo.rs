//! `sluice demo`: the same callers call three vendors without Sluice, and then with it. Then one process is
//! killed while it holds slots, and two vendors take less than was assumed. The vendors judge the result.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_ops::SweepOptions;
use sluice_sdk::Clock;
use sluice_sdk::core::Timestamp;
use sluice_testkit::EmbeddedDynamo;
use tokio::time::{Instant, sleep_until};

use crate::duration::duration_within;
use crate::failure::{Ended, Failure};

mod chart;
mod comparison;
mod crash;
mod crew;
mod limits;
mod machine;
mod probe;
mod progress;
mod summary;
pub(crate) mod vendor;
pub(crate) mod worker;

use comparison::Comparison;
use crash::Recovery;
use crew::{Crew, Finish, Tally};
use limits::TABLE;
use machine::Machine;
use probe::Probe;
use progress::retries::Retries;
use progress::slots::Slots;
use progress::{Announcer, Screen};
use summary::Summary;
use vendor::{Changes, Vendors};
use worker::{Planted, Side};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long the callers run with Sluice: 15s to 10m
    #[arg(long = "for", value_name = "TIME", default_value = "16s", value_parser = duration_within(LEAST, MOST))]
    length: Duration,
    /// Caller processes; one of them is killed
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    processes: u32,
    /// Callers of the first vendor in each process
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    callers: u32,
    /// Print the figures as JSON in the last line, with what failed, and no progress
    #[arg(long)]
    json: bool,
    /// Make the callers wrong, to see that the demo fails
    #[arg(long, hide = true)]
    planted: Option<Planted>,
}

const LEAST: Duration = Duration::from_secs(15);
const MOST: Duration = Duration::from_mins(10);
/// Time for the processes to start before the first call.
const START_UP: Duration = Duration::from_secs(1);
/// When the first process is killed, after the first call: when the comparison is over.
const CRASH_AT: Duration = comparison::LENGTH;
/// How long callers that are under way at the end may take to finish.
const WIND_DOWN: Duration = Duration::from_secs(15);

/// When the callers call: by the vendors' clock, and by the callers' clock.
#[derive(Clone, Copy, Debug)]
struct Run {
    begin: Instant,
    start: Timestamp,
    length: Duration,
}

impl Run {
    fn soon(length: Duration) -> Self {
        Self { begin: Instant::now() + START_UP, start: Clock::system().now().after(START_UP), length }
    }

    /// An instant by the callers' clock, in microseconds of Unix time.
    fn unix_micros(&self, at: Instant) -> i64 {
        let start = self.start.micros();
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match at.checked_duration_since(self.begin) {
            Some(after) => start.saturating_add(micros(after)),
            None => start.saturating_sub(micros(self.begin - at)),
        }
    }

    fn end(&self) -> Instant {
        self.begin + self.length
    }
}

/// A run that is over.
struct Played {
    run: Run,
    vendors: Vendors,
    tally: Tally,
}

pub(crate) async fn run(options: Options) -> Ended {
    let stop = crate::signals::stop_requested();
    let screen = Screen::new(options.json);
    let summary = tokio::select! {
        summary = story(&options, &screen) => summary?,
        () = stop => return Ok(ExitCode::from(130)),
    };
    if options.json {
        crate::output::json(&summary)?;
    } else {
        summary.print();
    }
    Ok(if summary.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn story(options: &Options, screen: &Screen) -> Result<Summary, Failure> {
    let probe = Probe::start();
    let dynamo = EmbeddedDynamo::new()?;
    dynamo.create_table(TABLE).await?;
    let server = dynamo.serve(([127, 0, 0, 1], 0).into()).await?;
    limits::apply(&dynamo.client(TABLE)).await?;
    let without = without_sluice(options, screen, &server.endpoint_url()).await?;
    let (with, recovery, finish) = with_sluice(options, screen, &dynamo, &server.endpoint_url()).await?;
    let comparison = Comparison::new(options, &without, &with);
    let machine = with.tally.with(|reports| Machine::of(&reports.lateness, &probe.take()));
    let leases_left = crash::leases(&dynamo).await?.len();
    Ok(Summary::new(&with, comparison, &recovery, finish, leases_left, &machine))
}

async fn without_sluice(options: &Options, screen: &Screen, endpoint: &str) -> Result<Played, Failure> {
    let run = Run::soon(comparison::LENGTH);
    let vendors = Vendors::start(Changes::never()).await?;
    let mut crew = Crew::spawn(options, Side::Without, endpoint, &vendors.url(), &run)?;
    screen.part(&format!("1. Without Sluice, {} s", run.length.as_secs()), &comparison::about(options));
    let display = Retries::new(screen, vendors.clone());
    tokio::select! {
        finish = crew.finished(run.end() + WIND_DOWN) => { finish?; }
        () = display.run(run.begin, run.length) => {}
    }
    display.finish();
    Ok(Played { run, vendors, tally: crew.tally() })
}

async fn with_sluice(
    options: &Options,
    screen: &Screen,
    dynamo: &EmbeddedDynamo,
    endpoint: &str,
) -> Result<(Played, Recovery, Finish), Failure> {
    let run = Run::soon(options.length);
    let vendors = Vendors::start(Changes::within(run.begin, run.length)).await?;
    let mut crew = Crew::spawn(options, Side::With, endpoint, &vendors.url(), &run)?;
    let tally = crew.tally();
    screen.part(
        &format!("2. With Sluice, {} s", run.length.as_secs()),
        &["the same callers, vendors and calls".into()],
    );
    let display = Slots::new(screen, vendors.clone(), dynamo.client(TABLE), tally.clone());
    let announcer = screen.announcer();
    let news = tokio::spawn(news(announcer.clone(), Changes::within(run.begin, run.length)));
    let play = async {
        let recovery = crash::play(dynamo, &mut crew, run.begin + CRASH_AT, run.end(), &announcer).await?;
        let finish = crew.finished(run.end() + WIND_DOWN).await?;
        dynamo.client(TABLE).ops().sweep(SweepOptions::default()).await?;
        Ok::<_, Failure>((recovery, finish))
    };
    let (recovery, finish) = tokio::select! {
        played = play => played?,
        () = display.run(run.begin, run.length, WIND_DOWN * 2) => {
            return Err(Failure::new("the table did not answer any more"));
        }
    };
    news.abort();
    display.finish();
    Ok((Played { run, vendors, tally }, recovery, finish))
}

async fn news(announcer: Announcer, changes: Changes) {
    sleep_until(changes.drop_at).await;
    let limits::Lowered { at_first, later, .. } = limits::OPENAI_REQUESTS;
    announcer.say(&format!("   openai lowers its limit from {at_first} calls a minute to {later}"));
    sleep_until(changes.busy_at).await;
    announcer.say(&format!("   elevenlabs is busy for {:.1} s", vendor::elevenlabs::BUSY.as_secs_f64()));
}
