//! `sluice leases`: lists who holds what.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use sluice_ops::LeaseRow;
use sluice_sdk::core::{Dimension, Lease};

use crate::buckets::unknown;
use crate::connect::client;
use crate::failure::Ended;
use crate::output::{self, Align, Decimal, Unreadable};
use crate::view::has_ended;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the leases of this bucket
    #[arg(long)]
    dimension: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct LeaseLine {
    key: String,
    dimension: String,
    id: String,
    cost: Decimal,
    caller: Option<String>,
    /// The share whose caller borrowed the slots; `common` for the part that no share has.
    borrowed_by: Option<String>,
    created_at: Option<Decimal>,
    ends: Decimal,
    /// By every clock.
    ended: bool,
    inline: bool,
}

pub(crate) async fn run(options: Options) -> Ended {
    let only = options.dimension.as_deref().map(Dimension::new).transpose()?;
    let client = client().await?;
    let (mut leases, mut faults) = (Vec::new(), Vec::new());
    let rows = client.ops().leases().await?;
    // A bucket that is gone may have left leases.
    let is_named =
        |row: &LeaseRow| row.lease.as_ref().is_ok_and(|lease| only.as_ref() == Some(lease.dimension()));
    if let Some(name) = &only
        && !rows.iter().any(is_named)
        && client.ops().bucket(name).await?.is_none()
    {
        return Err(unknown(&client, name));
    }
    // Read after the replies, which contain the table's time.
    let now = client.now();
    for LeaseRow { key, lease, is_inline, .. } in rows {
        match lease {
            Ok(lease) if only.as_ref().is_none_or(|only| is_of(&lease, only)) => {
                leases.push((lease, is_inline))
            }
            Ok(_) => {}
            Err(fault) => faults.push(Unreadable { key, error: fault.to_string() }),
        }
    }
    if options.json {
        let line = |(lease, inline): &(Lease, bool)| LeaseLine {
            key: lease.key().to_owned(),
            dimension: lease.dimension().to_string(),
            id: lease.id().to_owned(),
            cost: Decimal::of(lease.cost()),
            caller: lease.caller().map(str::to_owned),
            borrowed_by: lease.borrowed_by().map(str::to_owned),
            created_at: lease.created_at().map(Decimal::of),
            ends: Decimal::of(lease.ends()),
            ended: has_ended(lease, now),
            inline: *inline,
        };
        let lines: Vec<LeaseLine> = leases.iter().map(line).collect();
        output::json(&output::with_unreadable(&lines, &faults)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if leases.is_empty() && faults.is_empty() {
        println!("no leases");
    } else {
        use Align::{Left, Right};
        let columns = [
            ("DIMENSION", Left),
            ("COST", Right),
            ("CALLER", Left),
            ("SINCE", Right),
            ("UNTIL", Right),
            ("ID", Left),
        ];
        let row = |(lease, is_inline): (Lease, bool)| {
            // An inline lease does not state who holds it, nor since when.
            let unknown = if is_inline { "-" } else { "?" };
            let since = lease.created_at().map_or_else(|| unknown.into(), |at| output::relative(at, now));
            // A version 7 id begins with its time, so the end of the id distinguishes leases.
            let id = lease.id();
            let id = id.get(id.len().saturating_sub(8)..).unwrap_or(id).to_owned();
            let caller = lease.caller().unwrap_or(if is_inline { "(inline)" } else { unknown });
            let borrowed =
                lease.borrowed_by().map_or_else(String::new, |share| format!(", borrowed by {share}"));
            let caller = format!("{caller}{borrowed}");
            let (dimension, cost) = (lease.dimension().to_string(), lease.cost().to_string());
            [dimension, cost, caller, since, output::relative(lease.ends(), now), id]
        };
        output::table(columns, leases.into_iter().map(row).collect());
    }
    output::print_unreadable(&faults);
    Ok(ExitCode::SUCCESS)
}

/// Whether the lease is of this bucket, or of the row of one of its shares.
fn is_of(lease: &Lease, bucket: &Dimension) -> bool {
    let whole = || lease.dimension().whole_and_share().map(|(whole, _)| whole);
    lease.dimension() == bucket || whole().as_ref() == Some(bucket)
}
