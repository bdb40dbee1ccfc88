//! `sluice metrics`: serves the table's figures to Prometheus. It only reads, and only when a request comes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use tokio::net::TcpListener;

use self::scraper::Scraper;
use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::loopback;
use crate::signals::stop_requested;
use crate::view::SurveyReader;

mod scraper;

/// The shortest time between two scans: several collectors cost no more than one.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address and port to serve at; port 0 takes a free one. Anybody who reaches it can read the buckets'
    /// names and levels. A loopback address answers only requests to localhost or a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    listen: SocketAddr,
}

pub(crate) async fn run(options: Options) -> Ended {
    let mut stop = std::pin::pin!(stop_requested());
    let client = client().await?;
    let table = client.table().to_owned();
    let listener = TcpListener::bind(options.listen).await.map_err(|error| cannot(options.listen, &error))?;
    let address = listener.local_addr()?;
    println!("sluice metrics of {table}: http://{address}/metrics");
    println!("Ctrl-C stops it.");
    let scraper = Arc::new(Scraper::default());
    tokio::select! {
        served = axum::serve(listener, service(Arc::clone(&scraper), address)) => served?,
        // The scans run independently of requests. If they ended, the program would have to end too.
        never = scraper.read_on(SurveyReader::new(client, INTERVAL)) => match never {},
        () = &mut stop => println!("stopping"),
    }
    Ok(ExitCode::SUCCESS)
}

fn service(scraper: Arc<Scraper>, address: SocketAddr) -> Router {
    let routes = Router::new().route("/metrics", get(answer)).with_state(scraper);
    match loopback::is_loopback(address.ip()) {
        true => routes.layer(from_fn(loopback::guard)),
        // Anybody who reaches the address may ask, under any name.
        false => routes,
    }
}

async fn answer(State(scraper): State<Arc<Scraper>>) -> Response {
    match scraper.scrape().await {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        // Prometheus then counts the target as down, and an alert on that is what an operator needs.
        Err(trouble) => (StatusCode::SERVICE_UNAVAILABLE, trouble).into_response(),
    }
}

fn cannot(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::new(match error.kind() {
        ErrorKind::AddrInUse => {
            format!("{address} is in use: stop what listens there, or choose another port with --listen")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}
