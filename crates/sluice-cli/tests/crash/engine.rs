//! The engine is killed, with a file behind it and callers at work: what it said is in the file when it
//! starts again.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_core::Amount;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::program::{Sandbox, assert_no_faults, dice, kills, limits, sweep};
use crate::table::{self, Look};

mod worker;

use worker::{CrashReport, Knows, Told, Worker};

const WORKERS: u32 = 6;

/// A worker that tries again and again has its answer long before.
const LONGEST_REQUEST: Duration = Duration::from_secs(60);

const SLOTS: &str = "elevenlabs#concurrent";
const TOKENS: &str = "openai#tpd";
const CAPACITY: u32 = 1_000_000;
/// Tokens a year: 82 a day.
const RATE: u32 = 30_000;

/// What all workers together know, while they rest.
#[derive(Default)]
struct Known {
    /// Leases that a caller must have, or may have.
    held: BTreeMap<String, Knows>,
    /// Tokens that were granted, and that were asked for without an answer.
    granted: u32,
    unanswered: u32,
    /// Requests that were under way when the engine died.
    cut_off: u32,
    /// Of those, the ones that were answered after all, by the engine that came after.
    answered_later: u32,
    /// Of those again, grants of tokens: the engine that died may have taken them as well. They refill.
    maybe_twice: u32,
}

impl Known {
    fn add(&mut self, report: &CrashReport, killed_at: Instant) {
        self.held.extend(report.leases.clone());
        self.granted += report.granted;
        self.unanswered += report.unanswered;
        if report.began < killed_at && report.ended > killed_at {
            self.cut_off += 1;
            self.answered_later += u32::from(report.answered);
            self.maybe_twice += u32::from(report.answered && report.of_tokens);
        }
    }

    /// What the engine said is in the table, and nothing is that nobody asked for.
    fn assert_is_in(&self, look: &Look) {
        look.assert_no_slot_is_lost_or_minted();
        let mut found: BTreeMap<&str, u32> = BTreeMap::new();
        look.leases.iter().for_each(|lease| *found.entry(&lease.caller).or_default() += 1);
        for (caller, knows) in &self.held {
            let leases = found.remove(caller.as_str()).unwrap_or(0);
            match knows {
                Knows::Held => assert_eq!(leases, 1, "{caller} was granted a slot"),
                Knows::Released => assert_eq!(leases, 0, "{caller} gave its slot back"),
                Knows::Nothing => assert!(leases <= 1, "{caller} asked for one slot"),
            }
        }
        assert!(found.is_empty(), "{found:?} hold slots that nobody asked for");
        let bucket = &look.buckets[TOKENS];
        // A refill of 82 tokens a day is not seen here.
        let spent = (bucket.capacity.minus(bucket.tokens).micros() + 500_000) / 1_000_000;
        let range = i64::from(self.granted)..=i64::from(self.granted + self.unanswered + self.maybe_twice);
        assert!(range.contains(&spent), "{spent} tokens are spent, of {range:?}");
    }
}

/// A free port that no connection is given for its own end: the engine must find it free each time it starts.
fn free_port(dice: &mut fastrand::Rng) -> u16 {
    let mut ports = std::iter::repeat_with(|| dice.u16(20_000..30_000));
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}

fn fresh(name: &str) -> PathBuf {
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    for beside in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{beside}", data.display()));
    }
    data
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_engine_said_outlives_it() {
    let data = fresh("crash-engine.db");
    let file = limits("crash-engine.toml", &[(SLOTS, CAPACITY)], &[(TOKENS, RATE)], "365d");
    let data = data.to_str().unwrap().to_owned();
    let mut dice = dice("engine");
    let port = free_port(&mut dice);
    let mut engine = Sandbox::start(port, &["--data", &data, "--buckets", file.to_str().unwrap()]);
    let endpoint = engine.endpoint().to_owned();
    let (tell, told) = watch::channel(Told::Work);
    let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(Worker::new(number, &endpoint, told.clone(), reports.clone(), dice.fork()).work());
    }
    // A client of its own for each look: the connections of an old one ended with the engine.
    let look = || async { Look::at(&table::dynamo(&endpoint)).await };
    let (mut known, mut cut_off_in) = (Known::default(), 0);
    let trials = kills(120);
    for trial in 0..trials {
        tokio::time::sleep(Duration::from_millis(dice.u64(5..80))).await;
        let killed_at = Instant::now();
        engine.kill();
        tell.send_replace(Told::Rest(trial));
        let again = data.clone();
        engine = spawn_blocking(move || Sandbox::start(port, &["--data", &again])).await.unwrap();
        let before = known.cut_off;
        for _ in 0..WORKERS {
            let report = timeout(LONGEST_REQUEST, reported.recv()).await.expect("a worker hangs").unwrap();
            known.add(&report, killed_at);
        }
        cut_off_in += u32::from(known.cut_off > before);
        known.assert_is_in(&look().await);
        tell.send_replace(Told::Work);
    }
    drop(tell);
    for report in workers.join_all().await {
        known.add(&report, Instant::now());
    }
    let left = look().await;
    known.assert_is_in(&left);
    left.wait_for_ends().await;
    // Releases that were cut off went on until their leases ended.
    let left = look().await;
    let swept_at = endpoint.clone();
    let swept = spawn_blocking(move || [sweep(&swept_at), sweep(&swept_at)]).await.unwrap();
    println!(
        "engine: {trials} killed, {cut_off_in} at work; {} tokens granted; {} requests cut off, {} of them answered by the \
         next engine; {} leases left",
        known.granted,
        known.cut_off,
        known.answered_later,
        left.leases.len()
    );
    assert_eq!(swept[0]["restored_slots"], left.leases.len());
    swept.iter().for_each(assert_no_faults);
    let end = look().await;
    end.assert_whole();
    assert!(end.buckets[SLOTS].tokens == Amount::from_tokens(i32::try_from(CAPACITY).unwrap()));
    // Else the trial shows nothing.
    assert!(cut_off_in * 2 > trials, "too few kills cut anything off");
}
