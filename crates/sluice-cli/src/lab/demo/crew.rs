//! The caller processes of the demo: starts them, collects their reports, kills one.

use std::process::Stdio;
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::probe::Lateness;
use super::worker::{DemoReport, Job, Side};
use super::{Options, Run};
use crate::failure::Failure;

/// Callers of the second and of the third vendor, over all processes: about as many as may start within a
/// second, and twice as many as may call at once.
const OF_THE_OTHERS: [u32; 2] = [12, 8];

/// Callers of each vendor in each process.
pub(crate) fn callers(options: &Options) -> [u32; 3] {
    let [second, third] = OF_THE_OTHERS.map(|callers| callers.div_ceil(options.processes));
    [options.callers, second, third]
}

/// The name of the nth process in its leases.
pub(crate) fn name(n: usize) -> String {
    format!("process-{}", n + 1)
}

/// Whether the processes ended by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    InTime,
    Late,
}

/// The processes. Dropping this value kills them.
pub(crate) struct Crew {
    processes: Vec<Child>,
    listeners: Vec<JoinHandle<()>>,
    tally: Tally,
}

/// The last report of each process, the time of every acquire, every job, and what the probes saw.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Reports>>);

#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) last: Vec<DemoReport>,
    pub(crate) acquire_micros: Vec<u64>,
    pub(crate) jobs: Vec<Job>,
    /// By process.
    pub(crate) lateness: Vec<Vec<Lateness>>,
}

impl Tally {
    /// Gives `look` access to the reports so far.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Reports) -> T) -> T {
        look(&mut self.0.lock())
    }
}

impl Crew {
    pub(crate) fn spawn(
        options: &Options,
        side: Side,
        endpoint: &str,
        vendor: &str,
        run: &Run,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let tally = Tally::default();
        tally.with(|reports| {
            reports.last = vec![DemoReport::default(); options.processes as usize];
            reports.lateness = vec![Vec::new(); options.processes as usize];
        });
        let (mut processes, mut listeners) = (Vec::new(), Vec::new());
        for n in 0..options.processes as usize {
            let mut command = Command::new(&program);
            command.arg("demo-worker").args([
                "--process",
                &n.to_string(),
                "--name",
                &name(n),
                "--vendor",
                vendor,
            ]);
            command.args(["--side", &named(&side)]);
            command.arg("--callers").args(callers(options).map(|callers| callers.to_string()));
            command.args(["--start", &run.start.micros().to_string()]);
            command.args(["--stop", &run.start.after(run.length).micros().to_string()]);
            if let Some(planted) = &options.planted {
                command.args(["--planted", &named(planted)]);
            }
            // Refusals and cool-downs are warnings, but expected here: the summary has them, not the bars.
            let level = std::env::var("SLUICE_LOG_LEVEL").unwrap_or_else(|_| "ERROR".into());
            command.env("SLUICE_LOG_LEVEL", level);
            command
                .env("SLUICE_ENDPOINT_URL", endpoint)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            let mut process = command.spawn()?;
            if let Some(lines) = process.stdout.take() {
                listeners.push(tokio::spawn(listen(n, lines, tally.clone())));
            }
            processes.push(process);
        }
        Ok(Self { processes, listeners, tally })
    }

    pub(crate) const fn len(&self) -> usize {
        self.processes.len()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Sends SIGKILL to a process, so that it can give nothing back.
    pub(crate) async fn kill(&mut self, n: usize) -> Result<(), Failure> {
        if let Some(process) = self.processes.get_mut(n) {
            process.kill().await?;
        }
        self.tally.with(|reports| {
            if let Some(killed) = reports.last.get_mut(n) {
                killed.waiting = [0; 3];
            }
        });
        Ok(())
    }

    /// Waits until all processes have ended and their last reports are read.
    pub(crate) async fn finished(&mut self, at_most: Instant) -> Result<Finish, Failure> {
        let all = async {
            for process in &mut self.processes {
                process.wait().await?;
            }
            for listener in &mut self.listeners {
                listener.await?;
            }
            Ok(Finish::InTime)
        };
        tokio::time::timeout_at(at_most, all).await.unwrap_or(Ok(Finish::Late))
    }
}

/// The value as an argument.
fn named(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

async fn listen(n: usize, lines: ChildStdout, tally: Tally) {
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(mut report) = serde_json::from_str::<DemoReport>(&line) else { continue };
        tally.with(|reports| {
            reports.acquire_micros.append(&mut report.acquire_micros);
            reports.jobs.append(&mut report.jobs);
            reports.lateness[n].push(std::mem::take(&mut report.lateness));
            reports.last[n] = report;
        });
    }
}
