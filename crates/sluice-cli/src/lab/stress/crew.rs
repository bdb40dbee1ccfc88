//! The processes of a stress run: starts them, stops them, collects their reports.

use std::process::Stdio;
use std::time::Duration;

use sluice_sdk::core::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use super::Options;
use super::parts::Parts;
use super::worker::{Figures, StressReport};
use crate::failure::Failure;

/// How long calls that are under way at the end may take: retries of requests, and releases.
const WIND_DOWN: Duration = Duration::from_secs(30);

/// The processes. Dropping this value kills them.
pub(crate) struct Crew {
    processes: Vec<Child>,
    late: Instant,
}

impl Crew {
    /// Starts the processes; their first call is at `start`.
    pub(crate) fn spawn(options: &Options, parts: Option<&Parts>, start: Timestamp) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let length = options.length;
        let stop = start.after(length - options.wind_down);
        // Several histories may be judged as one, so names must differ between runs.
        let run = fastrand::u32(..);
        let mut processes = Vec::new();
        for n in 0..options.processes {
            let mut command = Command::new(&program);
            command.arg("stress-worker").args(["--name", &format!("{run:08x}-p{}", n + 1)]);
            command.args(["--workers", &options.workers.to_string()]);
            command.args(["--start", &start.micros().to_string(), "--stop", &stop.micros().to_string()]);
            if let Some(file) = parts.and_then(|parts| parts.file(n)) {
                command.arg("--part").arg(file);
            }
            command.arg("--").args(&options.dimensions);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            processes.push(command.spawn()?);
        }
        let late = Instant::now() + length + WIND_DOWN;
        Ok(Self { processes, late })
    }

    /// Lets the processes finish what they are doing: closes their input.
    pub(crate) fn stop(&mut self) {
        self.processes.iter_mut().for_each(|process| drop(process.stdin.take()));
        self.late = Instant::now() + WIND_DOWN;
    }

    /// The reports of the processes, after all have ended. If one fails, the run fails: releases that it did
    /// not write would look like slots granted twice.
    pub(crate) async fn finished(&mut self) -> Result<Vec<Figures>, Failure> {
        let late = self.late;
        let all = async {
            let mut reports = Vec::new();
            for (n, process) in self.processes.iter_mut().enumerate() {
                reports.push(report(n + 1, process).await?);
            }
            Ok(reports)
        };
        let still_running =
            || Err(Failure::new("the processes did not end in time, so that nothing is judged"));
        timeout_at(late, all).await.unwrap_or_else(|_| still_running())
    }
}

async fn report(n: usize, process: &mut Child) -> Result<Figures, Failure> {
    let mut text = String::new();
    if let Some(out) = &mut process.stdout {
        out.read_to_string(&mut text).await?;
    }
    // `wait` closes the input, which would stop the process; by now the process has reported everything.
    let status = process.wait().await?;
    if !status.success() {
        return Err(Failure::new(format!("process {n} ended with {status}, so that nothing is judged")));
    }
    let report: StressReport = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("the report of process {n}: {error}")))?;
    report.failure.map_or(Ok(report.figures), |failure| Err(Failure::new(failure)))
}
