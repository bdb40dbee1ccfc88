//! `sluice bench`: compares Sluice with the reference algorithm, a lone conditional update and a limiter in
//! memory, over loopback and against a modelled DynamoDB.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::duration::duration_within;
use crate::failure::{Ended, Failure};

mod buckets;
mod chart;
pub(crate) mod engine;
mod histogram;
mod load;
mod measure;
mod process;
mod progress;
pub(crate) mod scenario;
mod system;
mod table;
mod target;
mod world;

use measure::Measure;
use progress::Progress;
use scenario::{Plan, Scenario};
use target::Target;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each system is measured in each case: 1s to 10m
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = duration_within(LEAST, MOST))]
    length: Duration,
    /// Run this scenario; may be given several times; without it, all
    #[arg(long = "scenario", value_name = "SCENARIO", value_enum)]
    scenarios: Vec<Scenario>,
    /// Write a chart of grants a second by callers into this file, as SVG; of the scenario `ample`
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Also write the figures as JSON into this file
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// End with exit code 0 although a target is missed
    #[arg(long)]
    allow_missed: bool,
}

#[derive(Debug, Serialize)]
struct BenchReport {
    version: &'static str,
    /// `release`, or `debug`; the figures of a debug build say little.
    build: &'static str,
    cores: usize,
    /// How long each system was measured; virtual seconds against the model, minutes for saturation.
    seconds: f64,
    measures: Vec<Measure>,
    targets: Vec<Target>,
}

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(10);

const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

pub(crate) async fn run(options: Options) -> Ended {
    if BUILD == "debug" {
        anstream::eprintln!(
            "{}figures of a debug build mean little:{} cargo run --release -p sluice-cli -- bench",
            crate::output::YELLOW.render(),
            crate::output::YELLOW.render_reset()
        );
    }
    let wanted = |scenario: &Scenario| options.scenarios.is_empty() || options.scenarios.contains(scenario);
    let scenarios: Vec<Scenario> = Scenario::ALL.into_iter().filter(wanted).collect();
    // Checked first, before minutes are spent.
    if options.chart.is_some() && !scenarios.contains(&Scenario::Ample) {
        return Err(Failure::new(
            "the chart shows the scenario `ample`: add --scenario ample, or leave --chart out",
        ));
    }
    for file in options.chart.iter().chain(&options.json_file) {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    }
    let progress = Progress::new(scenarios.iter().map(|scenario| scenario.steps()).sum());
    let plan = Plan { length: options.length, progress: progress.clone() };
    let mut measures = Vec::new();
    for scenario in scenarios {
        measures.extend(scenario.run(&plan).await?);
    }
    progress.finish();
    if let Some(file) = &options.chart {
        chart::write(&measures, file)?;
    }
    let targets = target::judge(&measures);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let report = BenchReport {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        cores,
        seconds: options.length.as_secs_f64(),
        measures,
        targets,
    };
    if let Some(file) = &options.json_file {
        std::fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if options.json {
        crate::output::json(&report)?;
    } else {
        print(&report);
    }
    let is_missed = report.targets.iter().any(|target| target.met == Some(false));
    Ok(if is_missed && !options.allow_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(report: &BenchReport) {
    let BenchReport { build, cores, seconds, version, .. } = report;
    println!("sluice {version}, {build} build, {cores} cores; {seconds} s for each system and case");
    for line in table::measures(&report.measures).into_iter().chain(table::targets(&report.targets)) {
        anstream::println!("{line}");
    }
}
