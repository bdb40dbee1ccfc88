//! Cost: what each kind of operation sends, within the bounds of [`TABLE`].
//!
//! Units are judged with requests: a read and a write of one row a unit each, a transaction of two rows four.
//!
//! One process that is alone on three buckets of its own goes through the operations, one after the other,
//! and its requests are counted. Where nothing goes wrong the bounds are exact. Each request that met a fault
//! may be sent three times more, and what was applied without its sender knowing may have to be looked up, or
//! given back later: `FOR_A_FAULT`. If time jumps while it waits, it may have to ask for the time. Processes
//! that die are no excuse: it does not.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_sdk::{Client, ClientBuilder, Grant, Leases, Outcome};
use sluice_testkit::{Operation, Usage};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::conditions::stream;
use crate::process::{Process, Role};
use crate::row::Micros;
use crate::sweeps;
use crate::tally::Sent;
use crate::universe::Universe;

/// What the names of its processes begin with. They are metered.
pub(crate) const NAMES: &str = "frugal-";

/// The process that sweeps, for others too.
pub(crate) const HEALS: &str = "frugal-heals";

const TOKENS: &str = "frugal#rpm";
const ROWS: &str = "frugal#rows#concurrent";
const INLINE: &str = "frugal#inline#concurrent";

/// Longer than what is held is held for.
const LEASE: Duration = Duration::from_secs(20);

/// More requests that one fault may cost: three tries, and a row that is read again with each.
const FOR_A_FAULT: u64 = 6;

/// What a fault left in doubt may be given back so much later, by a task of its own.
const GIVEN_BACK_LATER: Micros = 10_000_000;

/// A process that is refused scans the table, page by page, every 8 s.
const HEALS_A_MINUTE: u64 = 9;

/// Writes for a lease that a process gave back for others: its own, and tries that others were faster with.
const FOR_A_LEASE: u64 = 6;

/// Reads that were counted as sent before an operation, and reach the table during it.
const LATE_READS: u64 = 1;

/// Leases of which a scan may find that others were faster, in a turn.
const LOST_IN_A_TURN: u64 = 30;

/// Units of a transaction: two for each of its two rows.
const TRANSACTION_UNITS: u64 = 4;

/// What an operation sends at most: reads of rows, writes of one row, transactions.
#[derive(Clone, Copy, Debug)]
struct Bound {
    name: &'static str,
    reads: u64,
    writes: u64,
    transactions: u64,
    /// Writes and transactions together, without those that were answered with an error.
    applied: u64,
}

const fn bound(name: &'static str, reads: u64, writes: u64, transactions: u64) -> Bound {
    Bound { name, reads, writes, transactions, applied: writes + transactions }
}

/// An operation that applies one write or one transaction.
const fn one_of_both(name: &'static str, reads: u64) -> Bound {
    Bound { name, reads, writes: 1, transactions: 1, applied: 1 }
}

const UNKNOWN: Bound = bound("cost: acquire of a bucket that was never met", 1, 1, 0);
const KNOWN: Bound = bound("cost: acquire", 0, 1, 0);
const REMEMBERED: Bound = bound("cost: a refusal that is remembered", 0, 0, 0);
const KEPT: Bound = bound("cost: release of tokens", 0, 0, 0);
const SETTLED: Bound = bound("cost: settle of a call that used less", 0, 1, 0);
/// A transaction does not show the row: it is read once a minute, so that a changed limit is heard of.
/// Where another writer is met, the slot is taken with an inline lease.
const ROW_TAKEN: Bound = one_of_both("cost: slot with a lease row", 1);
const ROW_GIVEN_BACK: Bound = one_of_both("cost: release of a slot with a lease row", 0);
const INLINE_TAKEN: Bound = bound("cost: slot with an inline lease", 0, 1, 0);
const INLINE_GIVEN_BACK: Bound = bound("cost: release of a slot with an inline lease", 0, 1, 0);
const RENEWED: Bound = bound("cost: renewal", 0, 1, 0);
const WAITED: &str = "cost: a process in line, by the second";
const HEALED: &str = "cost: a process that heals, by the minute";

/// Each operation, and what it sends at most.
const TABLE: [Bound; 10] = [
    UNKNOWN,
    KNOWN,
    REMEMBERED,
    KEPT,
    SETTLED,
    ROW_TAKEN,
    ROW_GIVEN_BACK,
    INLINE_TAKEN,
    INLINE_GIVEN_BACK,
    RENEWED,
];

/// What must have been judged in a run of many seeds.
pub(crate) fn judged() -> impl Iterator<Item = &'static str> {
    TABLE.into_iter().map(|bound| bound.name).chain([WAITED, HEALED, sweeps::JUDGED])
}

/// Founds its buckets, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    let mut rng = stream(universe.scenario.seed, "who counts requests");
    if universe.scenario.lulls || rng.u32(0..4) > 0 {
        return;
    }
    let slots = |count| Limit::concurrent(Amount::from_tokens(count), Cost::ONE).unwrap();
    let refill = Rate::per(Amount::from_tokens(4), Duration::from_secs(40)).unwrap();
    let tokens = Limit::rate(LimitType::Requests, Amount::from_tokens(4), refill, Cost::ONE).unwrap();
    for (name, limit) in [(TOKENS, tokens), (ROWS, slots(1)), (INLINE, slots(2))] {
        let bucket = Dimension::new(name).unwrap();
        universe.undisturbed(operator.client.ops().apply_limit(&bucket, &limit)).await.unwrap();
    }
    let process = |name: &str, leases: Leases, heals: bool| {
        // The note of use, a write a minute in the background, is part of no call.
        let settings =
            |client: ClientBuilder| client.leases(leases).self_heal(heals).lease_ttl(LEASE).note_use(false);
        universe.process(name, Role::Customer, settings)
    };
    let rows = process("frugal-rows", Leases::Concurrent, false);
    let inline = process("frugal-inline", Leases::Inline, false);
    let waits = process("frugal-waits", Leases::Concurrent, false);
    let heals = process(HEALS, Leases::Concurrent, true);
    tasks.spawn(Frugal { universe: Arc::clone(universe), rows, inline, waits, heals, rng }.live());
}

struct Frugal {
    universe: Arc<Universe>,
    rows: Process,
    inline: Process,
    waits: Process,
    heals: Process,
    rng: Rng,
}

impl Frugal {
    async fn live(mut self) {
        // The first read of a bucket is not counted: both processes meet theirs before. Throttling may fail
        // that for a while.
        for process in [&self.rows, &self.inline] {
            let bucket = if process.name == self.rows.name { ROWS } else { INLINE };
            while !self.universe.is_over() {
                let Some(grant) = granted(&process.client, bucket).await else {
                    sleep(Duration::from_millis(200)).await;
                    continue;
                };
                give_back(Some(grant)).await;
                break;
            }
        }
        while !self.universe.is_over() {
            self.tokens().await;
            sleep(Duration::from_millis(self.rng.u64(0..500))).await;
            let (rows, inline) = (self.rows.clone(), self.inline.clone());
            self.slot(&rows, ROWS, (ROW_TAKEN, ROW_GIVEN_BACK)).await;
            self.slot(&inline, INLINE, (INLINE_TAKEN, INLINE_GIVEN_BACK)).await;
            self.line().await;
            sleep(Duration::from_millis(self.rng.u64(0..2_000))).await;
        }
    }

    /// Counts what one operation of a process sends.
    async fn counted<T>(&self, process: &Process, bound: Bound, operation: impl Future<Output = T>) -> T {
        let (before, units) = (process.tally.so_far(), process.dynamo.meter().total());
        let failed = process.dynamo.meter().failed_writes();
        let (began, began_at) = (Instant::now(), self.universe.time());
        let output = operation.await;
        // A reply that took longer than 2.98 s by all clocks does not tell the time: that costs a read, and
        // another if it happens again.
        let took = self.universe.time() - began_at;
        let has_jumped = took > Micros::try_from(began.elapsed().as_micros()).unwrap();
        let failed = process.dynamo.meter().failed_writes() - failed;
        let bound = Bound {
            reads: bound.reads + 2 * u64::from(has_jumped),
            applied: bound.applied + failed,
            ..bound
        };
        self.judge(process, &before, bound);
        self.judge_units(process, &before, (units, bound));
        output
    }

    fn judge(&self, process: &Process, before: &Sent, bound: Bound) {
        let (sent, faults) = process.tally.so_far().since(before, self.universe.time() - GIVEN_BACK_LATER);
        let of = |operations: &[Operation]| operations.iter().filter_map(|one| sent.get(one)).sum::<u64>();
        let reads = of(&[Operation::GetItem, Operation::BatchGetItem, Operation::Scan]);
        let writes = of(&[Operation::UpdateItem, Operation::PutItem, Operation::DeleteItem]);
        let transactions = of(&[Operation::TransactWriteItems]);
        let more = FOR_A_FAULT * u64::try_from(faults).unwrap();
        let is_exact = if faults == 0 { "cost: judged exactly" } else { "cost: judged with its faults" };
        self.universe.count(is_exact);
        self.universe.count(bound.name);
        let is_more = |sent: u64, most: u64| sent > most + more;
        if is_more(reads, bound.reads)
            || is_more(writes, bound.writes)
            || is_more(transactions, bound.transactions)
            || is_more(writes + transactions, bound.applied)
        {
            self.universe
                .violated(format!("{}: {bound:?}, and with {faults} faults it sent {sent:?}", process.name));
        }
    }

    /// Rows are small: a read of one and a write of one cost a unit each. What was sent for the operation
    /// before may arrive during this one.
    fn judge_units(&self, process: &Process, before: &Sent, (was, bound): (Usage, Bound)) {
        let (sent, faults) = process.tally.so_far().since(before, self.universe.time() - GIVEN_BACK_LATER);
        let is = process.dynamo.meter().total();
        let more = FOR_A_FAULT * u64::try_from(faults).unwrap();
        let most = bound.writes + more + TRANSACTION_UNITS * (bound.transactions + more);
        let (writes, reads) = (is.write_units - was.write_units, is.read_units - was.read_units);
        self.universe.count("cost: units judged");
        if writes > most || reads > (bound.reads + more + LATE_READS) as f64 {
            let name = &process.name;
            self.universe.violated(format!(
                "{name}: {bound:?}, and with {faults} faults {sent:?} cost {writes} write units and {reads} read units"
            ));
        }
    }

    /// A bucket is met, taken from, settled, and refuses.
    async fn tokens(&self) {
        let fresh = self.universe.process("frugal-fresh", Role::Customer, |client| client.note_use(false));
        let first = self.counted(&fresh, UNKNOWN, granted(&fresh.client, TOKENS)).await;
        // Where a fault kept the first from it, the bucket is not known yet.
        let Some(first) = first else { return };
        let second = self.counted(&fresh, KNOWN, granted(&fresh.client, TOKENS)).await;
        for mut grant in [first].into_iter().chain(second) {
            self.universe.ledger(|ledger| ledger.account(&fresh.name, TOKENS).settles(500_000));
            let _ = self.counted(&fresh, SETTLED, grant.settle(TOKENS, Amount::from_micros(500_000))).await;
            let _ = self.counted(&fresh, KEPT, grant.release()).await;
        }
        // Until it is empty.
        for _ in 0..8 {
            match fresh.client.acquire(TOKENS).await {
                Ok(Outcome::Granted(_)) => {}
                Ok(_) => {
                    self.counted(&fresh, REMEMBERED, granted(&fresh.client, TOKENS)).await;
                    break;
                }
                Err(_) => break,
            }
        }
    }

    async fn slot(&self, process: &Process, bucket: &str, (taken, given_back): (Bound, Bound)) {
        let Some(mut grant) = self.counted(process, taken, granted(&process.client, bucket)).await else {
            return;
        };
        let _ = self.counted(process, RENEWED, grant.renew()).await;
        let _ = self.counted(process, given_back, grant.release()).await;
    }

    /// One process stands in line for what another holds, and a third is refused it and sweeps.
    async fn line(&mut self) {
        let Some(grant) = granted(&self.rows.client, ROWS).await else { return };
        let (waits, heals) = (self.waits.clone(), self.heals.clone());
        let gave_back = self.universe.ledger(|ledger| ledger.gave_back(HEALS));
        let (waits_before, heals_before, began) =
            (waits.tally.so_far(), heals.tally.so_far(), Instant::now());
        let (waits_units, heals_units) = (waits.dynamo.meter().total(), heals.dynamo.meter().total());
        let lasts = Duration::from_millis(self.rng.u64(1_000..=12_000));
        let slot = waits.client.slot(ROWS).timeout(lasts).run(async |_| Ok::<_, sluice_sdk::LimitError>(()));
        let asks = async {
            while began.elapsed() < lasts {
                give_back(granted(&heals.client, ROWS).await).await;
                sleep(Duration::from_millis(500)).await;
            }
        };
        drop(tokio::join!(slot, asks));
        let seconds = began.elapsed().as_secs() + 1;
        let waited = bound(WAITED, 10 + looks(seconds), 2 + seconds, seconds + 2);
        self.judge(&waits, &waits_before, waited);
        self.judge_units(&waits, &waits_before, (waits_units, waited));
        let heals_now = 1 + (seconds * HEALS_A_MINUTE).div_ceil(60);
        let scans = 4 * u64::from(self.universe.scenario.conditions.pages() + 1);
        let asked = seconds * 2 + 2;
        let reads = asked + heals_now * (scans + 4);
        // What it gives back is for all of the table, and as much as others left.
        let gave_back = self.universe.ledger(|ledger| ledger.gave_back(HEALS)) - gave_back;
        let given = FOR_A_LEASE * gave_back + LOST_IN_A_TURN * heals_now;
        let writes = 4 + seconds + heals_now * (scans + 2) + given;
        let healed = bound(HEALED, reads, writes, 2 * asked + given);
        self.judge(&heals, &heals_before, healed);
        self.judge_units(&heals, &heals_before, (heals_units, healed));
        let _ = grant.release().await;
    }
}

/// Reads of a process in line whose turn is next, while nobody is served: a hundredth of the time that it has
/// waited lies between two, from 5 to 50 ms, and pauses are random by a fifth.
fn looks(seconds: u64) -> u64 {
    let fastest = 100;
    let slower: u64 = (1..=seconds.min(5)).map(|second| 200 / (2 * second - 1)).sum();
    (fastest + slower + 20 * seconds.saturating_sub(5)) * 5 / 4
}

/// A grant that is dropped is given back by a task of its own, beside what is counted next.
async fn give_back(grant: Option<Grant>) {
    if let Some(grant) = grant {
        let _ = grant.release().await;
    }
}

async fn granted(client: &Client, bucket: &str) -> Option<Grant> {
    match client.acquire(bucket).await {
        Ok(Outcome::Granted(grant)) => Some(grant),
        _ => None,
    }
}
