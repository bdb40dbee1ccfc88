//! `sluice penalize`: believe a bucket less, as after a 429.

use std::process::ExitCode;

use clap::Args;
use sluice_sdk::Penalty;

use crate::connect::client;
use crate::failure::Ended;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The bucket, as in openai#rpm
    dimension: String,
    /// The share of its level that is left: 0.8 after a first 429, 0.5 where they repeat, 0.3 for a long Retry-After
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    factor: f64,
}

pub(crate) async fn run(options: Options) -> Ended {
    match client().await?.penalize(&options.dimension, options.factor).await? {
        Penalty::Applied(level) => println!("{} is at {level}", options.dimension),
        Penalty::NothingToTake(level) => println!("{} is at {level}: there was nothing to take", options.dimension),
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}
