//! `sluice buckets rm`: removes a bucket, if a person agrees or a script says so.

use std::io::{IsTerminal as _, stderr, stdin};

use clap::Args;
use sluice_sdk::Client;
use sluice_sdk::core::Dimension;
use sluice_sdk::core::schema::table_name;

use super::unknown;
use crate::connect::client;
use crate::failure::Failure;
use crate::loopback::is_endpoint;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Its name, as in openai#rpm
    dimension: String,
    /// Do not ask; without a terminal to ask on, only buckets of a sandbox on this machine are removed without
    /// this
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(options: &Options) -> Result<(), Failure> {
    let client = client().await?;
    let dimension = Dimension::new(&options.dimension)?;
    if let Some((whole, share)) = dimension.whole_and_share()
        && let Some(bucket) = client.ops().bucket(&whole).await?
        && bucket.slot_shares().iter().any(|named| named.name == share)
    {
        return Err(Failure::new(format!(
            "nothing was removed: {dimension} is the row of the share {share} of {whole}, and its callers would get errors; \
             leave the share out of the limits file, and apply that"
        )));
    }
    if !options.yes {
        // Asked only about a bucket that is there.
        client.ops().bucket(&dimension).await?.ok_or_else(|| unknown(&client, &dimension))?;
        confirm(&client, &dimension)?;
    }
    if !client.ops().remove_bucket(&dimension).await? {
        return Err(unknown(&client, &dimension));
    }
    println!("removed {dimension}");
    Ok(())
}

fn confirm(client: &Client, dimension: &Dimension) -> Result<(), Failure> {
    if stdin().is_terminal() && stderr().is_terminal() {
        let question = format!(
            "Remove {dimension} from table {}? Callers that name it get an error from then on. [y/N]",
            client.table()
        );
        return match crate::output::agrees(&question)? {
            true => Ok(()),
            false => Err(Failure::new("nothing was removed")),
        };
    }
    // The name alone does not tell: a table of this name may lie in AWS.
    let is_here = std::env::var("SLUICE_ENDPOINT_URL").is_ok_and(|url| is_endpoint(&url));
    if is_here && client.table() == table_name("sandbox") {
        return Ok(());
    }
    Err(Failure::new(format!(
        "nothing was removed: there is no terminal to ask on; `sluice buckets rm {dimension} --yes` removes it from table {}",
        client.table()
    )))
}
