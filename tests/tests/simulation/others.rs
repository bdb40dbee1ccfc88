//! Everyone who is no caller: sweepers, an operator, clients in other languages, someone who spoils rows, and
//! fate.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use fastrand::Rng;
use serde_json::Value;
use sluice_core::schema::KEY;
use sluice_core::{Amount, Cost, Limit, Rate};
use sluice_ops::SweepOptions;
use tokio::time::{sleep, timeout};

use crate::asking;
use crate::conditions::stream;
use crate::disturbances;
use crate::liveness::{Public, Stopwatch, SweepTime};
use crate::process::{Process, Role};
use crate::row::BucketRow;
use crate::scenario::BucketPlan;
use crate::universe::{TABLE, Universe};
use crate::vandal;
use crate::vendors;

/// Sweeps, again and again, some with little time.
pub(crate) async fn sweeper(universe: Arc<Universe>, process: Process, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(500..=8_000))).await;
        let mut options = SweepOptions::default();
        (options.segments, options.concurrency) = (rng.u16(1..=4), rng.u16(1..=4));
        options.budget = rng.bool().then(|| Duration::from_millis(rng.u64(50..=2_000)));
        universe.act("sweep", &process.name);
        universe.ledger(|ledger| ledger.sweep_begins(&process.name, universe.time()));
        // A table that fails ends it, and so does the death of its process; the next one goes on.
        if rng.u32(0..4) == 0 {
            universe.act("sweeper dies", &process.name);
            let _ =
                timeout(Duration::from_millis(rng.u64(0..300)), process.client.ops().sweep(options)).await;
        } else {
            let bound =
                Public::Sweep(options.budget.map_or_else(|| whole_sweep(&universe), SweepTime::Budget));
            let _ = Stopwatch::of(&universe, &process, bound).on(process.client.ops().sweep(options)).await;
        }
        if universe.scenario.clock_error > 0 {
            process.set_clock_error(rng.i64(-universe.scenario.clock_error..=universe.scenario.clock_error));
        }
    }
}

/// What a sweep without a budget may have to do.
fn whole_sweep(universe: &Universe) -> SweepTime {
    let rows = universe.ledger(|ledger| ledger.rows());
    // Each may be written for its leases, its recount and its load.
    SweepTime::Whole { pages: universe.scenario.conditions.pages(), rows: 3 * u32::try_from(rows).unwrap() }
}

/// Changes limits, and penalizes.
pub(crate) async fn operator(universe: Arc<Universe>, process: Process, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(200..=6_000))).await;
        let bucket = rng.choice(&universe.scenario.buckets).cloned().unwrap();
        if bucket.is_concurrent() || rng.bool() {
            let limit = other_limit(&bucket, &mut rng);
            universe.act("limit changed", &format!("{} {limit:?}", bucket.name()));
            let _ = process.client.ops().apply_limit(&bucket.dimension, &limit).await;
        } else {
            universe.act("penalty", bucket.name());
            let _ = process.client.penalize(bucket.name(), [0.8, 0.5, 0.3, 0.0][rng.usize(0..4)]).await;
        }
    }
}

fn other_limit(bucket: &BucketPlan, rng: &mut Rng) -> Limit {
    let was = bucket.limit.capacity();
    let least = bucket.most;
    let most = i32::try_from(was.micros() / 1_000_000).unwrap() * 2;
    let capacity = Amount::from_tokens(rng.i32(least..=most.max(least)));
    if bucket.is_concurrent() {
        return Limit::concurrent(capacity, Cost::ONE).unwrap();
    }
    let rate = Rate::per(capacity, Duration::from_millis(rng.u64(1_000..=30_000))).unwrap();
    Limit::rate(bucket.limit.limit_type(), capacity, rate, Cost::ONE).unwrap()
}

/// A client in another language: reads a row, and writes it back on condition of its version. It counts in
/// floats.
pub(crate) async fn stranger(universe: Arc<Universe>, process: Process, mut rng: Rng) {
    let mut held: Option<(String, String)> = None;
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(50..=2_000))).await;
        let bucket = rng.choice(&universe.scenario.buckets).cloned().unwrap();
        universe.act("another client", bucket.name());
        match held.take() {
            Some((dimension, lease)) => {
                if !release_slot(&process, &dimension, &lease).await {
                    held = Some((dimension, lease));
                }
            }
            None if bucket.is_concurrent() => held = take_slot(&universe, &process, &bucket, &mut rng).await,
            None => take_tokens(&universe, &process, bucket.name()).await,
        }
    }
}

async fn read(process: &Process, key: &str) -> Option<(BucketRow, Value)> {
    let row = process.dynamo.row(TABLE, key).ok()??;
    Some((BucketRow::read(&row)?, row))
}

/// Takes a token of what the row's own attributes say.
pub(crate) async fn take_tokens(universe: &Universe, process: &Process, bucket: &str) {
    let Some((row, raw)) = read(process, bucket).await else { return };
    let now = universe.time();
    // As floats have it: some digits too many, never more than there is.
    let level = row.line(now).min(row.capacity) as f64 / 1e6 - 1.0;
    if level < 0.0 {
        return;
    }
    let request = process.dynamo.dynamodb().update_item().table_name(TABLE).key(KEY, text(bucket));
    let request = request
        .update_expression("SET tokens = :tokens, last_refill_at = :now, version = :version")
        .condition_expression("version = :read_version")
        .expression_attribute_values(":tokens", number(format!("{:.9}", (level - 1e-9).max(0.0))))
        .expression_attribute_values(":now", number(seconds(now)))
        .expression_attribute_values(
            ":read_version",
            number(raw["version"]["N"].as_str().unwrap_or_default().to_owned()),
        )
        .expression_attribute_values(":version", number((row.version + 1).to_string()));
    if request.send().await.is_ok() {
        let start = i64::try_from(now).unwrap();
        universe.record(|record| record.stranger_granted(bucket, start));
    }
}

async fn take_slot(
    universe: &Universe,
    process: &Process,
    bucket: &BucketPlan,
    rng: &mut Rng,
) -> Option<(String, String)> {
    let (row, _) = read(process, bucket.name()).await?;
    if row.tokens < 1_000_000 {
        return None;
    }
    let now = universe.time();
    let key = format!("lease#{}#{:016x}", bucket.name(), rng.u64(..));
    let put = Put::builder()
        .table_name(TABLE)
        .item(KEY, text(&key))
        .item("dimension", text(bucket.name()))
        .item("cost", number("1".into()))
        .item("ttl", number((now / 1_000_000 + 30).to_string()))
        .item("created_at", number(seconds(now)))
        .item("caller", text("stranger"))
        .condition_expression("attribute_not_exists(vendor_dimension)")
        .build()
        .unwrap();
    let update = free_slots(bucket.name(), &row, row.tokens - 1_000_000);
    let transaction = process.dynamo.dynamodb().transact_write_items();
    let transaction = transaction.transact_items(TransactWriteItem::builder().update(update).build());
    let sent = transaction.transact_items(TransactWriteItem::builder().put(put).build()).send().await;
    sent.is_ok().then(|| (bucket.name().to_owned(), key))
}

/// True where the slot is no longer this client's.
async fn release_slot(process: &Process, dimension: &str, lease: &str) -> bool {
    let Some((row, _)) = read(process, dimension).await else { return false };
    let delete = Delete::builder()
        .table_name(TABLE)
        .key(KEY, text(lease))
        .condition_expression("attribute_exists(vendor_dimension)")
        .build()
        .unwrap();
    let transaction = process.dynamo.dynamodb().transact_write_items();
    let transaction = transaction.transact_items(TransactWriteItem::builder().delete(delete).build());
    let update = free_slots(dimension, &row, row.tokens + 1_000_000);
    let _ = transaction.transact_items(TransactWriteItem::builder().update(update).build()).send().await;
    process.dynamo.row(TABLE, lease).is_ok_and(|row| row.is_none())
}

fn free_slots(dimension: &str, row: &BucketRow, tokens: i128) -> Update {
    Update::builder()
        .table_name(TABLE)
        .key(KEY, text(dimension))
        .update_expression("SET tokens = :tokens, version = :version")
        .condition_expression("version = :read_version")
        .expression_attribute_values(":tokens", number(seconds(tokens)))
        .expression_attribute_values(":read_version", number(row.version.to_string()))
        .expression_attribute_values(":version", number((row.version + 1).to_string()))
        .build()
        .unwrap()
}

/// Processes die, clocks and time jump, DynamoDB's TTL runs when it likes.
pub(crate) async fn fate(
    universe: Arc<Universe>,
    mut processes: Vec<Process>,
    mut replace: impl FnMut() -> Process,
    mut rng: Rng,
) {
    let seed = universe.scenario.seed;
    let mut freezes = stream(seed, "who is frozen");
    let mut snapshots = stream(seed, "who is resumed");
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(100..=3_000))).await;
        if universe.scenario.conditions.freezes && freezes.u32(0..3) == 0 {
            disturbances::freezes(&universe, freezes.choice(&processes).unwrap(), &mut freezes);
        }
        if universe.scenario.conditions.snapshots && snapshots.u32(0..4) == 0 {
            disturbances::snapshots(&universe, snapshots.choice(&processes).unwrap(), &mut snapshots);
        }
        match rng.u32(0..4) {
            0 if universe.scenario.upheaval => {
                let at = rng.usize(0..processes.len());
                universe.act("process dies", &processes[at].name);
                processes[at].kill();
                let now = universe.time();
                if universe.ledger(|ledger| ledger.stopped(&processes[at].name, now)) {
                    universe.count("a process dies that had marked a bucket");
                }
                processes[at] = replace();
            }
            1 if universe.scenario.clock_error > 0 => {
                let process = rng.choice(&processes).unwrap();
                let most = universe.scenario.clock_error;
                process.set_clock_error(rng.i64(-most..=most));
                universe
                    .act("clock jumps", &format!("{} is off by {} us", process.name, process.clock_error()));
            }
            2 if universe.scenario.upheaval && !universe.scenario.unswept => {
                let by = Duration::from_millis(rng.u64(10..=5_000));
                universe.act("time jumps", &format!("{by:?}, as for a process that was frozen"));
                universe.dynamo.clock().advance(by);
                let micros = by.as_micros().try_into().unwrap();
                universe.jumped(micros);
                universe.ledger(|ledger| ledger.stood_still(universe.time(), micros));
            }
            _ => ttl_sweep(&universe),
        }
    }
}

/// DynamoDB's TTL deletes what is over.
pub(crate) fn ttl_sweep(universe: &Arc<Universe>) {
    let deleted = universe.dynamo.sweep_ttl().unwrap();
    universe.act("TTL runs", &format!("{deleted} rows"));
    let lives = |key: &str| universe.dynamo.row(TABLE, key).unwrap().is_some();
    match universe.ledger(|ledger| ledger.ttl_deleted(universe.time(), lives)) {
        Ok(0) => {}
        Ok(leases) => universe.act("TTL deletes a lease", &format!("{leases} of them")),
        Err(violation) => universe.violated(violation),
    }
}

/// Everyone beside the callers, as the scenario says.
pub(crate) fn everyone(universe: &Arc<Universe>, rng: &mut Rng, tasks: &mut tokio::task::JoinSet<()>) {
    let scenario = &universe.scenario;
    tasks.spawn(vendors::whims(Arc::clone(universe), rng.fork()));
    for at in 0..scenario.sweepers {
        let process = universe.process(&format!("sweeper-{at}"), Role::Sweeper, |client| client);
        if scenario.clock_error > 0 {
            process.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
        }
        tasks.spawn(sweeper(Arc::clone(universe), process, rng.fork()));
    }
    for bucket in scenario.buckets.iter().filter(|bucket| scenario.unswept && bucket.is_concurrent()) {
        asking::begin(universe, bucket, rng, tasks);
    }
    if scenario.operator {
        let process = universe.process("operator", Role::Operator, |client| client);
        process.set_clock_error(rng.i64(-scenario.clock_error..=scenario.clock_error));
        tasks.spawn(operator(Arc::clone(universe), process, rng.fork()));
    }
    if scenario.strangers {
        let process = universe.process("stranger", Role::Stranger, |client| client);
        tasks.spawn(stranger(Arc::clone(universe), process, rng.fork()));
    }
    if scenario.vandal {
        let process = universe.process("vandal", Role::Vandal, |client| client);
        tasks.spawn(vandal::vandal(Arc::clone(universe), process, rng.fork()));
    }
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(crate) const fn number(value: String) -> AttributeValue {
    AttributeValue::N(value)
}

/// Millionths as a decimal.
pub(crate) fn seconds(micros: i128) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}.{:06}", micros.abs() / 1_000_000, micros.abs() % 1_000_000)
}
