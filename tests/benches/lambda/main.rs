//! `cargo bench -p sluice-tests --bench lambda [-- ROWS]`: the size of the function's archive, its start, and
//! its memory while it sweeps a million lease rows, of which a tenth are ended. Build the archive first:
//! `task build:lambda ARCH=x86_64`.
//!
//! The function runs as it does in Lambda, against a stand-in for the Runtime API and the embedded engine,
//! both in this process. The figures are this machine's, not AWS's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::cast_precision_loss, unreachable_pub)]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::Value;
use sluice_testkit::EmbeddedDynamo;

#[path = "../rows.rs"]
mod rows;

mod runtime;

use runtime::Runtime;

const TABLE: &str = "ontopix-vendor-buckets-bench";
const ARCHIVE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../target/lambda/sluice-reconciler/bootstrap.zip");
const BUCKETS: usize = 200;
const STARTS: usize = 15;
const MOST_ZIP_BYTES: u64 = 5_000_000;
const MOST_MEMORY_KB: u64 = 48 * 1_024;
const START_WANTED: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> ExitCode {
    let rows = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000_usize);
    let Ok(archive) = std::fs::metadata(ARCHIVE) else {
        eprintln!(
            "there is no target/lambda/sluice-reconciler/bootstrap.zip: run `task build:lambda ARCH=x86_64` first"
        );
        return ExitCode::FAILURE;
    };
    let folder = std::env::temp_dir().join(format!("sluice-bench-{}", std::process::id()));
    unpack(&folder);
    let file = folder.join("table.sqlite");
    let dynamo = EmbeddedDynamo::open(&file).unwrap();
    dynamo.create_table(TABLE).await.unwrap();
    index(&file);
    let server = dynamo.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let bootstrap = folder.join("bootstrap");
    println!("archive: {:.2} MB (wanted: 5 at most)", archive.len() as f64 / 1e6);
    let start = start(&bootstrap, &server.endpoint_url()).await;
    println!(
        "start to the first /next, median of {STARTS}: {:.1} ms (wanted: {} at most)",
        start.as_secs_f64() * 1e3,
        START_WANTED.as_millis()
    );
    println!("loading {rows} leases over {BUCKETS} buckets, {} of them ended", rows / 10);
    let leases = rows::table(dynamo.clock().now(), BUCKETS, rows, rows / 10);
    dynamo.load(TABLE, leases.chain([rows::directory(BUCKETS)])).unwrap();
    let (report, memory) = sweep(&bootstrap, &server.endpoint_url()).await;
    for figure in ["rows_scanned", "restored", "recounted", "left", "requests", "duration_ms", "errorMessage"]
    {
        println!("  {figure}: {}", report[figure]);
    }
    println!(
        "peak resident memory: {:.1} MB (wanted: {} at most)",
        memory as f64 / 1_024.0,
        MOST_MEMORY_KB / 1_024
    );
    std::fs::remove_dir_all(&folder).unwrap();
    let done = report["restored"] == rows / 10 && report["rows_scanned"] == rows + BUCKETS + 1;
    // The start is told and not judged: a busy machine would decide it.
    if done && archive.len() <= MOST_ZIP_BYTES && memory <= MOST_MEMORY_KB {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The engine would sort the whole table for each page of a parallel scan: at this size, longer than the
/// function waits.
fn index(file: &Path) {
    let engine = rusqlite::Connection::open(file).unwrap();
    engine.execute(&format!("CREATE INDEX by_segment ON \"{TABLE}\" (hash_prefix, pk, sk)"), []).unwrap();
}

fn unpack(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let unpacked =
        Command::new("python3").args(["-m", "zipfile", "-e", ARCHIVE]).arg(folder).status().unwrap();
    assert!(unpacked.success(), "the archive cannot be unpacked");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.join("bootstrap"), executable).unwrap();
}

async fn start(bootstrap: &Path, endpoint: &str) -> Duration {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let mut runtime = Runtime::start(bootstrap, endpoint, TABLE).await;
        starts.push(runtime.first_next().await);
    }
    starts.sort();
    starts[STARTS / 2]
}

async fn sweep(bootstrap: &Path, endpoint: &str) -> (Value, u64) {
    let mut runtime = Runtime::start(bootstrap, endpoint, TABLE).await;
    runtime.first_next().await;
    let report = runtime.invoke(Duration::from_secs(900)).await;
    (report, runtime.peak_memory_kb())
}
