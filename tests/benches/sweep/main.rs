//! `cargo bench -p sluice-tests --bench sweep`: the sweep beside the way of the first SDK's reconciler (a
//! scan, then a read and a transaction for each lease, one after another), on one engine, in virtual time
//! with DynamoDB's latencies.
//!
//! The latencies are modelled, not measured on AWS. For the original way they are the averages of the
//! zae-limiter load tests plus a millisecond of network; for the sweep, whose requests are larger, the 99th
//! percentile of a transaction of five actions, for every request. That is against the sweep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::cast_precision_loss, unreachable_pub)]

use std::process::ExitCode;
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_ops::SweepOptions;
use sluice_sdk::Client;
use sluice_testkit::{EmbeddedDynamo, Fault, Meter, Operation, TestClock};
use tokio::time::Instant;

#[path = "../rows.rs"]
mod rows;

mod original;

const TABLE: &str = "ontopix-vendor-buckets-bench";
const BUCKETS: usize = 200;
const LEASES: usize = 100_000;
/// The function's timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many times fewer requests a restored lease must take.
const FEWER: f64 = 50.0;

const LATENCIES: &[(Operation, Duration, Duration)] = &[
    // Operation, the original way, the sweep.
    (Operation::GetItem, Duration::from_micros(2_200), Duration::from_millis(93)),
    (Operation::BatchGetItem, Duration::ZERO, Duration::from_millis(93)),
    (Operation::Scan, Duration::from_millis(93), Duration::from_millis(93)),
    (Operation::UpdateItem, Duration::from_micros(4_500), Duration::from_millis(93)),
    (Operation::DeleteItem, Duration::from_micros(4_500), Duration::from_millis(93)),
    (Operation::TransactWriteItems, Duration::from_micros(16_700), Duration::from_millis(93)),
];

/// What one way came to.
struct Figures {
    name: &'static str,
    restored: usize,
    requests: u64,
    write_units: u64,
    took: Duration,
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    println!(
        "{LEASES} ended leases over {BUCKETS} concurrency buckets, {} s, latencies modelled",
        TIMEOUT.as_secs()
    );
    let original = original().await;
    let sweep = sweep().await;
    println!();
    println!(
        "{:<22} {:>9} {:>9} {:>14} {:>17} {:>9}",
        "", "restored", "requests", "requests/lease", "write units/lease", "seconds"
    );
    for figures in [&original, &sweep] {
        println!(
            "{:<22} {:>9} {:>9} {:>14.4} {:>17.2} {:>9.1}",
            figures.name,
            figures.restored,
            figures.requests,
            figures.requests_per_lease(),
            figures.write_units as f64 / figures.restored as f64,
            figures.took.as_secs_f64(),
        );
    }
    let fewer = original.requests_per_lease() / sweep.requests_per_lease();
    println!();
    println!("{fewer:.0} times fewer requests for each restored lease (wanted: {FEWER:.0})");
    println!(
        "all restored within {} s: {}",
        TIMEOUT.as_secs(),
        if sweep.restored == LEASES { "yes" } else { "no" }
    );
    let met = fewer >= FEWER && sweep.restored == LEASES && sweep.took < TIMEOUT;
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Figures {
    fn requests_per_lease(&self) -> f64 {
        self.requests as f64 / self.restored as f64
    }

    fn new(name: &'static str, restored: usize, meter: &Meter, began: Instant) -> Self {
        let used = meter.total();
        Self { name, restored, requests: used.requests, write_units: used.write_units, took: began.elapsed() }
    }
}

/// A table of its own for each way, and the latencies of it.
async fn engine(latency: impl Fn(&(Operation, Duration, Duration)) -> Duration) -> EmbeddedDynamo {
    let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_709_550_000))).unwrap();
    dynamo.create_table(TABLE).await.unwrap();
    let rows = rows::table(dynamo.clock().now(), BUCKETS, LEASES, LEASES);
    dynamo.load(TABLE, rows.chain([rows::directory(BUCKETS)])).unwrap();
    for entry in LATENCIES {
        dynamo.faults().always(entry.0, Fault::Delay(latency(entry)));
    }
    dynamo
}

async fn original() -> Figures {
    let dynamo = engine(|(_, original, _)| *original).await;
    let began = Instant::now();
    let restored = original::sweep(&dynamo.dynamodb(), TABLE, dynamo.clock().now(), began + TIMEOUT).await;
    Figures::new("the original way", restored, dynamo.meter(), began)
}

async fn sweep() -> Figures {
    let dynamo = engine(|(_, _, sweep)| *sweep).await;
    let client = dynamo.client_with(Client::builder(TABLE));
    let mut options = SweepOptions::default();
    options.budget = Some(sluice_reconciler::budget(TIMEOUT));
    let began = Instant::now();
    let report = client.ops().sweep(options).await.unwrap();
    assert_eq!(report.requests, dynamo.meter().total().requests, "the report counts its requests");
    Figures::new("the sweep", report.restored, dynamo.meter(), began)
}
