//! The last sweeps, of a quiet table, and what they cost.

use std::sync::Arc;
use std::time::Duration;

use sluice_ops::{SweepOptions, SweepReport};

use crate::process::Role;
use crate::universe::Universe;

/// Its requests are metered.
pub(crate) const LAST: &str = "last sweeper";

/// Counted for each sweep whose cost was judged.
pub(crate) const JUDGED: &str = "cost: a sweep";

/// Reads of a sweep other than those for pages and buckets: segments that are empty, and rows of its own.
const READS: f64 = 24.0;

/// Other writes: the directory of load rows.
const WRITES: u64 = 4;

/// Writes for a bucket: its recount, a correction, its load row.
const WRITES_OF_A_BUCKET: u64 = 4;

/// Units for a lease that is given back: two rows of a transaction, and once more where another writer was in
/// the way.
const WRITES_OF_A_LEASE: u64 = 8;

/// Sweeps until nothing may be left to do.
pub(crate) async fn last(universe: &Arc<Universe>) {
    let lost =
        universe.ledger(|ledger| ledger.gaps.values().any(|gap| *gap != 0) || ledger.has_wrong_leases());
    // A loss that no lease tells of is noted by one sweep and put right by the next, once both know the
    // bucket.
    let sweeps = if lost { 4 } else { 2 };
    let sweeper = universe.process(LAST, Role::Sweeper, |client| client);
    for _ in 0..sweeps {
        universe.dynamo.clock().advance(Duration::from_secs(300));
        universe.ledger(|ledger| ledger.sweep_begins(&sweeper.name, universe.time()));
        let before = sweeper.dynamo.meter().total();
        match sweeper.client.ops().sweep(SweepOptions::default()).await {
            Ok(report) => {
                let after = sweeper.dynamo.meter().total();
                let units = (after.read_units - before.read_units, after.write_units - before.write_units);
                judge(universe, &report, units);
            }
            Err(error) => universe.violated(format!("a sweep of a quiet table failed: {error}")),
        }
    }
}

/// Rows are small: the table is a few pages, each read once, and a concurrency bucket and its load row are
/// read once more.
fn judge(universe: &Universe, report: &SweepReport, (reads, writes): (f64, u64)) {
    let (buckets, pages) = (report.loads.len().max(report.recounted), universe.scenario.conditions.pages());
    let most_reads = READS + f64::from(pages) + 4.0 * buckets as f64 + report.rows_scanned as f64 / 4.0;
    let leases = report.expired as u64;
    // Where slots were minted before, not all have room: the transaction fails, and is sent again in halves,
    // down to single leases.
    let halvings =
        if report.already_capped > 0 { u64::from((leases + 1).next_power_of_two().ilog2()) } else { 0 };
    let most_writes =
        WRITES + WRITES_OF_A_BUCKET * buckets as u64 + (WRITES_OF_A_LEASE + 4 * halvings) * leases;
    universe.count(JUDGED);
    if reads > most_reads || writes > most_writes {
        universe.violated(format!(
            "a sweep of a quiet table cost {reads} read and {writes} write units: {report:?}"
        ));
    }
}
