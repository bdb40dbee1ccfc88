//! One caller process of the demo: many callers, each of which wants one good reply after the other.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http_body_util::Full;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sluice_sdk::core::Timestamp;
use sluice_sdk::{Client, Clock};
use sluice_testkit::{Faults, Meter, dynamodb_at};
use tokio::time::{Instant, sleep};

use super::limits::{APIS, Api, TABLE};
use super::probe::{Lateness, Probe};
use crate::failure::{Ended, Failure};

mod planted;
pub(crate) mod retry;
mod send;
mod slot;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Which process this is
    #[arg(long)]
    process: usize,
    /// The caller's name in its leases
    #[arg(long)]
    name: String,
    /// The vendors
    #[arg(long)]
    vendor: String,
    /// How the callers keep to the vendors' limits
    #[arg(long)]
    side: Side,
    /// Callers of each vendor
    #[arg(long, num_args = 3)]
    callers: Vec<u32>,
    /// What is wrong with the callers
    #[arg(long)]
    planted: Option<Planted>,
    /// First call, in microseconds of Unix time
    #[arg(long)]
    start: i64,
    /// Last call
    #[arg(long)]
    stop: i64,
}

/// The two sides of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// Each caller calls when it likes, and retries as the vendors' own clients do.
    Without,
    /// Each caller takes a slot first.
    With,
}

/// Faults of callers with Sluice, which the demo must find: so that "all claims hold" means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Planted {
    /// Calls start without a slot.
    NoAdmission,
    /// A slot is handed over half a second after its start.
    LateStarts,
    /// What the vendors reply is not passed to Sluice.
    Deaf,
}

/// A piece of work that ended: one good reply was wanted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    /// The vendor's place in [`APIS`].
    pub(crate) of: usize,
    /// Microseconds of Unix time.
    pub(crate) ended: i64,
    /// Since it was wanted, over all tries and waits.
    pub(crate) took_micros: u64,
    pub(crate) end: JobEnd,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum JobEnd {
    Done,
    /// The last try was refused, and the caller gets an error.
    GivenUp,
}

/// The report of a process, a line of JSON each time.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct DemoReport {
    /// Callers that wait for a slot, by vendor.
    pub(crate) waiting: [u64; 3],
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    /// Replies after which a bucket was lowered, or adopted a lower limit.
    pub(crate) lowered: u64,
    pub(crate) errors: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) dynamodb_requests: u64,
    /// How long DynamoDB took for each slot since the last report, in microseconds.
    pub(crate) acquire_micros: Vec<u64>,
    /// The jobs that ended since the last report.
    pub(crate) jobs: Vec<Job>,
    /// What the probe saw since the last report.
    pub(crate) lateness: Lateness,
}

const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Short leases, so that the crash is healed while somebody watches; the default is 60 s.
pub(super) const LEASE_TTL: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Counts {
    waiting: [AtomicU64; 3],
    granted: AtomicU64,
    refused: AtomicU64,
    lowered: AtomicU64,
    errors: AtomicU64,
    last_error: parking_lot::Mutex<Option<String>>,
    acquire_micros: parking_lot::Mutex<Vec<u64>>,
    jobs: parking_lot::Mutex<Vec<Job>>,
}

struct Worker {
    sluice: Client,
    http: HttpClient<HttpConnector, Full<Bytes>>,
    process: usize,
    vendor: String,
    stop: Timestamp,
    planted: Option<Planted>,
    counts: Counts,
    probe: Probe,
}

pub(crate) async fn run(options: Options) -> Ended {
    let meter = Meter::default();
    let worker = Arc::new(Worker {
        sluice: client(&options.name, &meter)?,
        http: HttpClient::builder(TokioExecutor::new()).build_http(),
        process: options.process,
        vendor: options.vendor,
        stop: Timestamp::from_micros(options.stop),
        planted: options.planted,
        counts: Counts::default(),
        probe: Probe::start(),
    });
    let now = Clock::system().now();
    sleep(Timestamp::from_micros(options.start).since(now)).await;
    let callers =
        options.callers.iter().enumerate().flat_map(|(api, callers)| (0..*callers).map(move |_| api));
    let callers: Vec<_> = callers
        .map(|api| {
            let worker = Arc::clone(&worker);
            tokio::spawn(async move { worker.work(options.side, api).await })
        })
        .collect();
    let reporter = {
        let (worker, meter) = (Arc::clone(&worker), meter.clone());
        tokio::spawn(async move {
            loop {
                sleep(REPORT_EVERY).await;
                worker.report(&meter);
            }
        })
    };
    for caller in callers {
        caller.await?;
    }
    reporter.abort();
    worker.report(&meter);
    Ok(ExitCode::SUCCESS)
}

/// A client as any product would build it, with its requests counted.
fn client(name: &str, meter: &Meter) -> Result<Client, Failure> {
    let endpoint =
        std::env::var("SLUICE_ENDPOINT_URL").map_err(|_| Failure::new("SLUICE_ENDPOINT_URL is not set"))?;
    let dynamo = dynamodb_at(&endpoint, meter.clone(), Faults::default());
    Ok(Client::builder(TABLE).lease_ttl(LEASE_TTL).caller(name).dynamodb(dynamo))
}

/// Waits after a call that failed for another reason than a limit.
const AFTER_ERROR: Duration = Duration::from_millis(100);

impl Worker {
    /// One caller: works until the end.
    async fn work(&self, side: Side, of: usize) {
        let api: &Api = &APIS[of];
        match side {
            Side::Without => self.retry_until_stop(of, api).await,
            Side::With if self.planted == Some(Planted::NoAdmission) => self.call_until_stop(of, api).await,
            Side::With => self.take_slots_until_stop(of, api).await,
        }
    }

    fn ended(&self, of: usize, wanted: Instant, end: JobEnd) {
        let took_micros = u64::try_from(wanted.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counts.jobs.lock().push(Job { of, ended: Clock::system().now().micros(), took_micros, end });
    }

    async fn failed(&self, error: &impl std::fmt::Display) {
        self.counts.errors.fetch_add(1, Relaxed);
        *self.counts.last_error.lock() = Some(error.to_string());
        sleep(AFTER_ERROR).await;
    }

    fn report(&self, meter: &Meter) {
        let Counts { waiting, granted, refused, lowered, errors, last_error, acquire_micros, jobs } =
            &self.counts;
        let report = DemoReport {
            waiting: [0, 1, 2].map(|api: usize| waiting[api].load(Relaxed)),
            granted: granted.load(Relaxed),
            refused: refused.load(Relaxed),
            lowered: lowered.load(Relaxed),
            errors: errors.load(Relaxed),
            last_error: last_error.lock().clone(),
            dynamodb_requests: meter.total().requests,
            acquire_micros: std::mem::take(&mut *acquire_micros.lock()),
            jobs: std::mem::take(&mut *jobs.lock()),
            lateness: self.probe.take(),
        };
        if let Ok(line) = serde_json::to_string(&report) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}
