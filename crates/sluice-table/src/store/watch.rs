//! What requests do while DynamoDB is out: most fail at once, those of a patient connection wait for its
//! return, and one task sends probes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{DIRECTORY_KEY, KEY};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::breaker::{Breaker, Heard, HeardSince};
use super::connection::{Link, Store, WhileOut};
use super::translate::COUNT_UNITS;
use crate::operation::Operation;
use crate::retry::random_wait_up_to;

/// The shortest pause between two probes. Together with [`SPREAD`]: a shorter pause finds the return sooner,
/// and costs more half read units.
const PAUSE: Duration = Duration::from_millis(250);
/// How much longer a pause may be, drawn anew for each: the processes of a fleet probe at different times.
const SPREAD: Duration = Duration::from_millis(250);

impl Store {
    /// The same connection, for callers that can wait: while DynamoDB is out, a request waits for its return
    /// instead of failing at once. It takes at most [`longest_request`](Self::longest_request) all the same.
    #[must_use]
    pub fn patient(&self) -> Self {
        Self { while_out: WhileOut::Waits, ..self.clone() }
    }

    /// The longest time to an answer, for a caller that does not wait.
    #[must_use]
    pub fn answer_within(&self) -> Duration {
        self.link.answer_within
    }

    /// What the connection has heard so far.
    #[must_use]
    pub fn heard(&self) -> Heard {
        self.link.breaker.heard()
    }

    /// What the connection has heard since then.
    #[must_use]
    pub fn heard_since(&self, then: Heard) -> HeardSince {
        self.link.breaker.since(then)
    }

    /// Whether DynamoDB is out: it answered nothing for nearly [`answer_within`](Self::answer_within).
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.link.breaker.is_out()
    }

    /// How often DynamoDB has come back from an outage.
    #[must_use]
    pub fn returns(&self) -> u32 {
        self.link.breaker.returns()
    }

    /// How long ago DynamoDB last came back from an outage; `None` for never. Whoever sees that
    /// [`is_out`](Self::is_out) has become false sees this.
    #[must_use]
    pub fn since_return(&self) -> Option<Duration> {
        self.link.breaker.since_return()
    }

    /// Waits until DynamoDB has come back from an outage more than `returns` times.
    pub async fn returned(&self, returns: u32) {
        self.link.breaker.returned(returns).await;
    }

    /// Whether a request may be sent although DynamoDB is out: because it has come back by `until`, for which
    /// only a patient connection waits, or as a probe.
    pub(super) async fn may_send(&self, until: Instant) -> bool {
        let breaker = &self.link.breaker;
        self.watch();
        let returns = breaker.returns();
        if !breaker.is_out() || breaker.may_probe(Instant::now()) {
            return true;
        }
        self.while_out == WhileOut::Waits && timeout_at(until, breaker.returned(returns)).await.is_ok()
    }

    /// Spawns the task that sends probes, if there is none. The task ends with the outage, or when the last
    /// clone of the connection is dropped.
    pub(super) fn watch(&self) {
        let breaker = &self.link.breaker;
        if let Ok(runtime) = Handle::try_current()
            && breaker.claim_watch()
        {
            let watcher = Watcher { breaker: Arc::clone(breaker), link: Arc::downgrade(&self.link) };
            runtime.spawn(watcher.watch());
        }
    }

    /// Sends one small read. If DynamoDB answers, the outage ends, whatever the answer is.
    async fn probe_once(self) {
        let request =
            self.link.dynamo.get_item().table_name(&self.link.table).return_consumed_capacity(COUNT_UNITS);
        let request = request.key(KEY, AttributeValue::S(DIRECTORY_KEY.to_owned()));
        let _ = self.send_once(Operation::GetItem, 0, Box::pin(request.send())).await;
    }
}

/// The task that sends probes. It holds no connection.
struct Watcher {
    breaker: Arc<Breaker>,
    link: Weak<Link>,
}

impl Watcher {
    async fn watch(self) {
        // Probes overlap: each may hang for the timeout of an attempt. What is under way when the task ends
        // is dropped.
        let mut probes = JoinSet::new();
        loop {
            sleep(PAUSE + random_wait_up_to(SPREAD)).await;
            let Some(link) = self.link.upgrade().filter(|_| self.breaker.is_out()) else { return };
            while probes.try_join_next().is_some() {}
            probes.spawn(Store::over(link).probe_once());
        }
    }
}

/// Also if its runtime ends: the next request then spawns another task.
impl Drop for Watcher {
    fn drop(&mut self) {
        self.breaker.watcher_ended();
    }
}
