//! The scenarios: callers, limits and stages.

use std::time::Duration;

use clap::ValueEnum;

use super::measure::Measure;
use super::progress::Progress;
use crate::failure::Failure;

mod ample;
mod concurrency;
pub(crate) mod memory;
mod prefetch;
mod processes;
mod saturation;
mod together;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// 1, 8, 64 and 512 callers on one bucket with ample tokens
    Ample,
    /// 1, 4 and 8 processes of 16 callers, 64 processes of one
    Processes,
    /// More demand than the limit allows, from callers that wait as long as a refusal says
    Saturation,
    /// Requests and tokens per minute in one answer
    Together,
    /// 10 and 100 slots, row and inline leases
    Concurrency,
    /// Tokens taken before callers ask for them, compared with a limiter in memory
    Prefetch,
    /// 10,000 buckets known to one client, 10 million grants
    Memory,
}

#[derive(Clone)]
pub(crate) struct Plan {
    /// How long each system is measured.
    pub(crate) length: Duration,
    pub(crate) progress: Progress,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::Ample,
        Self::Processes,
        Self::Saturation,
        Self::Together,
        Self::Concurrency,
        Self::Prefetch,
        Self::Memory,
    ];

    /// The number of cases in the scenario, for the progress bar.
    pub(crate) const fn steps(self) -> u64 {
        match self {
            Self::Ample => 8,
            Self::Processes => 7,
            Self::Saturation => 5,
            Self::Together | Self::Prefetch => 2,
            Self::Memory => 1,
            Self::Concurrency => 4,
        }
    }

    pub(crate) async fn run(self, plan: &Plan) -> Result<Vec<Measure>, Failure> {
        match self {
            Self::Ample => ample::run(plan).await,
            Self::Processes => processes::run(plan).await,
            Self::Saturation => saturation::run(plan).await,
            Self::Together => together::run(plan).await,
            Self::Concurrency => concurrency::run(plan).await,
            Self::Prefetch => prefetch::run(plan).await,
            Self::Memory => memory::run(plan).await,
        }
    }
}

/// Runs `work` in virtual time: the clock moves to the next timer when no task can run.
async fn in_virtual_time<T, Work>(work: impl FnOnce() -> Work + Send + 'static) -> Result<T, Failure>
where
    T: Send + 'static,
    Work: Future<Output = Result<T, Failure>>,
{
    on_one_thread(true, work).await
}

async fn on_one_thread<T, Work>(
    is_paused: bool,
    work: impl FnOnce() -> Work + Send + 'static,
) -> Result<T, Failure>
where
    T: Send + 'static,
    Work: Future<Output = Result<T, Failure>>,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build();
        let result = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(work()));
        let _ = sender.send(result);
    });
    receiver.await.map_err(|_| Failure::new("the thread of a scenario ended"))?
}
