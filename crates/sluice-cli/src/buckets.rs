//! `sluice buckets`: applies limits declared in a file; lists, shows, refills and removes buckets.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use sluice_ops::{Applied, LimitsError};
use sluice_sdk::Client;
use sluice_sdk::core::schema::PROTOCOL_VERSION;
use sluice_sdk::core::{Change, Dimension, OnLowerLimit, Split, Timestamp};

use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::output;

mod change_line;
mod file;
pub(crate) mod init;
pub(crate) mod refill;
mod remove;
mod show;
mod used_by;

use change_line::{ChangeLine, LimitLine, print_changes};
pub(crate) use file::BucketsFile;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Apply the buckets of a TOML file; levels are kept, and buckets not in the file are left alone
    Apply {
        /// The file: see `docs/buckets.md`
        file: PathBuf,
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// First create the table if there is none: at a local endpoint only; in AWS, Terraform creates it
        #[arg(long, conflicts_with = "dry_run")]
        create_table: bool,
        /// Then keep clients and sweeps out of these buckets that do not speak this protocol, or a later one:
        /// see "Versions" in `docs/reconciler.md`. What a bucket requires is never lowered
        #[arg(long, value_name = "N", conflicts_with = "dry_run",
              value_parser = clap::value_parser!(i64).range(1..=PROTOCOL_VERSION))]
        protocol: Option<i64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a file of limits to start from, from what a vendor publishes; needs no table
    ///
    /// As in `sluice buckets init groq --model openai/gpt-oss-120b`. Each figure has the page that it comes
    /// from.
    Init(init::Options),
    /// List every bucket
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one bucket
    Show {
        /// Its name, as in openai#rpm
        dimension: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set the level of a rate bucket, to its capacity unless --to says otherwise
    ///
    /// For a bucket that a vendor's reply or a penalty lowered by mistake. The refill lets calls through
    /// beyond the limit: as many tokens as it adds to the level. Calls that wait for a start keep it.
    Refill(refill::Options),
    /// Remove one bucket; callers that name it then get an error
    Rm(remove::Options),
}

pub(crate) async fn run(options: Options) -> Ended {
    match options.action {
        Action::Apply { file, dry_run, create_table, protocol, json } => {
            let declared = BucketsFile::read(&file)?;
            let client = client().await?;
            if create_table {
                self::create_table(&client).await?;
            }
            let (changes, failed) = match dry_run {
                true => (compare(&client, &declared).await?, Vec::new()),
                false => apply_all(&client, &declared).await?,
            };
            if let Some(protocol) = protocol {
                require(&client, &declared, protocol).await?;
            }
            if json {
                output::json(&changes)?
            } else {
                print_changes(&changes)
            }
            if !failed.is_empty() {
                return Err(Failure::new(failed.join("\n")));
            }
        }
        Action::Init(options) => init::run(&options)?,
        Action::List { json } => show::list(&client().await?, json).await?,
        Action::Show { dimension, json } => show::show(&client().await?, &dimension, json).await?,
        Action::Refill(options) => refill::run(options).await?,
        Action::Rm(options) => remove::run(&options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the protocol into each bucket of the file. The number of those that changed is for people.
async fn require(client: &Client, declared: &BucketsFile, protocol: i64) -> Result<(), Failure> {
    let (ops, mut raised) = (client.ops(), 0);
    for (dimension, _) in &declared.limits {
        let is_new = ops.require_protocol(dimension, protocol).await;
        raised += usize::from(is_new.map_err(|error| declared.at(dimension, error))?);
    }
    anstream::eprintln!("protocol {protocol}: now required by {raised} more buckets of the file");
    Ok(())
}

/// Creates the table, only at an endpoint that is named: a table that Terraform did not create has no
/// backups, no deletion protection and no alarms.
async fn create_table(client: &Client) -> Result<(), Failure> {
    let endpoint = std::env::var("SLUICE_ENDPOINT_URL").unwrap_or_default();
    if endpoint.is_empty() || endpoint.contains("amazonaws.com") {
        return Err(Failure::new(format!(
            "--create-table needs a local endpoint, and SLUICE_ENDPOINT_URL is {endpoint:?}: set it to a local one, as in \
             http://127.0.0.1:4566; in AWS, `task infra:apply` creates the table"
        )));
    }
    if sluice_table::create_table(client.dynamodb(), client.table()).await? {
        anstream::eprintln!("created table {}", client.table());
    }
    Ok(())
}

#[cfg(feature = "lab")]
pub(crate) async fn apply(client: &Client, declared: &BucketsFile) -> Result<(), Failure> {
    let (changes, failed) = apply_all(client, declared).await?;
    print_changes(&changes);
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(failed.join("\n"))) }
}

/// Slots that are free move in a few requests.
const SAYS_WHY_AFTER: Duration = Duration::from_secs(2);

/// What changed, and of which buckets a change of shares met a conflict in every try.
async fn apply_all(
    client: &Client,
    declared: &BucketsFile,
) -> Result<(Vec<ChangeLine>, Vec<String>), Failure> {
    // Compares every bucket first: one that cannot be applied is found before anything is.
    let planned = compare(client, declared).await?;
    let (mut changes, mut failed) = (Vec::new(), Vec::new());
    for ((dimension, split), planned) in declared.limits.iter().zip(planned) {
        let applied = match apply_one(client, dimension, split).await {
            Ok(applied) => Ok(applied),
            // It is declared, and goes on without this command.
            Err(error @ LimitsError::SlotsHeld { .. }) => Err(error.to_string()),
            // Nothing is wrong with the rest of the file.
            Err(error @ LimitsError::SharesContended(_)) => {
                failed.push(declared.at(dimension, error).to_string());
                continue;
            }
            Err(error) => return Err(declared.at(dimension, error)),
        };
        let then = declared.on_lower_limit(dimension);
        let adopts = client
            .ops()
            .on_lower_limit(dimension, then)
            .await
            .map_err(|error| declared.at(dimension, error))?;
        changes.push(match applied {
            Ok(applied) => ChangeLine::new(dimension, split, &applied, adopts.then_some(then)),
            Err(held) => planned.with_warning(&held),
        });
    }
    Ok((changes, failed))
}

/// Says why it takes long, if it does.
async fn apply_one(client: &Client, dimension: &Dimension, split: &Split) -> Result<Applied, LimitsError> {
    let ops = client.ops();
    let mut applies = std::pin::pin!(ops.apply_split(dimension, split));
    if let Ok(applied) = tokio::time::timeout(SAYS_WHY_AFTER, &mut applies).await {
        return applied;
    }
    if split.whole().is_concurrent() {
        anstream::eprintln!(
            "{dimension}: not done yet; if calls hold slots that are to move, it waits for them, 30 s at most"
        );
    }
    applies.await
}

/// What would change. Every bucket that cannot be applied is in the error.
async fn compare(client: &Client, declared: &BucketsFile) -> Result<Vec<ChangeLine>, Failure> {
    let (mut changes, mut faults) = (Vec::new(), Vec::new());
    for (dimension, split) in &declared.limits {
        if let Err(error) = client.ops().check_limit(dimension, split.whole()) {
            faults.push(declared.at(dimension, error).to_string());
            continue;
        }
        let then = declared.on_lower_limit(dimension);
        let bucket = client.ops().bucket(dimension).await?;
        let adopts = bucket.as_ref().map_or(then != OnLowerLimit::Report, |bucket| !bucket.is_set_to(then));
        let applied = match bucket {
            None => Applied::Created,
            Some(bucket)
                if client
                    .ops()
                    .has_split(&bucket, split)
                    .await
                    .map_err(|error| declared.at(dimension, error))? =>
            {
                Applied::Unchanged
            }
            Some(bucket) => {
                if let Err(error) = Change::split(&bucket, split, Timestamp::default()) {
                    faults.push(declared.at(dimension, error).to_string());
                    continue;
                }
                Applied::Changed { from: bucket.split() }
            }
        };
        changes.push(ChangeLine::new(dimension, split, &applied, adopts.then_some(then)));
    }
    if faults.is_empty() { Ok(changes) } else { Err(Failure::new(faults.join("\n"))) }
}

pub(crate) fn unknown(client: &Client, dimension: &Dimension) -> Failure {
    Failure::new(format!(
        "table {} has no bucket {dimension}; `sluice buckets list` shows the buckets that it has",
        client.table()
    ))
}
