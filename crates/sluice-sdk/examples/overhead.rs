//! What an acquire takes in Rust, beside which the bindings of other languages are measured: from stock, and
//! with one write. Against the table that the environment names, as `sluice sandbox` prints it. `task
//! bench:languages` runs this and the same in each language.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use sluice_sdk::core::{Amount, Cost, Limit, LimitType, Rate};
use sluice_sdk::{Client, ClientBuilder, Dimension, Outcome};

const FROM_STOCK: Dimension = Dimension::constant("overhead#rpm");
const WRITTEN: Dimension = Dimension::constant("overhead#rps");

/// Calls before the first that is measured.
const WARM_UP: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let sluice = ClientBuilder::from_env()?.prefetch([FROM_STOCK]).connect().await;
    for dimension in [FROM_STOCK, WRITTEN] {
        let capacity = Amount::from_tokens(10_000_000);
        let rate = Rate::per(capacity, Duration::from_secs(60)).ok_or("the rate")?;
        let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE)?;
        sluice.ops().apply_limit(&dimension, &limit).await?;
    }
    let stock = median(&sluice, &FROM_STOCK, 20_000).await?;
    let write = median(&sluice, &WRITTEN, 2_000).await?;
    println!(r#"{{"stock_us": {stock:.1}, "write_us": {write:.1}}}"#);
    Ok(())
}

/// The median time of an acquire, in microseconds.
async fn median(sluice: &Client, dimension: &Dimension, calls: usize) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::with_capacity(calls);
    for call in 0..WARM_UP + calls {
        let began = Instant::now();
        let outcome = sluice.acquire(dimension).await?;
        if call >= WARM_UP {
            times.push(began.elapsed());
        }
        match outcome {
            Outcome::Granted(grant) => drop(grant),
            Outcome::RetryIn(retry) => return Err(format!("refused: {retry}").into()),
        }
    }
    times.sort_unstable();
    Ok(times[calls / 2].as_secs_f64() * 1e6)
}
