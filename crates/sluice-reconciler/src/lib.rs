//! The reconciler: a Lambda function that runs the sweep of `sluice-ops` on a schedule and reports the
//! result.
//!
//! Its log has one JSON object a line: `reconciler.complete` for each run, metrics in CloudWatch's Embedded
//! Metric Format, and what the sweep logs. `docs/reconciler.md` describes it.

mod guard;
mod log;
mod metrics;
mod reconciler;

pub use guard::Lost;
pub use log::log_to_stdout;
pub use metrics::{ALARMS, Ended, Published, metrics};
pub use reconciler::{ReconcileError, Reconciler, Trigger, budget, time_left};
