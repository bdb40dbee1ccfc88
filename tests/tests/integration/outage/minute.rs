//! DynamoDB is out for a minute in the middle of a run: what each policy grants, what the vendor sees, and
//! how all becomes normal again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_sdk::{Basis, Client, Leases, OnUnavailable, Outcome};
use sluice_testkit::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::RPM;
use crate::events::{lines_of, listen};
use crate::world::{World, take};

const SLOTS: &str = "elevenlabs#concurrent";
/// Calls a second that the vendor allows, and at once.
const ALLOWED: i32 = 40;
/// Together they ask for half more than that.
const PROCESSES: u32 = 10;
const EVERY: Duration = Duration::from_micros(166_667);
/// Each process has noted its use twice by then: the first knows of the last.
const BEFORE: Duration = Duration::from_secs(130);
const OUTAGE: Duration = Duration::from_secs(60);
const AFTER: Duration = Duration::from_secs(20);

/// What a vendor has left, in calls.
struct Vendor {
    left: f64,
    at: Timestamp,
}

/// Calls of one part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    granted: u64,
    refused_by_vendor: u64,
}

struct Minute {
    world: World,
    began: Instant,
    vendor: Mutex<Vendor>,
    /// Before the outage, in it, and after it.
    seen: [Mutex<Seen>; 3],
    /// Requests in each second of the run.
    requests: Vec<AtomicU64>,
    /// When the table granted something again.
    is_back: Mutex<Option<Duration>>,
}

impl Minute {
    fn part(&self) -> usize {
        let at = self.began.elapsed();
        usize::from(at >= BEFORE) + usize::from(at >= BEFORE + OUTAGE)
    }

    fn arrives(&self) {
        let now = self.world.dynamo.clock().now();
        let mut vendor = self.vendor.lock().unwrap();
        let allowed = f64::from(ALLOWED);
        vendor.left = (vendor.left + now.since(vendor.at).as_secs_f64() * allowed).min(allowed);
        vendor.at = now;
        let mut seen = self.seen[self.part()].lock().unwrap();
        seen.granted += 1;
        // The bound is exact to the rounding of a start.
        if vendor.left < 0.999 {
            seen.refused_by_vendor += 1;
        } else {
            vendor.left -= 1.0;
        }
    }

    async fn asks(self: Arc<Self>, client: Client, first: Duration) {
        sleep(first).await;
        let end = BEFORE + OUTAGE + AFTER;
        let mut calls = JoinSet::new();
        while self.began.elapsed() < end {
            let (minute, client) = (Arc::clone(&self), client.clone());
            calls.spawn(async move {
                if let Ok(Outcome::Granted(grant)) = client.acquire(RPM).await {
                    minute.arrives();
                    if grant.basis() == Basis::Table && minute.part() == 2 {
                        let after = minute.began.elapsed() - BEFORE - OUTAGE;
                        minute.is_back.lock().unwrap().get_or_insert(after);
                    }
                }
            });
            sleep(EVERY).await;
        }
        while calls.join_next().await.is_some() {}
    }
}

async fn minute(policy: OnUnavailable, fault: Fault) -> Arc<Minute> {
    fastrand::seed(7);
    let world = World::embedded().await;
    world.rate(RPM, ALLOWED, 1).await;
    let vendor = Mutex::new(Vendor { left: f64::from(ALLOWED), at: world.dynamo.clock().now() });
    let requests = (0..240).map(|_| AtomicU64::new(0)).collect();
    let (began, is_back, seen) = (Instant::now(), Mutex::new(None), Default::default());
    let minute = Arc::new(Minute { world, began, vendor, seen, requests, is_back });
    let run = Arc::downgrade(&minute);
    minute.world.dynamo.faults().draw(move |_| {
        let run = run.upgrade()?;
        let second = usize::try_from(run.began.elapsed().as_secs()).unwrap();
        run.requests[second].fetch_add(1, Ordering::SeqCst);
        (run.part() == 1).then(|| fault.clone())
    });
    let mut processes = JoinSet::new();
    for at in 0..PROCESSES {
        let client = minute.world.client_with(|settings| settings.on_unavailable(policy).note_use(true));
        processes.spawn(Arc::clone(&minute).asks(client, EVERY / PROCESSES * at));
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }
    minute
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn a_minute_without_dynamodb_is_survived_by_each_policy_as_it_says() {
    for policy in ["error", "allow", "share:0.1", "share"].map(|text| text.parse().unwrap()) {
        let minute = minute(policy, Fault::Hang).await;
        let [before, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
        let requests = |second: u64| minute.requests[usize::try_from(second).unwrap()].load(Ordering::SeqCst);
        let steady = (10..BEFORE.as_secs() - 1).map(requests).max().unwrap();
        let back = (BEFORE + OUTAGE).as_secs();
        let is_back = minute.is_back.lock().unwrap().expect("DynamoDB is found again");
        println!(
            "{policy:?}: before {before:?}, in the outage {during:?}, after {after:?}; table again after {is_back:?}; requests a second: \
             {steady} at most before, {} in the first second after",
            requests(back)
        );
        assert_eq!(before.refused_by_vendor, 0);
        assert!(is_back <= Duration::from_secs(1), "{is_back:?}");
        assert!(requests(back) <= 2 * steady, "{} requests in the first second", requests(back));
        match policy {
            OnUnavailable::Allow => assert!(during.refused_by_vendor > 400, "nobody counts: {during:?}"),
            OnUnavailable::Share(_) | OnUnavailable::EqualShare => {
                assert_eq!(during.refused_by_vendor, 0, "the shares are the limit: {during:?}");
                // What processes that found DynamoDB again took before the last of them had charged its part.
                assert!(after.refused_by_vendor <= 8, "the table is charged what the shares gave: {after:?}");
                let most = u64::try_from(ALLOWED).unwrap() * OUTAGE.as_secs();
                assert!(during.granted * 100 >= most * 90, "and are used: {during:?}");
            }
            _ => assert!(during.granted <= 120, "what was under way: {during:?}"),
        }
    }
}

/// Errors that come at once: the outage is found by their number, after some seconds.
#[tokio::test(start_paused = true)]
async fn a_share_is_one_share_while_every_request_fails_at_once() {
    let minute = minute("share:0.1".parse().unwrap(), Fault::LoseRequest).await;
    let [_, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
    assert!(during.granted >= 2_000 && during.refused_by_vendor == 0, "{during:?}");
    // Ten, run after run.
    assert!(after.refused_by_vendor <= 12, "{after:?}");
}

/// Outside of an outage, where it can be mended: a limit of one call at once has no room for ten parts.
#[tokio::test(start_paused = true)]
async fn a_process_whose_share_has_no_room_for_a_call_says_so_before_an_outage() {
    listen();
    let world = World::embedded().await;
    world.rate(RPM, 5, 1).await;
    let client =
        world.client_with(|settings| settings.on_unavailable("share:0.1".parse().unwrap()).note_use(true));
    for _ in 0..3 {
        take(&client, RPM).await.release().await.unwrap();
        sleep(Duration::from_secs(61)).await;
        world.pass(Duration::from_secs(61));
    }
    let lines = lines_of("unavailable.no_share");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (lines[0]["dimension"].as_str(), lines[0]["capacity"].as_str()),
        (Some(RPM), Some("5")),
        "{}",
        lines[0]
    );
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    assert!(client.acquire(RPM).await.is_err());
}

/// Slots that are held through two outages stay taken, although the limit, and so the share, is another in
/// the second.
#[tokio::test(start_paused = true)]
async fn slots_of_a_share_that_changes_are_neither_forgotten_nor_made() {
    let world = World::embedded().await;
    world.slots(SLOTS, 4).await;
    // The replies to writes of inline leases show the row, and with it the new limit.
    let client = world
        .client_with(|settings| settings.leases(Leases::Inline).on_unavailable("share:0.5".parse().unwrap()));
    take(&client, SLOTS).await.release().await.unwrap();
    let out = |is_out: bool| world.dynamo.faults().draw(move |_| is_out.then_some(Fault::Hang));
    let granted = async |most: usize| {
        let mut grants = Vec::new();
        while let (true, Ok(Outcome::Granted(grant))) = (grants.len() <= most, client.acquire(SLOTS).await) {
            assert_eq!(grant.basis(), Basis::LocalShare);
            grants.push(grant);
        }
        grants
    };
    out(true);
    let mut held = granted(2).await;
    assert_eq!(held.len(), 2);
    out(false);
    sleep(Duration::from_secs(2)).await;
    world.slots(SLOTS, 6).await;
    take(&client, SLOTS).await.release().await.unwrap();
    out(true);
    held.extend(granted(3).await);
    assert_eq!(held.len(), 3, "half of six, of which two are held");
    for grant in held {
        grant.release().await.unwrap();
    }
    assert_eq!(granted(3).await.len(), 3);
}
