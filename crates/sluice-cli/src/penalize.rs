//! `sluice penalize`: lowers a bucket's level, as after a 429.

use std::process::ExitCode;

use clap::Args;
use sluice_sdk::reactions::Penalty;

use crate::connect::client;
use crate::failure::Ended;
use crate::output::short;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The bucket, as in openai#rpm
    dimension: String,
    /// The part of its level to keep: 0.8 after a first 429, 0.5 if they repeat, 0.3 for a long Retry-After
    #[arg(long, value_name = "PART", default_value = "0.8", value_parser = factor, allow_negative_numbers = true)]
    factor: f64,
}

fn factor(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "it must be a number between 0 and 1, as in 0.8".to_owned())
}

pub(crate) async fn run(options: Options) -> Ended {
    let name = &options.dimension;
    match client().await?.penalize(&options.dimension, options.factor).await? {
        Penalty::Applied(level) => println!("{name} is at {}", short(&level.to_string())),
        Penalty::NothingToTake(level) => {
            println!("{name} is at {}: there was nothing to take", short(&level.to_string()))
        }
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}
