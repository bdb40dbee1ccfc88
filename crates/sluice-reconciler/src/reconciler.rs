//! A sweep for each event, in the time that Lambda gives it.

use std::time::{Duration, SystemTime};

use aws_lambda_events::eventbridge::EventBridgeEvent;
use lambda_runtime::{Context, Diagnostic};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_ops::{Ops, SweepError, SweepOptions, SweepReport};
use sluice_table::{Clock, ConfigError, StoreError};

use crate::log::print;
use crate::metrics::{Ended, metrics};

/// What starts a sweep. The content does not matter.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Trigger {
    /// The rule, on its schedule.
    Schedule(EventBridgeEvent),
    /// A person, as in `aws lambda invoke --payload '{}'`.
    Person(Value),
}

/// Why a sweep was not made, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The function's variables.
    #[error("the function cannot sweep: {0}")]
    Config(String),
    /// The table.
    #[error("the sweep stopped: {0}")]
    Sweep(#[source] StoreError),
}

impl From<ReconcileError> for Diagnostic {
    fn from(error: ReconcileError) -> Self {
        let error_type = match &error {
            ReconcileError::Config(_) => "Config",
            ReconcileError::Sweep(_) => "Sweep",
        };
        Self { error_type: error_type.into(), error_message: error.to_string() }
    }
}

/// The function between two events: one connection, whose connection stays open.
#[derive(Debug)]
pub struct Reconciler {
    ops: Result<Ops, ConfigError>,
    environment: String,
    options: Result<SweepOptions, ConfigError>,
}

impl Reconciler {
    /// Reads the `SLUICE_*` variables and makes one cheap request, so that Lambda's free and fast start pays for the connection
    /// and not the first sweep. What fails here is told by every run, as its error: a function that dies at its start tells less.
    pub async fn connect() -> Self {
        let ops = Ops::from_env().await;
        if let Ok(ops) = &ops
            && let Err(error) = ops.warm_up().await
        {
            tracing::warn!(event = "reconciler.cold", %error);
        }
        let environment = std::env::var("SLUICE_ENV").ok().filter(|environment| !environment.is_empty());
        Self::new(ops, environment).with_options(SweepOptions::from_env())
    }

    /// A function over this table; without an environment its metrics name the table.
    #[must_use]
    pub fn new(ops: Result<Ops, ConfigError>, environment: Option<String>) -> Self {
        let table = || ops.as_ref().map_or_else(|_| "unknown".to_owned(), |ops| ops.table().to_owned());
        let environment = environment.unwrap_or_else(table);
        Self { ops, environment, options: Ok(SweepOptions::default()) }
    }

    /// Sweeps in this way, within the time that Lambda gives; where it cannot be used, every run says why.
    #[must_use]
    pub fn with_options(mut self, options: Result<SweepOptions, ConfigError>) -> Self {
        self.options = options;
        self
    }

    /// Sweeps, logs the report and its metrics, and returns the report.
    ///
    /// # Errors
    /// [`ReconcileError`], which Lambda counts: variables that cannot be used, a table that does not answer. A row that cannot be
    /// read is none, nor is a sweep that the time does not suffice for.
    pub async fn reconcile(&self, time_left: Duration) -> Result<Value, ReconcileError> {
        let (ops, mut options) = match (&self.ops, &self.options) {
            (Ok(ops), Ok(options)) => (ops, options.clone()),
            (Err(error), _) | (_, Err(error)) => {
                let error = ReconcileError::Config(error.to_string());
                self.tell(&SweepReport::default(), Some(&error));
                return Err(error);
            }
        };
        options.budget = Some(budget(time_left));
        match ops.sweep(options).await {
            Ok(report) => {
                self.tell(&report, None);
                Ok(json!(report))
            }
            Err(SweepError { report, source }) => {
                let error = ReconcileError::Sweep(source);
                self.tell(&report, Some(&error));
                Err(error)
            }
        }
    }

    /// Logs what came of a run.
    fn tell(&self, report: &SweepReport, error: Option<&ReconcileError>) {
        match error {
            None => print(report),
            Some(error) => print(&Failed { event: "reconciler.failed", error: error.to_string(), report }),
        }
        // A sweep that read nothing at all has not been one, though its time ended before DynamoDB failed.
        let read_something = report.rows_scanned > 0 || report.segments_unscanned == 0;
        let ended = if error.is_none() && read_something { Ended::Well } else { Ended::InError };
        // CloudWatch drops metrics of an instant that is hours off.
        let now = self.ops.as_ref().map_or_else(|_| Clock::system().now(), Ops::now);
        for line in metrics(&self.environment, report, ended, now) {
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

/// The time that a sweep may take: what is left, less some for the end of requests under way, the log and the reply.
#[must_use]
pub fn budget(time_left: Duration) -> Duration {
    time_left.saturating_sub((time_left / 10).clamp(Duration::from_millis(500), Duration::from_secs(3)))
}

/// The time until Lambda ends the invocation.
#[must_use]
pub fn time_left(context: &Context) -> Duration {
    context.deadline().duration_since(SystemTime::now()).unwrap_or_default()
}
