//! `sluice sandbox`: serves an embedded DynamoDB on a socket, with table and buckets, until Ctrl-C.

mod control;

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_sdk::core::schema::table_name;
use sluice_testkit::EmbeddedDynamo;

use crate::buckets::{self, BucketsFile};
use crate::failure::{Ended, Failure};
use crate::lab::demo::vendor::{Changes, Vendors};
use crate::signals::stop_requested;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Port on the loopback interface; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 4566)]
    port: u16,
    /// Keep the data in this file; without it, in memory
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Buckets to apply; without it, a new table gets a few of well-known vendors
    #[arg(long, value_name = "FILE")]
    buckets: Option<PathBuf>,
    /// Give this part of the requests a fault, as 0.05: throttled, lost, late, or applied without a reply
    #[arg(long, value_name = "PART", value_parser = part)]
    faults: Option<f64>,
    /// Read commands from standard input, for tests: `advance 60s` moves the time of the table. The end of
    /// the input stops the sandbox
    #[arg(long, conflicts_with = "data")]
    control: bool,
    /// Serve the demo's vendors too, for the packages of OpenAI and Anthropic. They answer 429 above their
    /// limits, and a new table gets buckets for them
    #[arg(long)]
    vendors: bool,
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "it must be between 0 and 1".to_owned())
}

/// Refuses a file that another program wrote, before anything is written beside it.
fn check_is_data(file: &Path) -> Result<(), Failure> {
    /// Of SQLite, in which the engine keeps its data (<https://www.sqlite.org/fileformat.html>).
    const BEGINS: &[u8] = b"SQLite format 3\0";
    let mut beginning = Vec::new();
    let Ok(opened) = File::open(file) else { return Ok(()) };
    opened.take(BEGINS.len() as u64).read_to_end(&mut beginning)?;
    if beginning.is_empty() || beginning == BEGINS {
        return Ok(());
    }
    let file = file.display();
    Err(Failure::new(format!(
        "{file} is not a file of `sluice sandbox`: name one that it created, or a new file"
    )))
}

/// Locks `file` for this process: two engines on one file would not see each other's writes. The lock is a
/// file of its own beside it, since some systems take SQLite's locks for ours. The system ends it with the
/// process.
fn only_one(file: &Path) -> Result<File, Failure> {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let opened = File::options().create(true).truncate(false).write(true).open(&name);
    let lock = opened.map_err(|error| {
        let (file, lock) = (file.display(), name.display());
        Failure::new(format!(
            "{file} cannot be used, because its lock {lock} cannot be made: {error}. Name a file in a folder that exists \
             and that you may write to"
        ))
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
            "{} is in use by another `sluice sandbox`: end that one, or name another file with --data",
            file.display()
        ))),
        Err(TryLockError::Error(error)) => Err(Failure::new(format!("{}: {error}", name.display()))),
    }
}

/// How long connections that are still open may take to finish.
const GRACE: Duration = Duration::from_secs(2);

const SAMPLE: &str = include_str!("../buckets/sample.toml");
const OF_VENDORS: &str = include_str!("../buckets/vendors.toml");

pub(crate) async fn run(options: Options) -> Ended {
    let stop = stop_requested();
    let declared = match &options.buckets {
        Some(file) => BucketsFile::read(file)?,
        None if options.vendors => BucketsFile::parse("the vendors' buckets", OF_VENDORS)?,
        None => BucketsFile::parse("built-in sample", SAMPLE)?,
    };
    options.data.as_deref().map_or(Ok(()), check_is_data)?;
    // Held until this function returns.
    let _only = options.data.as_deref().map(only_one).transpose()?;
    let dynamo = match &options.data {
        Some(file) => EmbeddedDynamo::open(file).map_err(|error| {
            Failure::new(format!(
                "{}: {error}; name a file that `sluice sandbox` created, or a new file",
                file.display()
            ))
        })?,
        None => EmbeddedDynamo::new()?,
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    // Only this server tells the engine's own time.
    let server = if options.control || options.faults.is_some() {
        dynamo.serve_with_faults(address).await?
    } else {
        dynamo.serve(address).await?
    };
    let table = table_name("sandbox");
    let is_new = dynamo.create_table(&table).await?;
    println!("sluice sandbox: an embedded DynamoDB at {}", server.endpoint_url());
    match &options.data {
        Some(file) => println!("data in {}", file.display()),
        None => println!("data in memory, lost when the sandbox stops"),
    }
    println!();
    // In a table that is kept, changes by hand stay; a named file is applied every time.
    if is_new || options.buckets.is_some() {
        buckets::apply(&dynamo.client(&table), &declared).await?;
    } else {
        println!("buckets as the data file has them; `sluice buckets list` shows them");
    }
    if let Some(part) = options.faults {
        // Not before: the table is made without them.
        dynamo.faults().at_random(part);
        println!();
        println!("{part} of the requests meet a fault");
    }
    let vendors = if options.vendors { Some(Vendors::start(Changes::never()).await?) } else { None };
    println!();
    println!("In another shell:");
    println!();
    println!("export SLUICE_ENV=sandbox");
    println!("export SLUICE_ENDPOINT_URL={}", server.endpoint_url());
    println!("export AWS_ACCESS_KEY_ID=sandbox AWS_SECRET_ACCESS_KEY=sandbox");
    for (name, url) in vendors.iter().flat_map(Vendors::variables) {
        println!("export {name}={url}");
    }
    println!();
    println!("Ctrl-C stops it.");
    if options.control {
        tokio::select! {
            () = stop => {}
            () = control::follow(&dynamo, &table) => {}
        }
    } else {
        stop.await;
    }
    println!("stopping");
    match tokio::time::timeout(GRACE, server.stop()).await {
        Ok(stopped) => stopped?,
        Err(_) => println!("some connections did not close in time"),
    }
    Ok(ExitCode::SUCCESS)
}
