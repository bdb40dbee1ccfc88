//! The log events that operators filter by.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Once;
use std::time::Duration;

use serde_json::Value;
use sluice_ops::SweepOptions;
use sluice_sdk::Reply;
use sluice_testkit::{Fault, Operation};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::metrics::spans::ThreadSpans;
use crate::world::{World, refusal, take};

thread_local! {
    /// What was logged on this thread, once it wants to know. The subscriber is the process's, which other
    /// tests share: one for a thread alone would miss events that another thread met first, when nobody
    /// listened.
    static LOG: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct ThreadLog;

impl Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs what happens on this thread from now on.
pub(crate) fn listen() {
    static INSTALLED: Once = Once::new();
    LOG.set(Some(Vec::new()));
    INSTALLED.call_once(|| {
        let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(|| ThreadLog);
        let targets = Targets::new()
            .with_target("sluice_sdk", LevelFilter::DEBUG)
            .with_target("sluice_ops", LevelFilter::DEBUG)
            .with_target("sluice_table", LevelFilter::DEBUG);
        let subscriber = tracing_subscriber::registry().with(targets).with(lines).with(ThreadSpans);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// The lines as a log collector would get them, in order.
pub(crate) fn lines() -> Vec<Value> {
    let bytes = LOG.take().unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()).collect()
}

/// The lines by event.
pub(crate) fn events() -> BTreeMap<String, Value> {
    lines().into_iter().filter_map(|line| Some((line["event"].as_str()?.to_owned(), line))).collect()
}

/// The lines of one event.
pub(crate) fn lines_of(event: &str) -> Vec<Value> {
    lines().into_iter().filter(|line| line["event"] == event).collect()
}

/// The lines at warn and above since the last time.
fn warnings() -> Vec<Value> {
    let warnings =
        lines().into_iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").collect();
    LOG.set(Some(Vec::new()));
    warnings
}

#[tokio::test(start_paused = true)]
async fn every_documented_event_is_logged_with_its_fields() {
    listen();
    let world = World::with_slots("a#concurrent", 1).await;
    world.rate("a#rpm", 1, 50).await;
    let client = world.client();
    client.penalize("a#rpm", 1.0).await.unwrap();
    let _ = take(&client, "a#rpm").await;
    refusal(&client, "a#rpm").await;
    world
        .dynamo
        .faults()
        .next(Operation::TransactWriteItems, Fault::cancelled(&["TransactionConflict", "None"]));
    take(&client, "a#concurrent").await.release().await.unwrap();
    let late = client.slot("a#concurrent").timeout(Duration::from_secs(1));
    let late = late
        .run(async |_| Ok::<_, sluice_sdk::LimitError>(tokio::time::sleep(Duration::from_secs(5)).await))
        .await;
    assert!(late.is_err());
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let unreadable = Reply { status: 429, headers: &[("retry-after", "soon")], body: None };
    client.on_rate_limited("a#rpm", unreadable).await.unwrap();
    let events = events();
    for (event, fields) in [
        ("acquire.granted", vec!["dimensions", "booked_ms"]),
        ("acquire.retry_in", vec!["dimension", "reason", "wait_ms"]),
        ("acquire.contention_retry", vec!["dimension", "tries"]),
        ("slot.timeout", vec!["dimensions", "timeout_ms"]),
        ("release.ok", vec!["dimension"]),
        ("penalize.applied", vec!["dimension", "level"]),
        ("vendor.refused", vec!["dimensions", "refusal", "done", "decision"]),
        ("vendor.unreadable_header", vec!["dimension", "unreadable"]),
        ("reconciler.complete", vec!["restored", "dimensions", "already_capped", "expired", "deadline_hit"]),
    ] {
        let line = events.get(event).unwrap_or_else(|| panic!("{event} is missing of {:?}", events.keys()));
        assert!(fields.iter().all(|field| !line[*field].is_null()), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_vendor_is_one_warning_that_says_what_was_done() {
    listen();
    let world = World::with_slots("elevenlabs#concurrent", 5).await.lowered_without_a_bound();
    world.rate("elevenlabs#rpm", 100, 1_000_000_000).await;
    world.tokens("elevenlabs#tpm", 1_000, 1_000_000_000).await;
    let (rpm, slots) = ("elevenlabs#rpm", "elevenlabs#concurrent");
    let all = [slots, rpm, "elevenlabs#tpm"];
    let headers = |pairs: &[(&'static str, &'static str)]| pairs.to_vec();
    let busy = br#"{"detail": {"status": "system_busy"}}"#;
    let too_many = br#"{"detail": {"status": "too_many_concurrent_requests"}}"#;
    let both = "elevenlabs#rpm,elevenlabs#tpm";
    let lowered = "elevenlabs#rpm lowered to 80; elevenlabs#tpm lowered to 800";
    let cases = [
        (all.to_vec(), headers(&[]), &b""[..], both, lowered),
        (all.to_vec(), headers(&[("retry-after", "3")]), b"", both, "elevenlabs#rpm cools down until "),
        (vec![slots], headers(&[]), busy, slots, "elevenlabs#concurrent cools down until "),
        (vec![rpm, slots], headers(&[]), too_many, slots, "nothing"),
        (vec![rpm], headers(&[]), too_many, rpm, "nothing"),
    ];
    for (asked, headers, body, blamed, done) in cases {
        let client = world.client();
        let reply = Reply { status: 429, headers: &headers, body: Some(body) };
        client.on_rate_limited(asked, reply).await.unwrap();
        let warnings = warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let line = &warnings[0];
        assert_eq!(
            (line["event"].as_str(), line["dimensions"].as_str()),
            (Some("vendor.refused"), Some(blamed))
        );
        assert!(line["done"].as_str().unwrap().starts_with(done), "{line}");
        assert!(line["decision"].as_str().unwrap().starts_with("RetryInline"), "{line}");
        world.pass(Duration::from_secs(60));
    }
    world.dynamo.faults().always(Operation::UpdateItem, Fault::throttled());
    let client = world.client();
    let reply = Reply { status: 429, headers: &[("retry-after", "3")], body: None };
    client.on_rate_limited(rpm, reply).await.unwrap_err();
    let warnings = warnings();
    assert!(
        warnings.len() == 1 && !warnings[0]["error"].is_null(),
        "also if the table does not answer: {warnings:?}"
    );
    world.dynamo.faults().clear();
    // What a caller does by itself has a line of its own.
    client.cool_down(rpm, Duration::from_secs(1)).await.unwrap();
    assert_eq!(self::warnings()[0]["event"], "cool_down.set");
}
