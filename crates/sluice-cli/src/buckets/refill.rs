//! `sluice buckets refill`: sets the level of a rate bucket.

use clap::Args;
use serde::Serialize;
use sluice_sdk::core::Amount;
use sluice_sdk::reactions::Refilled;

use crate::connect::client;
use crate::failure::Failure;
use crate::output::{self, short};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Its name, as in openai#rpm
    dimension: String,
    /// The level, from 0 to the capacity; it may be below the present level
    #[arg(long, value_name = "N", value_parser = level, allow_negative_numbers = true)]
    to: Option<Amount>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn level(text: &str) -> Result<Amount, String> {
    let level = text.parse().ok().filter(|level| *level >= Amount::ZERO);
    level.ok_or_else(|| "it must be a number from 0 to the capacity, as in 100".to_owned())
}

#[derive(Debug, Serialize)]
struct RefillLine {
    dimension: String,
    from: String,
    level: String,
}

pub(super) async fn run(options: Options) -> Result<(), Failure> {
    let name = options.dimension;
    let (from, level) = match client().await?.refill(&name, options.to).await? {
        Refilled::Set { from, level } => (from, level),
        Refilled::Already(level) => (level, level),
        _ => return Ok(()),
    };
    let (from, level) = (from.to_string(), level.to_string());
    if options.json {
        return output::json(&RefillLine { dimension: name, from, level });
    }
    match from == level {
        true => println!("{name} is at {} already", short(&level)),
        false => println!("{name} is at {}; it was at {}", short(&level), short(&from)),
    }
    Ok(())
}
