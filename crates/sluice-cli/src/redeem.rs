//! `sluice redeem`: takes a booked start, holds, releases.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluice_sdk::{Redeemed, Ticket};

use crate::acquire::{hold_and_release, hold_time, refuse};
use crate::connect::client;
use crate::failure::Ended;
use crate::output::{self, YELLOW};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A ticket, as `sluice acquire --ticket-within` prints it
    ticket: Ticket,
    /// Hold for this time before the release, as in 5s; Ctrl-C releases sooner
    #[arg(long, value_name = "TIME", value_parser = hold_time, default_value = "0s")]
    hold: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A ticket that is no longer valid ends with exit code 1, as an error does: it is not retryable.
pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let asked: Vec<String> = options.ticket.dimensions().iter().map(ToString::to_string).collect();
    let (outcome, why) = match client.redeem(&options.ticket).await? {
        Redeemed::Granted(grant) => {
            return hold_and_release(&client, grant, &asked, options.hold, options.json).await;
        }
        Redeemed::RetryIn(retry) => return refuse(&client, &retry, &asked, options.json).await,
        Redeemed::Spent => ("spent", "it was redeemed before, or its row is gone"),
        _ => ("lapsed", "it came too late, or the limits were changed: acquire again"),
    };
    if options.json {
        output::json(&json!({ "outcome": outcome, "dimensions": asked }))?;
    } else {
        anstream::println!("{}{outcome}{} {why}", YELLOW.render(), YELLOW.render_reset());
    }
    Ok(ExitCode::FAILURE)
}
