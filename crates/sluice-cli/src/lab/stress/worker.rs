//! One process of a stress run: a client, and workers that acquire, hold and release until the end.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use sluice_history::{Ending, Event, Granted, Header, Refused, Released, Writer};
use sluice_sdk::core::Timestamp;
use sluice_sdk::{AcquireError, Basis, ClientBuilder, Clock, Grant, Outcome, Request};
use tokio::sync::watch;
use tokio::time::sleep;

use super::names;
use super::units::UnitCount;
use crate::acquire::request;
use crate::failure::{Ended, Failure};
use crate::signals::stop_requested;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Its name in leases and in the history
    #[arg(long)]
    name: String,
    #[arg(long)]
    workers: u32,
    /// First call, in microseconds of Unix time
    #[arg(long)]
    start: i64,
    /// Last call
    #[arg(long)]
    stop: i64,
    /// Its part of the history
    #[arg(long)]
    part: Option<PathBuf>,
    #[arg(last = true)]
    dimensions: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StressReport {
    /// Why the process gave up.
    pub(crate) failure: Option<String>,
    pub(crate) figures: Figures,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Figures {
    pub(crate) grants: u64,
    pub(crate) refusals: u64,
    /// Grants that were made without the table, while DynamoDB was unavailable; no promise holds for them.
    pub(crate) without_table: u64,
    pub(crate) errors: u64,
    pub(crate) last_error: Option<String>,
    /// Units of DynamoDB that the replies state.
    pub(crate) read_units: u64,
    pub(crate) write_units: u64,
    /// How long each granted acquire took, in microseconds.
    pub(crate) acquire_micros: Vec<u64>,
}

/// How long a grant is held, in microseconds.
const HOLD_MICROS: std::ops::RangeInclusive<u64> = 5_000..=15_000;
/// The pause after an error.
const AFTER_ERROR: Duration = Duration::from_millis(100);

struct Crowd {
    name: String,
    /// The share of all its calls, as `SLUICE_SHARE` names it.
    share: Option<String>,
    client: sluice_sdk::Client,
    request: Request<'static>,
    dimensions: Vec<String>,
    stop: Timestamp,
    stopped: watch::Receiver<bool>,
    figures: Mutex<Figures>,
    history: Mutex<Option<Writer<File>>>,
    next_id: AtomicU64,
}

/// Every failure goes into the report, so that one process can print it for all of them.
pub(crate) async fn run(options: Options) -> Ended {
    let units = UnitCount::install()?;
    let crowd = Arc::new(Crowd::gather(&options).await?);
    sleep(Timestamp::from_micros(options.start).since(now())).await;
    let workers: Vec<_> = (0..options.workers)
        .map(|_| {
            let crowd = Arc::clone(&crowd);
            tokio::spawn(async move { crowd.work().await })
        })
        .collect();
    let mut failure = None;
    for worker in workers {
        failure = failure.or(worker.await?.err());
    }
    if let Some(history) = locked(&crowd.history).take() {
        history.finish()?;
    }
    let figures = std::mem::take(&mut *locked(&crowd.figures));
    let report = StressReport {
        failure: failure.map(|failure| failure.to_string()),
        figures: Figures { read_units: units.read(), write_units: units.write(), ..figures },
    };
    writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes true at a signal, and when the input ends: the parent process has ended, or asks for the end.
fn stopped() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    let sender = Arc::new(sender);
    let at_signal = Arc::clone(&sender);
    let stop = stop_requested();
    tokio::spawn(async move {
        stop.await;
        at_signal.send_replace(true);
    });
    // On a thread of its own: such a read cannot be interrupted, and the runtime would wait for it.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        sender.send_replace(true);
    });
    receiver
}

impl Crowd {
    async fn gather(options: &Options) -> Result<Self, Failure> {
        let part = options.part.as_ref();
        Ok(Self {
            name: options.name.clone(),
            share: std::env::var("SLUICE_SHARE").ok().filter(|share| !share.is_empty()),
            client: ClientBuilder::from_env()?.caller(&options.name).emf(false).connect().await,
            request: request(&options.dimensions)?.into_owned(),
            dimensions: names(&options.dimensions).map(str::to_owned).collect(),
            stop: Timestamp::from_micros(options.stop),
            stopped: stopped(),
            figures: Mutex::default(),
            history: Mutex::new(
                part.map(|file| Writer::new(File::create(file)?, Header::new(0))).transpose()?,
            ),
            next_id: AtomicU64::new(1),
        })
    }

    async fn work(&self) -> Result<(), Failure> {
        let mut stopped = self.stopped.clone();
        while now() < self.stop && !*stopped.borrow() {
            let asked_at = now();
            let pause = match self.client.acquire(self.request.clone()).await {
                Ok(Outcome::Granted(grant)) => {
                    self.hold(grant, asked_at).await?;
                    continue;
                }
                Ok(Outcome::RetryIn(retry)) => {
                    locked(&self.figures).refusals += 1;
                    self.write(&[self.refused(asked_at, None)])?;
                    retry.wait()
                }
                Err(AcquireError::Store(error)) => {
                    self.failed(&error);
                    self.write(&[self.refused(asked_at, Some(error.to_string()))])?;
                    AFTER_ERROR
                }
                // There is no such bucket, or the cost can never be granted: no later try succeeds.
                Err(error) => return Err(error.into()),
            };
            tokio::select! {
                () = sleep(pause.min(self.stop.since(now()))) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }
        Ok(())
    }

    async fn hold(&self, grant: Grant, asked_at: Timestamp) -> Result<(), Failure> {
        let granted_at = now();
        let id = format!("{}-{}", self.name, self.next_id.fetch_add(1, Relaxed));
        let rests_on_table = grant.basis() == Basis::Table;
        {
            let mut figures = locked(&self.figures);
            figures.grants += 1;
            figures.without_table += u64::from(!rests_on_table);
            figures
                .acquire_micros
                .push(u64::try_from(granted_at.since(asked_at).as_micros()).unwrap_or(u64::MAX));
        }
        let mut released = Vec::new();
        if rests_on_table {
            self.write(&granted(&id, (&self.name, self.share.as_deref()), &grant, (asked_at, granted_at)))?;
            // Also of a rate, whose tokens stay spent: a run in which grants and releases are not equal is
            // not whole.
            released.extend(grant.dimensions().map(ToString::to_string));
        }
        sleep(grant.start_at().since(now()) + Duration::from_micros(fastrand::u64(HOLD_MICROS))).await;
        let at_micros = now().micros();
        let how = match grant.release().await {
            Ok(sluice_sdk::Released::LeaseGone) => Ending::LeaseGone,
            Ok(_) => Ending::Released,
            Err(error) => {
                self.failed(&error);
                Ending::Released
            }
        };
        let ends: Vec<_> = released
            .into_iter()
            .map(|dimension| Event::Released(Released { id: id.clone(), dimension, at_micros, how }))
            .collect();
        self.write(&ends)
    }

    /// A request without a grant, as an event.
    fn refused(&self, asked_at: Timestamp, error: Option<String>) -> Event {
        Event::Refused(Refused {
            process: self.name.clone(),
            dimensions: self.dimensions.clone(),
            asked_at_micros: asked_at.micros(),
            at_micros: now().micros(),
            booked: false,
            share: self.share.clone(),
            error,
        })
    }

    fn failed(&self, error: &dyn std::fmt::Display) {
        let mut figures = locked(&self.figures);
        figures.errors += 1;
        figures.last_error = Some(error.to_string());
    }

    fn write(&self, events: &[Event]) -> Result<(), Failure> {
        let mut history = locked(&self.history);
        let Some(history) = history.as_mut() else { return Ok(()) };
        Ok(events.iter().try_for_each(|event| history.write(event))?)
    }
}

/// The events of a grant, one for each bucket.
fn granted(
    id: &str,
    (process, share): (&str, Option<&str>),
    grant: &Grant,
    (asked_at, granted_at): (Timestamp, Timestamp),
) -> Vec<Event> {
    let dimensions: Vec<_> = grant.dimensions().collect();
    // The start of a transaction's grant is the time of its answer, and the start over several buckets is the
    // latest of their starts. What each bucket was asked for is earlier than that.
    let is_exact = dimensions.len() == 1 && grant.lease_ends().is_none();
    let line = |dimension: &&sluice_sdk::core::Dimension| {
        Event::Granted(Granted {
            id: id.to_owned(),
            process: process.to_owned(),
            dimension: dimension.to_string(),
            cost_micros: grant.cost(dimension.as_str()).unwrap_or_default().micros(),
            asked_at_micros: asked_at.micros(),
            granted_at_micros: granted_at.micros(),
            start_at_micros: grant.start_at().micros(),
            judged_from_micros: (!is_exact).then_some(asked_at.micros()),
            ends_at_micros: grant.lease_ends().map(Timestamp::micros),
            booked: false,
            share: share.map(ToString::to_string),
            paid_from: grant.paid_from(dimension.as_str()).map(str::to_owned),
        })
    };
    dimensions.iter().map(line).collect()
}

fn now() -> Timestamp {
    Clock::system().now()
}

/// Each change under these locks is a single step, so a panic elsewhere leaves the state whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
