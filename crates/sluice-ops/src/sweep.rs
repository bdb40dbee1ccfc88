//! The sweep gives back what crashed holders held. The reconciler runs it; any process may, at any time.

use std::time::Duration;

use sluice_core::Operand;
use tokio::time::Instant;

use tracing::Instrument as _;

use crate::ops::Ops;
use crate::telemetry;
use sluice_table::{Store, StoreError};

mod heal;
mod log;
mod measure;
mod pipeline;
mod reclaim;
mod recount;
mod report;
mod scan;
mod shares;

pub use heal::{HealPage, HealedPage, NextPage};
pub use report::{REPORT_TARGET, Restored, SweepOptions, SweepReport};
pub use scan::{MOST_UNITS, ROWS_PER_PAGE};
pub use shares::{SlotsMoved, give_slots};

use pipeline::Pipeline;
use recount::Recount;

/// How long a request that is under way at the end of the budget may continue. Most requests take less, and a
/// request that hangs must not keep the sweep from reporting what it did.
const GRACE: Duration = Duration::from_millis(250);

/// How many rows with the same fault are logged. The report states their number.
const MOST_LOGGED: usize = 20;

/// A sweep that a failure of the table stopped.
#[derive(Debug, thiserror::Error)]
#[error("the sweep stopped: {source}")]
pub struct SweepError {
    /// What the sweep had done until then. That work stays done.
    pub report: Box<SweepReport>,
    /// Why the sweep stopped.
    pub source: StoreError,
}

/// When each phase of a sweep ends.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// From then on, the scan requests no new page, so that what it found is given back in the same sweep.
    scan: Option<Instant>,
    /// From then on, nothing new begins.
    work: Option<Instant>,
    /// From then on, what is under way is abandoned.
    hard: Option<Instant>,
}

impl Deadlines {
    fn of(budget: Option<Duration>) -> Self {
        let until = |budget: Duration| Instant::now().checked_add(budget);
        Self {
            scan: budget.and_then(|budget| until(budget / 10 * 6)),
            work: budget.and_then(until),
            hard: budget.and_then(|budget| until(budget + GRACE)),
        }
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Runs `work` until `deadline` at most; `None` if the work did not end by then.
async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.ok(),
    }
}

impl Ops {
    /// Gives back what ended leases hold, recounts the concurrency buckets, and measures their loads. Every
    /// write is conditional on what was read: sweeps may run side by side, be cut off, and meet late
    /// releases.
    ///
    /// Takes at most its budget and 0.5 s; without a budget, 20.2 s for each page and 4.2 s for each write.
    ///
    /// # Errors
    /// [`SweepError`] if the table does not answer, with what was done until then. An unreadable row is no
    /// error: it is counted, logged and left alone. Nor is throttling: the next sweep does the rest.
    pub async fn sweep(&self, options: SweepOptions) -> Result<SweepReport, SweepError> {
        let began = Instant::now();
        let store = self.store.counting_anew();
        let span = telemetry::sweep(self.table());
        let (mut report, result) = sweep(&store, &options).instrument(span.clone()).await;
        report.duration = began.elapsed();
        report.clock_offset = self.clock_offset();
        if result.is_ok() && report.segments_unscanned == 0 {
            let left = options.budget.map(|budget| budget.saturating_sub(began.elapsed()));
            log::add(&store, &report, left).await;
        }
        report.requests = store.requests();
        report.log();
        self.measure(&report, &span, if result.is_ok() { "ok" } else { "error" });
        match result {
            Ok(()) => Ok(report),
            Err(source) => Err(SweepError { report: Box::new(report), source }),
        }
    }

    fn measure(&self, report: &SweepReport, span: &tracing::Span, outcome: &'static str) {
        span.record("sluice.restored", report.restored).record("sluice.outcome", outcome);
        telemetry::swept(report.duration, outcome);
        for (dimension, restored) in &report.dimensions {
            self.observer.restored(dimension, restored.leases);
        }
        for (dimension, load) in &report.loads {
            self.observer.measured(dimension, load);
        }
    }
}

async fn sweep(store: &Store, options: &SweepOptions) -> (SweepReport, Result<(), StoreError>) {
    let deadlines = Deadlines::of(options.budget);
    let mut report =
        SweepReport { segments_unscanned: usize::from(options.segments.max(1)), ..SweepReport::default() };
    let recount = match within(deadlines.work, Recount::begin(store)).await {
        Some(Ok(recount)) => recount,
        Some(Err(error)) => return (report, Err(error)),
        None => {
            report.deadline_hit = true;
            return (report, Err(no_answer()));
        }
    };
    let mut pipeline = Pipeline::new(store, options, deadlines, recount);
    let result = pipeline.run(&mut report).await;
    report.deadline_hit =
        is_over(deadlines.work) || (report.segments_unscanned > 0 && is_over(deadlines.scan));
    report.is_scanned = result.is_ok() && report.segments_unscanned == 0;
    let recount = pipeline.into_recount();
    if result.is_err() || is_over(deadlines.work) {
        return (report, result);
    }
    let end = async {
        let changing = recount.changing();
        // If some leases were not seen, nothing can be said about their buckets.
        if report.segments_unscanned == 0 {
            recount.end(store, options, &mut report).await?;
        }
        shares::go_on(store, changing).await;
        Ok(())
    };
    match within(deadlines.hard, end).await {
        Some(result) => (report, result),
        None => {
            report.deadline_hit = true;
            (report, Ok(()))
        }
    }
}

fn no_answer() -> StoreError {
    let message = String::from("no answer before the sweep's time ended");
    StoreError::Unavailable { operation: "GetItem", message, maybe_applied: false }
}

/// A text that a condition compares with.
fn text(value: impl ToString) -> Operand {
    Operand::Text(value.to_string())
}
