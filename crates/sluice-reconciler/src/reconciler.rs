//! Runs a sweep for each event, in the time that Lambda gives it.

use std::time::{Duration, SystemTime};

use aws_lambda_events::eventbridge::EventBridgeEvent;
use lambda_runtime::{Context, Diagnostic};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_ops::{Ops, SweepError, SweepOptions, SweepReport};
use sluice_table::{Clock, ConfigError, StoreError};

use crate::guard::{Lost, guarded};
use crate::log::print;
use crate::metrics::{Ended, Published, metrics};

/// The event that starts a sweep. Its content does not matter.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Trigger {
    /// The scheduled rule.
    Schedule(EventBridgeEvent),
    /// A person, for example with `aws lambda invoke --payload '{}'`.
    Person(Value),
}

/// Why a sweep did not run, or did not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The function's variables cannot be used.
    #[error("the function cannot sweep: {0}")]
    Config(String),
    /// The table failed.
    #[error("the sweep stopped: {0}")]
    Sweep(#[source] StoreError),
    /// The sweep panicked, or did not end in time.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl From<ReconcileError> for Diagnostic {
    fn from(error: ReconcileError) -> Self {
        let error_type = match &error {
            ReconcileError::Config(_) => "Config",
            ReconcileError::Sweep(_) => "Sweep",
            ReconcileError::Lost(Lost::Panicked(_)) => "Panic",
            ReconcileError::Lost(Lost::TimedOut(_)) => "Timeout",
        };
        Self { error_type: error_type.into(), error_message: error.to_string() }
    }
}

/// The function between two events: its settings, and one connection that stays open.
#[derive(Debug)]
pub struct Reconciler {
    ops: Result<Ops, ConfigError>,
    environment: String,
    options: Result<SweepOptions, ConfigError>,
    published: Result<Published, ConfigError>,
}

impl Reconciler {
    /// Reads the `SLUICE_*` variables and makes one cheap request, so that Lambda's start phase, which is
    /// free and fast, sets up the connection instead of the first sweep. If this fails, every run reports the
    /// failure as its error: a function that dies at its start reports less.
    pub async fn connect() -> Self {
        let ops = Ops::from_env().await;
        if let Ok(ops) = &ops
            && let Err(error) = ops.warm_up().await
        {
            tracing::warn!(event = "reconciler.cold", %error);
        }
        let environment = std::env::var("SLUICE_ENV").ok().filter(|environment| !environment.is_empty());
        Self::new(ops, environment).with_options(SweepOptions::from_env()).publishing(Published::from_env())
    }

    /// A function for this table. Without an environment, its metrics carry the table's name.
    #[must_use]
    pub fn new(ops: Result<Ops, ConfigError>, environment: Option<String>) -> Self {
        let table = || ops.as_ref().map_or_else(|_| "unknown".to_owned(), |ops| ops.table().to_owned());
        let environment = environment.unwrap_or_else(table);
        Self { ops, environment, options: Ok(SweepOptions::default()), published: Ok(Published::default()) }
    }

    /// Sweeps with these options, within the time that Lambda gives. If the options cannot be used, every run
    /// reports why.
    #[must_use]
    pub fn with_options(mut self, options: Result<SweepOptions, ConfigError>) -> Self {
        self.options = options;
        self
    }

    /// Publishes these metrics. If the choice cannot be used, every run reports why, and publishes all.
    #[must_use]
    pub fn publishing(mut self, published: Result<Published, ConfigError>) -> Self {
        self.published = published;
        self
    }

    /// Sweeps, logs the report and its metrics, and returns the report.
    ///
    /// # Errors
    /// [`ReconcileError`], which Lambda counts, for variables that cannot be used and for a table that does
    /// not answer. A row that cannot be read is not an error, nor is a sweep that leaves work because its
    /// time is over. A sweep that panics, or does not end by itself, is an error.
    pub async fn reconcile(&self, time_left: Duration) -> Result<Value, ReconcileError> {
        let (ops, mut options) = match (&self.ops, &self.options, &self.published) {
            (Ok(ops), Ok(options), Ok(_)) => (ops.clone(), options.clone()),
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                let error = ReconcileError::Config(error.to_string());
                self.log(&SweepReport::default(), Some(&error));
                return Err(error);
            }
        };
        options.budget = Some(budget(time_left));
        let swept = guarded(longest(time_left), async move { ops.sweep(options).await }).await;
        let (report, error) = match swept {
            Ok(Ok(report)) => {
                self.log(&report, None);
                return Ok(json!(report));
            }
            Ok(Err(SweepError { report, source })) => (*report, ReconcileError::Sweep(source)),
            // What it did before is done, and not known.
            Err(lost) => (SweepReport::default(), ReconcileError::Lost(lost)),
        };
        self.log(&report, Some(&error));
        Err(error)
    }

    /// Logs the result of a run.
    fn log(&self, report: &SweepReport, error: Option<&ReconcileError>) {
        match error {
            None => print(report),
            Some(error) => print(&Failed { event: "reconciler.failed", error: error.to_string(), report }),
        }
        // A sweep that read nothing counts as failed, even if its time ended before DynamoDB failed.
        let read_something = report.rows_scanned > 0 || report.segments_unscanned == 0;
        let ended = if error.is_none() && read_something { Ended::Well } else { Ended::InError };
        // CloudWatch drops metrics whose time is hours off.
        let now = self.ops.as_ref().map_or_else(|_| Clock::system().now(), Ops::now);
        let published = self.published.as_ref().copied().unwrap_or_default();
        for line in metrics(&self.environment, published, report, ended, now) {
            print(&line);
        }
    }
}

/// The line of a run that failed.
#[derive(Serialize)]
struct Failed<'a> {
    event: &'static str,
    error: String,
    report: &'a SweepReport,
}

/// The time that a sweep may take: the time left, minus a reserve for requests under way, the log and the
/// reply.
#[must_use]
pub fn budget(time_left: Duration) -> Duration {
    time_left.saturating_sub((time_left / 10).clamp(Duration::from_millis(500), Duration::from_secs(3)))
}

/// When a run that did not end by itself is cut off: after the [`budget`], while there is time for a report.
fn longest(time_left: Duration) -> Duration {
    time_left.saturating_sub((time_left.saturating_sub(budget(time_left))) / 4)
}

/// The time until Lambda ends the invocation.
#[must_use]
pub fn time_left(context: &Context) -> Duration {
    context.deadline().duration_since(SystemTime::now()).unwrap_or_default()
}
