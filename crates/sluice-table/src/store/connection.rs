//! The connection to one table: what all of its requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;

use super::breaker::Breaker;
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
    pub(super) link: Arc<Link>,
    pub(super) requests: Arc<AtomicU64>,
    pub(super) while_out: WhileOut,
}

/// What all clones of a connection share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) dynamo: Dynamo,
    pub(super) table: String,
    pub(super) max_retries: u32,
    pub(super) attempt: AttemptTimeout,
    pub(super) answer_within: Duration,
    pub(super) units: Units,
    pub(super) clock: Arc<TableClock>,
    pub(super) learning: Learning,
    pub(super) dates: DateReader,
    pub(super) breaker: Arc<Breaker>,
}

/// What a request does while DynamoDB is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhileOut {
    /// It fails at once.
    Fails,
    /// It waits for the return, as long as it may take.
    Waits,
}

impl Store {
    /// The table that `settings` names, through `dynamo`. If `dynamo` has no HTTP client, one is created.
    #[must_use]
    pub fn new(dynamo: &Dynamo, settings: Settings) -> Self {
        let Settings { table, max_retries, attempt_timeout, answer_within, clock, .. } = settings;
        let clock = Arc::new(TableClock::new(clock));
        let dates = DateReader::new(Arc::clone(&clock));
        let attempt = AttemptTimeout(attempt_timeout);
        // No caller could have an answer sooner than one attempt takes.
        let answer_within = answer_within.max(attempt_timeout);
        let breaker = Arc::new(Breaker::new(&table, answer_within, attempt_timeout));
        let dynamo = Dynamo::from_conf(exchange::bounded(dynamo, attempt, &dates, &breaker).build());
        let (units, learning) = (Units::default(), Learning::default());
        Self::over(Arc::new(Link {
            dynamo,
            table,
            max_retries,
            attempt,
            answer_within,
            units,
            clock,
            learning,
            dates,
            breaker,
        }))
    }

    pub(super) fn over(link: Arc<Link>) -> Self {
        Self { link, requests: Arc::default(), while_out: WhileOut::Fails }
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
    pub fn dynamo(&self) -> &Dynamo {
        &self.link.dynamo
    }

    /// The time of the table.
    #[must_use]
    pub fn clock(&self) -> &TableClock {
        &self.link.clock
    }

    /// The host that requests go to; `None` before the first request.
    pub(super) fn server(&self) -> Option<&str> {
        self.link.dates.server()
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.link.table
    }

    /// How often a request is sent again.
    #[must_use]
    pub fn max_retries(&self) -> u32 {
        self.link.max_retries
    }

    /// How long one attempt of a request may take.
    #[must_use]
    pub fn attempt(&self) -> AttemptTimeout {
        self.link.attempt
    }

    /// How long a request for rows may take, attempts and waits together. Fetching credentials comes on top.
    #[must_use]
    pub fn longest_request(&self) -> Duration {
        longest_request(self.link.attempt.of_rows(), self.link.max_retries)
    }
}
