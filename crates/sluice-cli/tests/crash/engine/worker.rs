//! A caller that outlives the engine, and knows what it was told.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_sdk::{Client, Grant, Outcome, Released};
use tokio::sync::{mpsc, watch};

use super::{SLOTS, TOKENS};
use crate::table;

/// What a caller knows of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    Held,
    Released,
    /// The engine died before it answered.
    Nothing,
}

/// What the workers are told to do: work, or rest and report, in this trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Work,
    Rest(u32),
}

/// What a worker has learnt since its last report.
pub(super) struct CrashReport {
    pub(super) leases: BTreeMap<String, Knows>,
    pub(super) granted: u32,
    pub(super) unanswered: u32,
    /// Its last request.
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) answered: bool,
    pub(super) of_tokens: bool,
}

/// A worker. It holds one slot at most, and takes a token after each.
pub(super) struct Worker {
    number: u32,
    endpoint: String,
    told: watch::Receiver<Told>,
    reports: mpsc::UnboundedSender<CrashReport>,
    dice: fastrand::Rng,
    /// Counts the names that it has had: what became of a lease that nobody knows of must not be mistaken for
    /// its next.
    names: u32,
    client: Client,
    held: Option<Grant>,
    report: CrashReport,
}

impl CrashReport {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            leases: BTreeMap::new(),
            granted: 0,
            unanswered: 0,
            began: now,
            ended: now,
            answered: true,
            of_tokens: false,
        }
    }
}

fn caller(number: u32, names: u32) -> String {
    format!("worker-{number}-{names}")
}

/// Half of the workers give up at the first failure; the others try again, and meet the next engine.
const fn tries_again(number: u32) -> bool {
    !number.is_multiple_of(2)
}

fn client(endpoint: &str, number: u32, names: u32) -> Client {
    let settings =
        Client::builder(table::name()).lease_ttl(Duration::from_secs(1)).caller(caller(number, names));
    settings.max_retries(if tries_again(number) { 8 } else { 0 }).dynamodb(table::dynamo(endpoint))
}

impl Worker {
    pub(super) fn new(
        number: u32,
        endpoint: &str,
        told: watch::Receiver<Told>,
        reports: mpsc::UnboundedSender<CrashReport>,
        dice: fastrand::Rng,
    ) -> Self {
        let client = client(endpoint, number, 0);
        let endpoint = endpoint.to_owned();
        Self {
            number,
            endpoint,
            told,
            reports,
            dice,
            names: 0,
            client,
            held: None,
            report: CrashReport::new(),
        }
    }

    /// Works and rests as it is told, until nobody tells it any more; then it gives back what it holds.
    pub(super) async fn work(mut self) -> CrashReport {
        loop {
            let told = *self.told.borrow_and_update();
            if told != Told::Work {
                let report = std::mem::replace(&mut self.report, CrashReport::new());
                self.reports.send(report).ok();
                // Once a trial, though it may sleep through the work until the next: that is not the same
                // trial.
                if self.told.wait_for(|now| *now != told).await.is_err() {
                    break;
                }
                continue;
            }
            if self.told.has_changed().is_err() {
                break;
            }
            self.step().await;
        }
        if self.held.is_some() {
            self.step().await;
        }
        self.report
    }

    async fn step(&mut self) {
        self.report.began = Instant::now();
        let held = self.held.take();
        self.report.of_tokens = held.is_none() && self.dice.bool();
        self.report.answered = match held {
            Some(grant) => self.release(grant).await,
            None if self.report.of_tokens => self.acquire_tokens().await,
            None => self.acquire_slot().await,
        };
        self.report.ended = Instant::now();
        if self.dice.u8(..4) == 0 {
            tokio::time::sleep(Duration::from_millis(self.dice.u64(..3))).await;
        }
    }

    async fn acquire_slot(&mut self) -> bool {
        match self.client.acquire(SLOTS).await {
            Ok(Outcome::Granted(grant)) => {
                self.held = Some(grant);
                self.learn(Knows::Held);
                true
            }
            Ok(other) => panic!("there are slots enough: {other:?}"),
            Err(_) => self.lose_track(),
        }
    }

    async fn release(&mut self, grant: Grant) -> bool {
        match grant.release().await {
            Ok(Released::GivenBack) => {
                self.learn(Knows::Released);
                true
            }
            // A try whose answer was lost has done it already.
            Ok(Released::LeaseGone) if tries_again(self.number) => {
                self.learn(Knows::Released);
                true
            }
            Ok(other) => panic!("nobody else gives back: {other:?}"),
            Err(_) => self.lose_track(),
        }
    }

    async fn acquire_tokens(&mut self) -> bool {
        match self.client.acquire(TOKENS).await {
            Ok(Outcome::Granted(_)) => {
                self.report.granted += 1;
                true
            }
            Ok(other) => panic!("there are tokens enough: {other:?}"),
            Err(_) => {
                self.report.unanswered += 1;
                false
            }
        }
    }

    fn learn(&mut self, knows: Knows) {
        self.report.leases.insert(caller(self.number, self.names), knows);
    }

    /// It may hold a slot or not: it goes on under another name.
    fn lose_track(&mut self) -> bool {
        self.learn(Knows::Nothing);
        self.names += 1;
        self.client = client(&self.endpoint, self.number, self.names);
        false
    }
}
