//! One caller process of the demo: many callers, each in a loop of slot and vendor call.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sluice_sdk::core::Timestamp;
use sluice_sdk::{Client, Clock};
use sluice_testkit::{Faults, Meter, dynamodb_at};
use tokio::time::sleep;

use super::limits::{APIS, TABLE};
use crate::failure::{Ended, Failure};

mod call;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The caller's name in its leases
    #[arg(long)]
    name: String,
    /// The vendors
    #[arg(long)]
    vendor: String,
    /// Callers of each vendor
    #[arg(long, num_args = 3)]
    callers: Vec<u32>,
    /// First call, in microseconds of Unix time
    #[arg(long)]
    start: i64,
    /// Last call
    #[arg(long)]
    stop: i64,
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
}

struct Worker {
    sluice: Client,
    http: HttpClient<HttpConnector, Full<Bytes>>,
    vendor: String,
    stop: Timestamp,
    counts: Counts,
}

pub(crate) async fn run(options: Options) -> Ended {
    let meter = Meter::default();
    let worker = Arc::new(Worker {
        sluice: client(&options.name, &meter)?,
        http: HttpClient::builder(TokioExecutor::new()).build_http(),
        vendor: options.vendor,
        stop: Timestamp::from_micros(options.stop),
        counts: Counts::default(),
    });
    let now = Clock::system().now();
    sleep(Timestamp::from_micros(options.start).since(now)).await;
    let callers = options.callers.iter().enumerate().flat_map(|(api, callers)| (0..*callers).map(move |_| api));
    let callers: Vec<_> = callers
        .map(|api| {
            let worker = Arc::clone(&worker);
            tokio::spawn(async move { worker.call_until_stop(api, &APIS[api]).await })
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
    let endpoint = std::env::var("SLUICE_ENDPOINT_URL").map_err(|_| Failure::new("SLUICE_ENDPOINT_URL is not set"))?;
    let dynamo = dynamodb_at(&endpoint, meter.clone(), Faults::default());
    Ok(Client::builder(TABLE).lease_ttl(LEASE_TTL).caller(name).dynamodb(dynamo))
}

impl Worker {
    fn report(&self, meter: &Meter) {
        let Counts { waiting, granted, refused, lowered, errors, last_error, acquire_micros } = &self.counts;
        let taken = |micros: &parking_lot::Mutex<Vec<u64>>| std::mem::take(&mut *micros.lock());
        let report = DemoReport {
            waiting: [0, 1, 2].map(|api: usize| waiting[api].load(Relaxed)),
            granted: granted.load(Relaxed),
            refused: refused.load(Relaxed),
            lowered: lowered.load(Relaxed),
            errors: errors.load(Relaxed),
            last_error: last_error.lock().clone(),
            dynamodb_requests: meter.total().requests,
            acquire_micros: taken(acquire_micros),
        };
        if let Ok(line) = serde_json::to_string(&report) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}
