//! A caller is killed: what it held is free again after its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_core::Dimension;
use sluice_sdk::{Client, Clock};
use tokio::task::{JoinSet, spawn_blocking};

use crate::program::{Sandbox, assert_no_faults, dice, kill, kills, limits, sluice, sweep, timed};
use crate::table::{self, Look};

/// Callers at a time, and how often each is killed.
const CALLERS: u64 = 4;

const ROOMY: &str = "elevenlabs#concurrent";
/// Full for most of the time, with what the dead hold: callers are killed while they wait, too.
const TIGHT: &str = "whisper#large#concurrent";
const RATE: &str = "openai#rpm";

/// What a caller asks for: a slot, a slot and tokens, two slots in one transaction.
const ASKS: [&[&str]; 3] = [&[ROOMY], &[ROOMY, RATE], &[ROOMY, TIGHT, RATE]];

/// What became of the victims.
#[derive(Default)]
struct Toll {
    killed: usize,
    at_work: usize,
}

/// One caller after another, each killed at some moment between its start and its end.
fn kill_callers(endpoint: &str, mut dice: fastrand::Rng) -> Toll {
    let caller = |ask: &[&str]| {
        let arguments = [&["run", "--wait", "5s"], ask, &["--", "sleep", "0.06"]].concat();
        sluice(endpoint, &arguments)
    };
    let whole = (0..3).map(|_| timed(caller(ASKS[1]))).max().unwrap_or_default();
    let mut toll = Toll::default();
    for _ in 0..kills(40) {
        let ask = ASKS[dice.usize(..ASKS.len())];
        let process = caller(ask).spawn().unwrap();
        toll.at_work += usize::from(kill(process, whole.mul_f64(dice.f64())));
        toll.killed += 1;
    }
    toll
}

/// Looks at the table again and again, until told to stop.
async fn watch(endpoint: String, stop: Arc<AtomicBool>) -> usize {
    let dynamo = table::dynamo(&endpoint);
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        Look::at(&dynamo).await.assert_no_slot_is_lost_or_minted();
        looks += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_caller_held_comes_back() {
    let file = limits("crash-caller.toml", &[(ROOMY, 200), (TIGHT, 5)], &[(RATE, 1_000)], "1s");
    let sandbox = Sandbox::start(0, &["--buckets", file.to_str().unwrap()]);
    let endpoint = sandbox.endpoint().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(watch(endpoint.clone(), Arc::clone(&stop)));
    let mut dice = dice("callers");
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (endpoint, dice) = (endpoint.clone(), dice.fork());
        callers.spawn_blocking(move || kill_callers(&endpoint, dice));
    }
    let mut toll = Toll::default();
    for each in callers.join_all().await {
        toll.killed += each.killed;
        toll.at_work += each.at_work;
    }
    stop.store(true, Ordering::Relaxed);
    let looks = watching.await.unwrap();

    let dynamo = table::dynamo(&endpoint);
    let left = Look::at(&dynamo).await;
    left.wait_for_ends().await;
    let swept_at = endpoint.clone();
    let reports = spawn_blocking(move || [sweep(&swept_at), sweep(&swept_at)]).await.unwrap();
    println!(
        "callers: {} killed, {} at work, {} leases left; {looks} looks",
        toll.killed,
        toll.at_work,
        left.leases.len()
    );
    assert_eq!(reports[0]["restored_slots"], left.leases.len());
    reports.iter().for_each(assert_no_faults);
    Look::at(&dynamo).await.assert_whole();
    let client = Client::builder(table::name()).dynamodb(dynamo);
    let rate = client.ops().bucket(&Dimension::new(RATE).unwrap()).await.unwrap().unwrap();
    assert_eq!(rate.level(Clock::system().now()), rate.limit().capacity(), "tokens come back by time");
    // Else the trial shows nothing.
    assert!(toll.at_work * 3 > toll.killed, "too few were at work");
    assert!(left.leases.len() * 16 > toll.killed, "too few held anything");
    assert!(looks > 50, "{looks} looks");
}
