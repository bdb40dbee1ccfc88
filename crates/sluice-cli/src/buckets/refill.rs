//! `sluice buckets refill`: sets the level of a rate bucket.

use clap::Args;
use serde::Serialize;
use sluice_sdk::Client;
use sluice_sdk::core::Amount;
use sluice_sdk::reactions::Refilled;

use crate::connect::client;
use crate::failure::Failure;
use crate::output::{self, Decimal, short};

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
    from: Decimal,
    level: Decimal,
}

/// How the new level is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

pub(super) async fn run(options: Options) -> Result<(), Failure> {
    let format = if options.json { Format::Json } else { Format::Text };
    refill(&client().await?, &options.dimension, options.to, format).await
}

/// Sets the level of a rate bucket, and prints what it was.
pub(crate) async fn refill(
    client: &Client,
    name: &str,
    to: Option<Amount>,
    format: Format,
) -> Result<(), Failure> {
    let (from, level) = match client.refill(name, to).await? {
        Refilled::Set { from, level } => (from, level),
        Refilled::Already(level) => (level, level),
        _ => return Ok(()),
    };
    let (from, level) = (Decimal::of(from), Decimal::of(level));
    if format == Format::Json {
        return output::json(&RefillLine { dimension: name.to_owned(), from, level });
    }
    match from == level {
        true => println!("{name} is at {} already", short(&level)),
        false => println!("{name} is at {}; it was at {}", short(&level), short(&from)),
    }
    Ok(())
}
