//! DynamoDB is out for a minute while processes share slots: the vendor never sees more calls at once than
//! there are slots, in the outage and after it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, Cost, DeclaredShare, Limit, ShareName, Split};
use sluice_ops::SweepOptions;
use sluice_sdk::{Basis, Client, Outcome};
use sluice_table::random_wait_up_to;
use sluice_testkit::{Call, Fault, Operation};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, all_or_first, dimension};

const SLOTS: &str = "elevenlabs#concurrent";
const SEARCH: &str = "elevenlabs#concurrent@search";
/// Calls at once that the vendor allows.
const ALLOWED: i32 = 20;
const PROCESSES: usize = 10;
const OUTAGE: Duration = Duration::from_secs(60);
const AFTER: Duration = Duration::from_secs(20);

/// So long before the outage, resting callers begin to rest less.
const BUSIER: Duration = Duration::from_secs(25);
const IDLE_REST: Duration = Duration::from_millis(4_500);

/// How many callers each process has.
const EVEN: [usize; PROCESSES] = [4; PROCESSES];
const UNEVEN: [usize; PROCESSES] = [16, 6, 4, 4, 3, 2, 2, 1, 1, 1];

/// What DynamoDB does in the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// Nothing is answered.
    All,
    /// Nothing is answered, and what comes in the first half second is applied.
    AppliesTheFirst,
    /// Reads are answered, and writes are not.
    Writes,
}

/// What happens before the outage, in it, and after it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    granted: u64,
    refused_by_vendor: u64,
    at_once_at_most: i32,
    /// The time of all calls together.
    busy: Duration,
}

struct Vendor {
    at_once: i32,
    changed: Instant,
    seen: [Seen; 3],
}

#[derive(Clone, Copy, Debug)]
struct Case {
    policy: &'static str,
    kind: Kind,
    callers: [usize; PROCESSES],
    hold: Duration,
    /// How long a caller rests after a call in the last [`BUSIER`] before the outage, on average. Earlier,
    /// [`IDLE_REST`]; later, not at all.
    rest: Option<Duration>,
    has_shares: bool,
    ttl: Duration,
    broken: Broken,
}

const CASE: Case = Case {
    policy: "share",
    kind: Kind::Rows,
    callers: EVEN,
    hold: Duration::from_millis(500),
    rest: None,
    has_shares: false,
    ttl: LEASE_TTL,
    broken: Broken::All,
};

struct Run {
    world: World,
    case: Case,
    began: Instant,
    /// How long all runs as usual at first.
    before: Duration,
    vendor: Mutex<Vendor>,
    /// In each second.
    requests: Vec<AtomicU64>,
    /// When the table first grants something after the outage.
    table_again: Mutex<Option<Duration>>,
}

/// What comes after the outage.
#[derive(Debug)]
struct Normal {
    /// The first grant of the table.
    table_first: Duration,
    /// The most requests in one of the first five seconds.
    requests: u64,
    /// The requests in a second before the outage, on average. Where callers rest before it, and not after
    /// it: in the last seconds of the run.
    steady: u64,
}

impl Case {
    /// A process with an equal part knows the number of processes after its second note of use.
    fn before(&self) -> Duration {
        Duration::from_secs(if self.policy == "share" { 130 } else { 20 })
    }

    async fn run(self) -> Arc<Run> {
        fastrand::seed(7);
        let world = World::embedded().await.with(self.kind);
        world.slots(SLOTS, ALLOWED).await;
        let search = ShareName::new("search").unwrap();
        if self.has_shares {
            let whole = Limit::concurrent(Amount::from_tokens(ALLOWED), Cost::ONE).unwrap();
            let part = "0.5".parse().unwrap();
            let share = DeclaredShare { name: search.clone(), part, floor: None, background: false };
            let split = Split::new(whole, &[share]).unwrap();
            world.client().ops().apply_split(&dimension(SLOTS), &split).await.unwrap();
        }
        let (began, before) = (Instant::now(), self.before());
        let vendor = Mutex::new(Vendor { at_once: 0, changed: began, seen: Default::default() });
        let requests = (0..400).map(|_| AtomicU64::new(0)).collect();
        let table_again = Default::default();
        let run = Arc::new(Run { world, case: self, began, before, vendor, requests, table_again });
        let faults = Arc::downgrade(&run);
        run.world.dynamo.faults().draw(move |call| faults.upgrade().map(|run| run.fault(call)));
        let mut callers = JoinSet::new();
        for (process, count) in self.callers.into_iter().enumerate() {
            let client = run.world.client_with(|settings| {
                let settings = settings.on_unavailable(self.policy.parse().unwrap()).note_use(true);
                let settings = settings.renew_leases(true).lease_ttl(self.ttl);
                if self.has_shares && process % 2 == 0 { settings.share(search.clone()) } else { settings }
            });
            (0..count).for_each(|_| drop(callers.spawn(Arc::clone(&run).calls(client.clone()))));
        }
        while let Some(ended) = callers.join_next().await {
            ended.unwrap();
        }
        run.sees(|vendor| assert_eq!(vendor.at_once, 0));
        run
    }
}

impl Run {
    /// What the time is: before the outage, in it, or after it.
    fn part(&self) -> usize {
        let at = self.began.elapsed();
        usize::from(at >= self.before) + usize::from(at >= self.before + OUTAGE)
    }

    /// How long a caller rests now, on average.
    fn rest(&self) -> Option<Duration> {
        match self.part() {
            0 if self.began.elapsed() + BUSIER < self.before => self.case.rest.map(|_| IDLE_REST),
            0 => self.case.rest,
            _ => None,
        }
    }

    fn fault(&self, call: Call<'_>) -> Fault {
        let second = usize::try_from(self.began.elapsed().as_secs()).unwrap();
        self.requests[second].fetch_add(1, Ordering::Relaxed);
        let is_read = matches!(call.operation, Operation::GetItem | Operation::BatchGetItem);
        let is_first = self.began.elapsed() < self.before + Duration::from_millis(500);
        match self.case.broken {
            _ if self.part() != 1 => Fault::Delay(Duration::from_millis(5)),
            Broken::Writes if is_read => Fault::Delay(Duration::from_millis(5)),
            Broken::AppliesTheFirst if is_first => Fault::LoseReply,
            _ => Fault::Hang,
        }
    }

    fn normal(&self) -> Normal {
        let requests = |second: u64| self.requests[usize::try_from(second).unwrap()].load(Ordering::Relaxed);
        let (before, back) = (self.before.as_secs(), (self.before + OUTAGE).as_secs());
        let steady_until = if self.case.rest.is_some() { back + AFTER.as_secs() } else { before };
        Normal {
            table_first: self.table_again.lock().unwrap().expect("the table grants again"),
            requests: (back..back + 5).map(requests).max().unwrap(),
            steady: (steady_until - 10..steady_until).map(requests).sum::<u64>() / 10,
        }
    }

    fn sees<T>(&self, of: impl FnOnce(&mut Vendor) -> T) -> T {
        let mut vendor = self.vendor.lock().unwrap();
        let (part, at_once) = (self.part(), u32::try_from(vendor.at_once).unwrap());
        let changed = std::mem::replace(&mut vendor.changed, Instant::now());
        vendor.seen[part].busy += changed.elapsed() * at_once;
        of(&mut vendor)
    }

    /// Whether the vendor accepts a call.
    fn begins(&self) -> bool {
        let part = self.part();
        self.sees(|vendor| {
            let seen = &mut vendor.seen[part];
            seen.granted += 1;
            if vendor.at_once >= ALLOWED {
                seen.refused_by_vendor += 1;
                return false;
            }
            vendor.at_once += 1;
            seen.at_once_at_most = seen.at_once_at_most.max(vendor.at_once);
            true
        })
    }

    /// One caller: a call after the other, if it is granted.
    async fn calls(self: Arc<Self>, client: Client) {
        let end = self.before + OUTAGE + AFTER;
        let mut releases = JoinSet::new();
        while self.began.elapsed() < end {
            match client.acquire(SLOTS).await {
                Ok(Outcome::Granted(grant)) => {
                    if grant.basis() == Basis::Table && self.part() == 2 {
                        let since = self.began.elapsed() - self.before - OUTAGE;
                        self.table_again.lock().unwrap().get_or_insert(since);
                    }
                    if self.begins() {
                        sleep(self.case.hold * 9 / 10 + random_wait_up_to(self.case.hold / 5)).await;
                        self.sees(|vendor| vendor.at_once -= 1);
                    } else {
                        sleep(Duration::from_millis(200)).await;
                    }
                    // Nobody waits for the release: it takes seconds in an outage.
                    match fastrand::bool() {
                        true => drop(releases.spawn(async move { drop(grant.release().await) })),
                        false => drop(grant),
                    }
                    if let Some(rest) = self.rest() {
                        sleep(random_wait_up_to(rest * 2)).await;
                    }
                }
                _ => sleep(random_wait_up_to(Duration::from_millis(100))).await,
            }
        }
        while releases.join_next().await.is_some() {}
    }

    fn seen(&self) -> [Seen; 3] {
        self.vendor.lock().unwrap().seen
    }

    /// The used part of the slots during the outage, and after it, of a hundred.
    fn used(&self) -> [u128; 2] {
        [(1, OUTAGE), (2, AFTER)].map(|(part, length)| {
            self.seen()[part].busy.as_millis() * 100 / (length.as_millis() * u128::try_from(ALLOWED).unwrap())
        })
    }

    /// Nothing is left in the table, once the leases of the outage have ended.
    async fn all_is_back(&self) {
        sleep(2 * LEASE_TTL).await;
        let ops = self.world.client().ops();
        for _ in 0..2 {
            ops.sweep(SweepOptions::default()).await.unwrap();
        }
        assert_eq!(self.world.leases().await, 0);
        let (common, search) = match self.case.has_shares {
            true => ("10", Some("10")),
            false => ("20", None),
        };
        assert_eq!(self.world.free(SLOTS).await, common);
        if let Some(search) = search {
            assert_eq!(self.world.free(SEARCH).await, search);
        }
    }
}

#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn the_vendor_refuses_nothing(case: Case) -> Arc<Run> {
    let run = case.run().await;
    let [before, during, after] = run.seen();
    let (used, normal) = (run.used(), run.normal());
    println!(
        "{case:?}: before {before:?}, in the outage {during:?}, after {after:?}; used {used:?} %; {normal:?}"
    );
    let refused = [before, during, after].map(|seen| seen.refused_by_vendor);
    assert_eq!(refused, [0; 3], "{case:?}");
    assert!(normal.requests <= 2 * normal.steady, "{case:?}: {normal:?}");
    assert!(normal.table_first >= Duration::from_millis(750), "{case:?}: {normal:?}");
    let is_short = case.hold == CASE.hold;
    assert!(!is_short || normal.table_first <= Duration::from_millis(1_500), "{case:?}: {normal:?}");
    // Of slots that are free, ten processes leave what makes no whole slot each.
    let least = if case.rest.is_none() { 75 } else { 50 };
    assert!(!is_short || used[0] >= least && used[1] >= 85, "{case:?}: {used:?} %");
    run.all_is_back().await;
    run
}

#[tokio::test(start_paused = true)]
async fn even_processes_go_on_with_their_slots_and_the_vendor_refuses_nothing() {
    let cases = [("share:0.1", Kind::Inline), ("share", Kind::Rows)];
    for (policy, kind) in all_or_first(&cases) {
        let run = the_vendor_refuses_nothing(Case { policy, kind: *kind, ..CASE }).await;
        assert!(run.used()[0] >= 75, "{policy}, {kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_vendor_refuses_nothing_of_processes_with_uneven_demand() {
    let cases = [("share:0.1", Kind::Rows), ("share", Kind::Inline)];
    for (policy, kind) in all_or_first(&cases) {
        the_vendor_refuses_nothing(Case { policy, kind: *kind, callers: UNEVEN, ..CASE }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_vendor_refuses_nothing_of_longer_calls() {
    let cases = [("share:0.1", Kind::Inline), ("share", Kind::Rows)];
    for (policy, kind) in all_or_first(&cases) {
        let hold = Duration::from_secs(5);
        let run = the_vendor_refuses_nothing(Case { policy, kind: *kind, hold, ..CASE }).await;
        assert!(run.used()[0] >= 75, "{policy}, {kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_of_slots_has_parts_of_its_own() {
    let cases = [("share:0.1", Kind::Rows), ("share", Kind::Inline)];
    for (policy, kind) in all_or_first(&cases) {
        the_vendor_refuses_nothing(Case { policy, kind: *kind, has_shares: true, ..CASE }).await;
    }
}

/// Slots are free when the outage begins, fewer than half a minute before, and all callers ask from then on.
#[tokio::test(start_paused = true)]
async fn the_vendor_refuses_nothing_if_the_demand_rises_in_the_outage() {
    let cases =
        [("share", Kind::Rows, 1_500), ("share", Kind::Rows, 500), ("share:0.1", Kind::Inline, 1_000)];
    for (policy, kind, rest) in all_or_first(&cases) {
        let rest = Some(Duration::from_millis(*rest));
        the_vendor_refuses_nothing(Case { policy, kind: *kind, rest, ..CASE }).await;
    }
}

/// The last writes before the outage are applied, and nobody is told.
#[tokio::test(start_paused = true)]
async fn the_vendor_refuses_nothing_if_the_last_replies_are_lost() {
    let cases = [("share:0.1", Kind::Inline), ("share:0.1", Kind::Rows)];
    for (policy, kind) in all_or_first(&cases) {
        let broken = Broken::AppliesTheFirst;
        the_vendor_refuses_nothing(Case { policy, kind: *kind, broken, ..CASE }).await;
    }
}

/// The table's slots come and go by reads alone: each answered read ends an outage, and begins another.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn calls_go_on_if_only_writes_hang() {
    for kind in all_or_first(&[Kind::Rows, Kind::Inline]) {
        let case = Case { policy: "share:0.1", kind: *kind, broken: Broken::Writes, ..CASE };
        let run = case.run().await;
        println!("{case:?}: {:?}, used {:?} %, {:?}", run.seen(), run.used(), run.normal());
        let refused = run.seen().map(|seen| seen.refused_by_vendor);
        assert_eq!(refused, [0; 3], "{kind:?}");
        assert!(run.used()[0] >= 5, "{kind:?}: callers wait for their own requests");
        let normal = run.normal();
        assert!(normal.requests <= 2 * normal.steady, "{kind:?}: {normal:?}");
        run.all_is_back().await;
    }
}

/// Longer than a lease time, through the outage and after it.
#[tokio::test(start_paused = true)]
async fn the_vendor_refuses_nothing_beside_calls_that_outlast_leases() {
    let cases = [("share:0.1", Kind::Rows), ("share:0.1", Kind::Inline)];
    for (policy, kind) in all_or_first(&cases) {
        let (hold, ttl) = (Duration::from_secs(45), Duration::from_secs(20));
        the_vendor_refuses_nothing(Case { policy, kind: *kind, hold, ttl, ..CASE }).await;
    }
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn other_policies_do_with_slots_what_they_say() {
    for policy in all_or_first(&["allow", "error"]) {
        let case = Case { policy, kind: Kind::Inline, ..CASE };
        let run = case.run().await;
        let ([_, during, after], normal) = (run.seen(), run.normal());
        println!("{case:?}: in the outage {during:?}, after {after:?}; used {:?} %, {normal:?}", run.used());
        assert!(normal.requests <= 2 * normal.steady, "{case:?}: {normal:?}");
        match *policy {
            "allow" => assert!(during.refused_by_vendor > 1_000, "nobody counts: {during:?}"),
            _ => assert!(during.granted <= 60 && after.refused_by_vendor == 0, "{during:?}, {after:?}"),
        }
        run.all_is_back().await;
    }
}
