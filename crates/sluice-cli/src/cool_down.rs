//! `sluice cool-down`: grants nothing from a bucket for a while, to no caller.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_sdk::CoolDown;

use crate::connect::client;
use crate::duration::duration;
use crate::failure::Ended;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The bucket, as in openai#rpm
    dimension: String,
    /// For how long from now, as in 30s or 5m
    #[arg(value_parser = pause)]
    pause: Duration,
}

/// Rejects a pause of zero: a user who enters it wants to end a cool-down.
fn pause(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("it must be above 0, as in 30s: a cool-down cannot be cut short, it ends by itself, and `sluice buckets show \
                 NAME` says when"
                .into())
        }
        pause => Ok(pause),
    }
}

pub(crate) async fn run(options: Options) -> Ended {
    let name = &options.dimension;
    let client = client().await?;
    let set = client.cool_down(name, options.pause).await?;
    let ends = output::relative(set.until(), client.now());
    match set {
        CoolDown::LongerAlready(_) => println!("{name} has a longer cool-down already, which ends {ends}"),
        _ => println!("{name} grants nothing: its cool-down ends {ends}"),
    }
    Ok(ExitCode::SUCCESS)
}
