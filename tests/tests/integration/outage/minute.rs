//! DynamoDB is out for a minute in the middle of a run: what each policy grants, what the vendor sees, and
//! how all becomes normal again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{DeclaredShare, ShareName, Split, Timestamp};
use sluice_sdk::{Basis, Client, ClientBuilder, Leases, OnUnavailable, Outcome};
use sluice_table::random_wait_up_to;
use sluice_testkit::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::RPM;
use crate::events::{lines_of, listen};
use crate::world::{World, all_or_first, dimension, requests, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
/// Calls a second that the vendor allows, and at once.
const ALLOWED: i32 = 40;
/// Together they ask for half more than that.
const PROCESSES: u32 = 10;
const EVERY: Duration = Duration::from_micros(166_667);
/// Each process has noted its use twice by then: the first knows of the last.
const BEFORE: Duration = Duration::from_secs(130);
/// A process that asks for more begins to do so this long before the outage.
const BUSY_BEFORE: Duration = Duration::from_secs(10);
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
    /// When the table granted something again to each process, after the outage.
    table_again: Vec<Mutex<Option<Duration>>>,
    /// When the vendor refused last, after the outage.
    last_refusal: Mutex<Option<Duration>>,
}

/// How all became normal again, from the end of the outage on.
#[derive(Debug)]
struct Normal {
    /// The first grant of the table to any process, and the first to the last of them.
    table_first: Duration,
    table_last: Duration,
    /// The vendor's last refusal.
    last_refusal: Option<Duration>,
    /// Requests in the first second.
    requests_at_first: u64,
    /// The requests in a second right before the outage, on average.
    usual: u64,
    /// From this second on, no second has more requests than any before the outage.
    steady_from: u64,
}

impl Minute {
    fn part(&self) -> usize {
        let at = self.began.elapsed();
        usize::from(at >= BEFORE) + usize::from(at >= BEFORE + OUTAGE)
    }

    fn since_outage(&self) -> Duration {
        self.began.elapsed() - BEFORE - OUTAGE
    }

    fn normal(&self) -> Normal {
        let requests = |second: u64| self.requests[usize::try_from(second).unwrap()].load(Ordering::SeqCst);
        let (before, back) = (BEFORE.as_secs(), (BEFORE + OUTAGE).as_secs());
        let most_before = (10..before - 1).map(requests).max().unwrap();
        let above = (0..AFTER.as_secs()).filter(|second| requests(back + second) > most_before);
        let of_process =
            |again: &Mutex<Option<Duration>>| again.lock().unwrap().expect("the table grants again");
        let again: Vec<Duration> = self.table_again.iter().map(of_process).collect();
        Normal {
            table_first: *again.iter().min().unwrap(),
            table_last: *again.iter().max().unwrap(),
            last_refusal: *self.last_refusal.lock().unwrap(),
            requests_at_first: requests(back),
            usual: (before - 10..before).map(requests).sum::<u64>() / 10,
            steady_from: above.max().map_or(0, |second| second + 1),
        }
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
            if self.part() == 2 {
                *self.last_refusal.lock().unwrap() = Some(self.since_outage());
            }
        } else {
            vendor.left -= 1.0;
        }
    }

    async fn asks(self: Arc<Self>, client: Client, process: u32, every: Duration) {
        sleep(EVERY / PROCESSES * process).await;
        let end = BEFORE + OUTAGE + AFTER;
        let mut calls = JoinSet::new();
        while self.began.elapsed() < end {
            let is_busy = self.began.elapsed() > BEFORE - BUSY_BEFORE;
            let (minute, client) = (Arc::clone(&self), client.clone());
            calls.spawn(async move {
                if let Ok(Outcome::Granted(grant)) = client.acquire(RPM).await {
                    minute.arrives();
                    if grant.basis() == Basis::Table && minute.part() == 2 {
                        let again = &minute.table_again[usize::try_from(process).unwrap()];
                        again.lock().unwrap().get_or_insert(minute.since_outage());
                    }
                }
            });
            // Callers that come at exactly one pace can find the tokens of the one before them gone each time.
            let every = if is_busy { every } else { EVERY };
            sleep(every * 9 / 10 + random_wait_up_to(every / 5)).await;
        }
        while calls.join_next().await.is_some() {}
    }
}

/// The shares of a product each, and what is left for processes that name none.
const SHARES: [(&str, &str); 3] = [("search", "0.5"), ("checkout", "0.3"), ("batch", "0.1")];

async fn minute(policy: OnUnavailable, fault: Fault, shares: &[(&str, &str)]) -> Arc<Minute> {
    minute_in_which_one_asks(EVERY, policy, fault, shares).await
}

/// As [`minute`], and the first process asks once in `every`, from [`BUSY_BEFORE`] on.
async fn minute_in_which_one_asks(
    every: Duration,
    policy: OnUnavailable,
    fault: Fault,
    shares: &[(&str, &str)],
) -> Arc<Minute> {
    fastrand::seed(7);
    let world = World::embedded().await;
    let names: Vec<_> = shares.iter().map(|(name, _)| ShareName::new(name).unwrap()).collect();
    let share = |(name, (_, part)): (&ShareName, &(&str, &str))| DeclaredShare {
        name: name.clone(),
        part: part.parse().unwrap(),
        floor: None,
        background: false,
    };
    let declared: Vec<_> = names.iter().zip(shares).map(share).collect();
    let split = Split::new(requests(ALLOWED, 1), &declared).unwrap();
    world.client().ops().apply_split(&dimension(RPM), &split).await.unwrap();
    let vendor = Mutex::new(Vendor { left: f64::from(ALLOWED), at: world.dynamo.clock().now() });
    let requests = (0..240).map(|_| AtomicU64::new(0)).collect();
    let (began, last_refusal, seen) = (Instant::now(), Mutex::new(None), Default::default());
    let table_again = (0..PROCESSES).map(|_| Mutex::new(None)).collect();
    let minute = Arc::new(Minute { world, began, vendor, seen, requests, table_again, last_refusal });
    let run = Arc::downgrade(&minute);
    minute.world.dynamo.faults().draw(move |_| {
        let run = run.upgrade()?;
        let second = usize::try_from(run.began.elapsed().as_secs()).unwrap();
        run.requests[second].fetch_add(1, Ordering::SeqCst);
        (run.part() == 1).then(|| fault.clone())
    });
    let mut processes = JoinSet::new();
    for process in 0..PROCESSES {
        let client = minute.world.client_with(|settings| {
            let settings = settings.on_unavailable(policy).note_use(true);
            match names.get(usize::try_from(process).unwrap() % (names.len() + 1)) {
                Some(share) => settings.share(share.clone()),
                None => settings,
            }
        });
        let every = if process == 0 { every } else { EVERY };
        processes.spawn(Arc::clone(&minute).asks(client, process, every));
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }
    minute
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn a_minute_without_dynamodb_is_survived_by_each_policy_as_it_says() {
    for policy in all_or_first(&["share", "share:0.1", "allow", "error"]) {
        let policy = policy.parse().unwrap();
        let minute = minute(policy, Fault::Hang, &[]).await;
        let [before, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
        let normal = minute.normal();
        println!("{policy:?}: before {before:?}, in the outage {during:?}, after {after:?}; {normal:?}");
        assert_eq!(before.refused_by_vendor, 0);
        // No process with a share takes before all have charged their parts.
        let held = match policy {
            OnUnavailable::Share(_) | OnUnavailable::EqualShare => 750,
            _ => 0,
        };
        let (first, last) = (normal.table_first.as_millis(), normal.table_last.as_millis());
        assert!((held..held + 600).contains(&first) && last <= held + 1_000, "{normal:?}");
        assert!(normal.requests_at_first <= 2 * normal.usual, "{normal:?}");
        assert!(normal.steady_from <= 2, "{normal:?}");
        match policy {
            OnUnavailable::Allow => {
                assert!(during.refused_by_vendor > 400, "nobody counts: {during:?}");
                // Full, as the table sees it, and empty, as the vendor does: until what is asked for beyond
                // the rate has used up the table's burst.
                assert!(normal.last_refusal < Some(Duration::from_secs(3)), "{normal:?}");
            }
            OnUnavailable::Share(_) | OnUnavailable::EqualShare => {
                assert_eq!(during.refused_by_vendor, 0, "the shares are the limit: {during:?}");
                assert_eq!(
                    after.refused_by_vendor, 0,
                    "the table is charged what the shares gave: {after:?}"
                );
                let most = u64::try_from(ALLOWED).unwrap() * OUTAGE.as_secs();
                assert!(during.granted * 100 >= most * 90, "and are used: {during:?}");
            }
            _ => {
                assert!(during.granted <= 120, "what was under way: {during:?}");
                assert_eq!(normal.last_refusal, None);
            }
        }
    }
}

/// Errors that come at once: the outage is found by their number, after some seconds.
#[tokio::test(start_paused = true)]
async fn a_share_is_one_share_while_every_request_fails_at_once() {
    let minute = minute("share:0.1".parse().unwrap(), Fault::LoseRequest, &[]).await;
    let [_, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
    assert!(during.granted >= 2_000 && during.refused_by_vendor == 0, "{during:?}");
    assert_eq!(after.refused_by_vendor, 0, "{after:?}");
    let normal = minute.normal();
    assert!(normal.requests_at_first <= 2 * normal.usual && normal.steady_from <= 2, "{normal:?}");
}

/// The one that asks most finds the return before others, and would take the whole burst of the table before
/// they have charged their parts.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn the_vendor_refuses_nothing_after_an_outage_in_which_one_process_asks_for_most() {
    for policy in all_or_first(&["share:0.1", "share"]) {
        let every = Duration::from_millis(5);
        let minute = minute_in_which_one_asks(every, policy.parse().unwrap(), Fault::Hang, &[]).await;
        let [before, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
        let normal = minute.normal();
        println!("{policy}: before {before:?}, in the outage {during:?}, after {after:?}; {normal:?}");
        let refused = [before, during, after].map(|seen| seen.refused_by_vendor);
        assert_eq!(refused, [0; 3], "{policy}");
        assert!(normal.requests_at_first <= 2 * normal.usual && normal.steady_from <= 2, "{normal:?}");
        assert!(normal.table_first < Duration::from_millis(1_350), "{normal:?}");
        // What the table has goes to the process that asks most often.
        assert!(normal.table_last < Duration::from_secs(10), "{normal:?}");
    }
}

/// The processes of all products are counted together, so each has its part of all lines.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn an_equal_share_of_a_bucket_with_shares_is_one_of_the_whole_limit() {
    let minute = minute(OnUnavailable::EqualShare, Fault::Hang, &SHARES).await;
    let [before, during, after] = [0, 1, 2].map(|part| *minute.seen[part].lock().unwrap());
    let normal = minute.normal();
    println!("before {before:?}, in the outage {during:?}, after {after:?}; {normal:?}");
    assert_eq!([before, during, after].map(|seen| seen.refused_by_vendor), [0; 3]);
    assert!(normal.requests_at_first <= 2 * normal.usual && normal.steady_from <= 2, "{normal:?}");
    assert!(normal.table_last <= Duration::from_millis(1_750), "{normal:?}");
    let most = u64::try_from(ALLOWED).unwrap() * OUTAGE.as_secs();
    assert!(during.granted * 100 >= most * 90, "{during:?}");
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

/// Also in a process that notes no use. What a rehearsal granted is not missing in the outage.
#[tokio::test(start_paused = true)]
async fn what_answers_in_an_outage_runs_each_minute_before_it_and_leaves_nothing() {
    for (policy, note_use, answers, granted) in [
        ("share:0.1", false, ["granted", "granted"], 9),
        // The first note tells no number of processes that can be believed.
        ("share", true, ["unknown", "granted"], 98),
        ("allow", true, [""; 2], 0),
    ] {
        listen();
        let world = World::embedded().await;
        world.rate(RPM, 100, 1_000_000_000).await;
        let settings =
            |settings: ClientBuilder| settings.on_unavailable(policy.parse().unwrap()).note_use(note_use);
        let client = world.client_with(settings);
        for _ in 0..2 {
            take(&client, RPM).await.release().await.unwrap();
            sleep(Duration::from_secs(61)).await;
        }
        let rehearsed = lines_of("unavailable.rehearsed");
        let rehearsed: Vec<_> = rehearsed.iter().filter_map(|line| line["answer"].as_str()).collect();
        assert_eq!(rehearsed, answers.into_iter().filter(|answer| !answer.is_empty()).collect::<Vec<_>>());
        world.dynamo.faults().draw(|_| Some(Fault::Hang));
        for _ in 0..granted {
            assert_eq!(take(&client, RPM).await.basis(), Basis::LocalShare, "{policy}");
        }
        assert!(granted == 0 || client.acquire(RPM).await.unwrap().granted().is_none(), "{policy}");
    }
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
    assert_eq!(held.len(), 4, "half of the four that are free: the table knows of the two");
    for grant in held {
        grant.release().await.unwrap();
    }
    // The releases of the two that the table knows begin on a task.
    settle().await;
    assert_eq!(granted(4).await.len(), 4, "half of the four, and the two that came back");
}
