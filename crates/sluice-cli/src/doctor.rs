//! `sluice doctor`: checks a table, and says what is wrong and what to do about it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_ops::Survey;
use sluice_sdk::core::schema::table_name;
use sluice_sdk::core::{Bucket, Dimension, Load};
use sluice_sdk::{Client, StoreError};
use sluice_table::Probe;

use crate::connect::client;
use crate::duration::duration;
use crate::failure::Ended;
use crate::output;
use crate::view::MOST_PAGES;

mod answer;
mod buckets;
mod clock;
mod finding;
mod latency;
mod leases;
mod load;
mod mode;
mod rights;
mod shares;
mod table;
mod watched;

#[cfg(test)]
mod tests;

use finding::{Check, Finding};

/// Changes nothing: it reads, and tests rights with writes whose conditions no row can meet. Exit code 0 if
/// nobody has to act, otherwise 1.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to watch writes, to find buckets that are written faster than a row allows
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "2s")]
    watch_for: Duration,
    /// Try the rights on rows of this vendor, as in openai: for a role that may use no other
    #[arg(long, value_name = "VENDOR", value_parser = vendor)]
    vendor: Option<String>,
}

/// Parses a vendor: the part of a bucket's name before the first `#`.
fn vendor(text: &str) -> Result<String, String> {
    Dimension::new(&format!("{text}#rpm")).map_err(|error| error.reason.to_owned())?;
    Ok(text.to_owned())
}

/// Whether the table is for real use or for trials.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// A table that people create and throw away, or an engine for development: nobody misses its backups.
    is_sandbox: bool,
}

impl Place {
    fn of(table: &str, endpoint: Option<&str>) -> Self {
        Self { is_sandbox: table == table_name("sandbox") || endpoint.is_some() }
    }
}

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let endpoint = std::env::var("SLUICE_ENDPOINT_URL").ok();
    let place = Place::of(client.table(), endpoint.as_deref());
    let findings =
        finding::sorted(examine(&client, place, options.vendor.as_deref(), options.watch_for).await);
    if options.json {
        output::json(&findings)?;
    } else {
        finding::print(client.table(), &findings);
    }
    let is_well = !findings.iter().any(Finding::is_problem);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn examine(client: &Client, place: Place, vendor: Option<&str>, watch_for: Duration) -> Vec<Finding> {
    let (buckets, of_rows) = match client.ops().survey_within(MOST_PAGES).await {
        Ok(survey) => {
            let findings = of_survey(&survey, client.table(), place);
            (survey.buckets.into_iter().filter_map(|row| row.bucket.ok()).collect(), findings)
        }
        Err(error) => match unread(client.table(), &error) {
            Unread::Rows(finding) => (Vec::new(), vec![finding]),
            Unread::All(finding) => return vec![finding],
        },
    };
    let readable: Vec<&Bucket> = buckets.iter().collect();
    let probe = Probe::new(client.dynamodb(), client.table());
    // One after the other, while writes are watched: a read that shares the connection with others would seem
    // slow.
    let one_by_one = async {
        (
            table::examine(probe, place).await,
            rights::examine(probe, vendor).await,
            latency::examine(probe).await,
        )
    };
    let of_watched = watched::examine(probe, &readable, watch_for);
    let ((of_table, of_rights, of_latency), of_watched) = tokio::join!(one_by_one, of_watched);
    // After all those replies.
    let of_clock = clock::examine(client.clock_offset(), client.table());
    let of_way = of_latency.into_iter().chain([of_clock]).chain(mode::examine(client.mode(), client.table()));
    of_table.into_iter().chain(of_rows).chain(of_rights).chain(of_way).chain(of_watched).collect()
}

/// Findings about the rows, at the table's time of the survey.
fn of_survey(survey: &Survey, table: &str, place: Place) -> Vec<Finding> {
    let now = survey.at;
    let mut findings: Vec<Finding> = in_part(survey, table).into_iter().collect();
    findings.extend(buckets::examine(survey, table, now));
    findings.extend(leases::examine(&survey.leases, table, place, now));
    findings.extend(load::of_sweeps(survey, table, place, now));
    for row in &survey.loads {
        match &row.load {
            Ok(load) => findings.extend(load::of_load(load)),
            Err(fault) => {
                let (key, what) = (Load::key(&row.dimension), format!("the load cannot be read: {fault}"));
                let todo = "nothing: the next sweep replaces it; if the finding comes back, find the client that writes it";
                findings.push(Finding::note(Check::Rows, key, what, todo));
            }
        }
    }
    for key in &survey.unknown {
        let todo = "nothing, if a later version of Sluice wrote the row; otherwise remove it, or move it to a table of its own";
        findings.push(Finding::note(Check::Rows, key, "this version of Sluice knows no such key", todo));
    }
    findings
}

/// A finding about the part that was not read, if the table is too large.
fn in_part(survey: &Survey, table: &str) -> Option<Finding> {
    let Survey { rows, pages, is_whole, .. } = survey;
    let what = format!(
        "the table is too large to be read whole: {rows} rows were read, in {pages} pages of a megabyte at most; the other \
         buckets, leases and loads are not checked"
    );
    let todo = "find what fills the table: leases of every grant (SLUICE_LEASES=all), tickets that are never deleted (see TTL), \
                rows that are not Sluice's; `sluice buckets list` and `sluice leases` read the whole table";
    (!is_whole).then(|| Finding::note(Check::Rows, table, what, todo))
}

/// Why no row was read.
enum Unread {
    /// Only the rows cannot be read; other checks may still succeed.
    Rows(Finding),
    /// No other check can succeed either.
    All(Finding),
}

fn unread(table: &str, error: &StoreError) -> Unread {
    match error {
        StoreError::AccessDenied { .. } => {
            let todo = "run `sluice doctor` with a role that has this right";
            let what = "cannot read the rows: needs dynamodb:Scan";
            Unread::Rows(Finding::note(Check::Rows, table, what, todo))
        }
        StoreError::Contended { .. } | StoreError::Rejected { .. } => {
            let todo = "run `sluice doctor` again; if the finding stays, no sweep can read the table either";
            Unread::Rows(Finding::problem(
                Check::Rows,
                table,
                format!("the rows cannot be read: {error}"),
                todo,
            ))
        }
        // The error itself says what to do.
        _ => Unread::All(Finding::problem(
            Check::Table,
            table,
            error.to_string(),
            "then run `sluice doctor` again",
        )),
    }
}
