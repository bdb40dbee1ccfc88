//! `sluice cool-down`: grants nothing from a bucket for a while, to no caller; or ends that.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_sdk::Client;
use sluice_sdk::reactions::{CoolDown, EndedCoolDown};

use crate::buckets::refill::{Format, refill};
use crate::connect::client;
use crate::duration::duration;
use crate::failure::{Ended, Failure};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The bucket, as in openai#rpm
    dimension: String,
    /// For how long from now, as in 30s or 5m
    #[arg(value_name = "TIME", value_parser = pause, required_unless_present = "end", conflicts_with = "end")]
    pause: Option<Duration>,
    /// End the cool-down that is in force; processes learn of it within seconds
    #[arg(long)]
    end: bool,
    /// Also set the level of a rate bucket to its capacity: takes back all that a mistaken refusal by the
    /// vendor did
    #[arg(long, requires = "end", conflicts_with = "pause")]
    refill: bool,
}

/// Rejects a pause of zero: a user who enters it wants to end a cool-down.
fn pause(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("it must be above 0, as in 30s: `sluice cool-down NAME --end` ends a cool-down".to_owned())
        }
        pause => Ok(pause),
    }
}

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let name = &options.dimension;
    match options.pause {
        Some(pause) => set(&client, name, pause).await?,
        None => end(&client, name).await?,
    }
    if options.refill {
        match client.limit(name).await? {
            Some(limit) if limit.is_concurrent() => {
                println!("{name} has slots, which come back by release: there is nothing to refill");
            }
            _ => refill(&client, name, None, Format::Text).await?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(client: &Client, name: &str, pause: Duration) -> Result<(), Failure> {
    let set = client.cool_down(name, pause).await?;
    let ends = output::relative(set.until(), client.now());
    match set {
        CoolDown::LongerAlready(_) => println!("{name} has a longer cool-down already, which ends {ends}"),
        _ => println!("{name} grants nothing: its cool-down ends {ends}"),
    }
    Ok(())
}

async fn end(client: &Client, name: &str) -> Result<(), Failure> {
    match client.end_cool_down(name).await? {
        EndedCoolDown::Ended(until) => {
            let would_end = output::relative(until, client.now());
            println!("{name} grants again: its cool-down, which would have ended {would_end}, is over");
        }
        _ => println!("{name} had no cool-down"),
    }
    Ok(())
}
