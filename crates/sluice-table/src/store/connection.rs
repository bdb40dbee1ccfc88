//! The connection to one table: what all of its requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;

use super::exchange::{self, AttemptTimeout};
use super::learning::Learning;
use crate::dates::DateReader;
use crate::requests::Units;
use crate::retry::longest_request;
use crate::settings::Settings;
use crate::table_clock::TableClock;

/// One table of one DynamoDB.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) dynamo: Dynamo,
    pub(super) table: String,
    pub(super) max_retries: u32,
    pub(super) attempt: AttemptTimeout,
    pub(super) requests: Arc<AtomicU64>,
    pub(super) units: Arc<Units>,
    pub(super) clock: Arc<TableClock>,
    pub(super) learning: Arc<Learning>,
    pub(super) dates: DateReader,
}

impl Store {
    /// The table that `settings` names, through `dynamo`. If `dynamo` has no HTTP client, one is created.
    #[must_use]
    pub fn new(dynamo: &Dynamo, settings: Settings) -> Self {
        let Settings { table, max_retries, attempt_timeout, clock, .. } = settings;
        let clock = Arc::new(TableClock::new(clock));
        let dates = DateReader::new(Arc::clone(&clock));
        let attempt = AttemptTimeout(attempt_timeout);
        let bounded = exchange::bounded(dynamo, attempt, &dates);
        let dynamo = Dynamo::from_conf(bounded.build());
        Self {
            dynamo,
            table,
            max_retries,
            attempt,
            requests: Arc::default(),
            units: Arc::default(),
            clock,
            learning: Arc::default(),
            dates,
        }
    }

    /// The same table, with a request counter that begins at zero.
    #[must_use]
    pub fn counting_anew(&self) -> Self {
        Self { requests: Arc::default(), ..self.clone() }
    }

    /// Requests sent so far, repeated ones included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The client that requests go through.
    #[must_use]
    pub const fn dynamo(&self) -> &Dynamo {
        &self.dynamo
    }

    /// The time of the table.
    #[must_use]
    pub fn clock(&self) -> &TableClock {
        &self.clock
    }

    /// The host that requests go to; `None` before the first request.
    pub(super) fn server(&self) -> Option<&str> {
        self.dates.server()
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// How often a request is sent again.
    #[must_use]
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// How long one attempt of a request may take.
    #[must_use]
    pub const fn attempt(&self) -> AttemptTimeout {
        self.attempt
    }

    /// How long a request for rows may take, attempts and waits together. Fetching credentials comes on top.
    #[must_use]
    pub fn longest_request(&self) -> Duration {
        longest_request(self.attempt.of_rows(), self.max_retries)
    }
}
