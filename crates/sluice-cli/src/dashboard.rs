//! `sluice dashboard`: the picture of the table as a web page. It only reads.
//!
//! One page without remote assets. The page's own script draws it from `/api/picture`, which it requests each
//! second. The table is surveyed while somebody looks, and this process keeps the results of the last hour.

mod access;
mod answers;
mod columns;
mod page;
mod watcher;
mod what_if;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::access::{Access, Token};
use self::watcher::Watcher;
use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::signals::stop_requested;
use crate::view::{SurveyReader, interval};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address and port to serve at; port 0 takes a free one. Any address but loopback needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// Serve only browsers that know this token: at least 16 letters, digits, and any of - . _ ~. Open the
    /// page once with ?token=..., or send a bearer token. Other users of this machine can see a command line:
    /// it is safer to set SLUICE_DASHBOARD_TOKEN
    #[arg(long)]
    token: Option<Token>,
    /// Time between two readings of the table, one second at least; a large table is read less often
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = named.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "it must be an address and a port, as in 127.0.0.1:8080 or [::1]:8080".into())
}

pub(crate) async fn run(options: Options) -> Ended {
    let mut stop = std::pin::pin!(stop_requested());
    let client = client().await?;
    let table = client.table().to_owned();
    let listener = tokio::net::TcpListener::bind(options.listen)
        .await
        .map_err(|error| cannot(options.listen, &error))?;
    let address = listener.local_addr()?;
    let access = Access::new(token(options.token)?, address)?;
    let watcher = Arc::new(Watcher::new(client.clone())?);
    let reading = tokio::spawn(Arc::clone(&watcher).read_on(SurveyReader::new(client, options.interval)));
    announce(&table, address, &access);
    // No need to wait for requests under way: a request that is cut off has changed nothing.
    tokio::select! {
        served = axum::serve(listener, answers::service(watcher, access)) => served?,
        () = &mut stop => println!("stopping"),
    }
    reading.abort();
    Ok(ExitCode::SUCCESS)
}

/// The token of the command line, otherwise of the environment; an empty variable counts as unset.
fn token(given: Option<Token>) -> Result<Option<Token>, Failure> {
    let variable = std::env::var("SLUICE_DASHBOARD_TOKEN").ok().filter(|text| !text.is_empty());
    match (given, variable) {
        (None, Some(text)) => {
            text.parse().map(Some).map_err(|error| Failure::new(format!("SLUICE_DASHBOARD_TOKEN: {error}")))
        }
        (given, _) => Ok(given),
    }
}

fn announce(table: &str, address: SocketAddr, access: &Access) {
    println!("sluice dashboard of {table}: http://{address}");
    if access.needs_token() {
        println!(
            "In each browser, open the page once with ?token=... at the end. It is plain HTTP: outside a trusted network, put TLS in"
        );
        println!("front of it.");
    }
    println!("Ctrl-C stops it.");
}

fn cannot(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::new(match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is in use: stop what listens there, or choose another port with --listen")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}
