//! The engine in a process of its own: the bench measures its clients' processor time and memory only.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitCode, Stdio};

use clap::Args;
use sluice_sdk::core::schema::table_name;
use sluice_sdk::core::{Bucket, Timestamp};
use sluice_testkit::EmbeddedDynamo;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::buckets::{many, plenty};
use crate::failure::{Ended, Failure};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Buckets that exist at the start, each with a name of its own
    #[arg(long, default_value_t = 0)]
    buckets: usize,
}

/// Serves until its input ends, which happens when the process that started it ends.
pub(crate) async fn serve(options: Options) -> Ended {
    let dynamo = EmbeddedDynamo::new()?;
    let server = dynamo.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let table = table_name("bench");
    dynamo.create_table(&table).await?;
    let bucket = |n| Ok(Bucket::full(many(n)?, plenty()?, Timestamp::from_secs(0)).create());
    let buckets = (0..options.buckets).map(bucket).collect::<Result<Vec<_>, Failure>>()?;
    if !buckets.is_empty() {
        dynamo.load(&table, buckets)?;
    }
    println!("{}", server.endpoint_url());
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    Ok(ExitCode::SUCCESS)
}

/// A process that serves the engine. Dropping this value kills the process.
pub(crate) struct Engine {
    pub(crate) endpoint: String,
    _process: Child,
}

impl Engine {
    pub(crate) async fn start(buckets: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench-engine", "--buckets", &buckets.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut endpoint = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut endpoint).await?;
        }
        let endpoint = endpoint.trim().to_owned();
        if endpoint.is_empty() {
            return Err(Failure::new("the engine of the bench did not start"));
        }
        Ok(Self { endpoint, _process: process })
    }
}
