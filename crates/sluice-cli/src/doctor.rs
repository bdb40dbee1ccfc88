//! `sluice doctor`: looks at a table, and says what is amiss and what to do about it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sluice_sdk::core::{Amount, Bucket, Timestamp};
use sluice_sdk::{Client, Clock, LeaseRow};

use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::output::{self, DIM, GREEN, RED, YELLOW};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Weight {
    /// As it should be.
    Fine,
    /// Worth knowing; nobody has to act.
    Note,
    /// Somebody should act.
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    weight: Weight,
    /// The table, or the row.
    of: String,
    what: String,
    /// What to do about it.
    todo: Option<String>,
}

/// A lease that ended so long ago was missed by two sweeps of the five-minute rule.
const OVERDUE: Duration = Duration::from_secs(11 * 60);

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let findings = examine(&client, Clock::system().now()).await?;
    if options.json {
        output::json(&findings)?;
    } else {
        print(&findings);
    }
    let is_well = findings.iter().all(|finding| finding.weight != Weight::Problem);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn examine(client: &Client, now: Timestamp) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let rows = client.buckets().await?;
    let mut readable = 0;
    for row in &rows {
        match &row.bucket {
            Ok(bucket) => {
                readable += 1;
                of_bucket(bucket, now, &mut findings);
            }
            Err(fault) => {
                let todo = "mend the attribute, or remove the row with `sluice buckets rm` and apply it again";
                findings.push(problem(&row.key, format!("its row cannot be read: {fault}"), todo));
            }
        }
    }
    of_leases(&client.leases().await?, now, &mut findings);
    let table = if readable == 0 {
        problem(client.table(), "it has no buckets", "declare some with `sluice buckets apply FILE`")
    } else {
        fine(client.table(), format!("answers; {readable} {}", if readable == 1 { "bucket" } else { "buckets" }))
    };
    findings.insert(0, table);
    Ok(findings)
}

fn of_bucket(bucket: &Bucket, now: Timestamp, findings: &mut Vec<Finding>) {
    let name = bucket.dimension();
    let limit = bucket.limit();
    if let Some(reported) = bucket.vendor_limit()
        && limit.lowered_to(reported.limit, reported.window).is_some()
    {
        let per = if limit.is_concurrent() { String::new() } else { format!(" in {} s", reported.window.as_secs()) };
        let (reported, when) = (reported.limit, output::relative(reported.at, now));
        let ours = match limit.is_concurrent() {
            true => format!("{} at once", limit.capacity()),
            false => {
                format!("{} a second, {} at once", output::short(&limit.refill_rate().to_string()), limit.capacity())
            }
        };
        findings.push(problem(
            name,
            format!("its vendor reported a limit of {reported}{per} {when}, and it gives {ours}"),
            "lower it in the file of buckets, or set adopt_lower_limit = true there, and apply the file",
        ));
    }
    if let Some(until) = bucket.blocked_until().filter(|until| *until > now) {
        findings.push(note(name, format!("a cool-down holds: it ends {}", output::relative(until, now))));
    }
    if let Some(drift) = bucket.noted_drift() {
        let what = if drift < Amount::ZERO { "too many" } else { "lost" };
        findings.push(note(name, format!("slots {what}: {}; the next sweep puts them right", drift.abs())));
    }
    if limit.is_concurrent() && bucket.tokens() > limit.capacity() {
        let what = format!("{} slots are free, of {}", bucket.tokens(), limit.capacity());
        findings.push(problem(name, what, "run `sluice reconcile` twice: the second takes away what was minted"));
    }
}

fn of_leases(rows: &[LeaseRow], now: Timestamp, findings: &mut Vec<Finding>) {
    let overdue = |row: &&LeaseRow| row.lease.as_ref().is_ok_and(|lease| now.since(lease.ends()) > OVERDUE);
    let count = rows.iter().filter(overdue).count();
    let todo = "see that the reconciler runs (its alarms, its rule), or run `sluice reconcile`";
    if count > 0 {
        let minutes = OVERDUE.as_secs() / 60;
        let leases = if count == 1 { "1 lease" } else { &format!("{count} leases") };
        findings.push(problem("leases", format!("{leases} ended over {minutes} minutes ago and no sweep came"), todo));
    }
    for (row, fault) in rows.iter().filter_map(|row| row.lease.as_ref().err().map(|fault| (row, fault))) {
        let what = format!("the lease cannot be read, and what it holds is not given back: {fault}");
        findings.push(problem(&row.key, what, "mend the attribute, or remove the row; the recount finds its slot"));
    }
}

fn fine(of: impl ToString, what: impl Into<String>) -> Finding {
    Finding { weight: Weight::Fine, of: of.to_string(), what: what.into(), todo: None }
}

fn note(of: impl ToString, what: impl Into<String>) -> Finding {
    Finding { weight: Weight::Note, ..fine(of, what) }
}

fn problem(of: impl ToString, what: impl Into<String>, todo: &str) -> Finding {
    Finding { weight: Weight::Problem, todo: Some(todo.to_owned()), ..fine(of, what) }
}

fn print(findings: &[Finding]) {
    for Finding { weight, of, what, todo } in findings {
        let (sign, style) = match weight {
            Weight::Fine => ("ok", GREEN),
            Weight::Note => ("--", YELLOW),
            Weight::Problem => ("!!", RED),
        };
        anstream::println!("{}{sign}{} {of}: {what}", style.render(), style.render_reset());
        if let Some(todo) = todo {
            anstream::println!("   {}{todo}{}", DIM.render(), DIM.render_reset());
        }
    }
    let problems = findings.iter().filter(|finding| finding.weight == Weight::Problem).count();
    match problems {
        0 => anstream::println!("nothing to do"),
        1 => anstream::println!("1 problem"),
        _ => anstream::println!("{problems} problems"),
    }
}
