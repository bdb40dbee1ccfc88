//! A crowd at one concurrency bucket: 64 processes of one caller each, over the modelled DynamoDB.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, Cost, Dimension, Limit, Timestamp};
use sluice_sdk::{Client, LimitError};
use sluice_testkit::yardstick::{Reference, TakeResult};
use sluice_testkit::{DynamoProfile, EmbeddedDynamo, Fault, Operation, TestClock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{TABLE, all_or_first, take};

const SLOTS: &str = "elevenlabs#concurrent";
const PROCESSES: usize = 64;
/// Until every process has met the others, at least.
const WARM_UP: Duration = Duration::from_secs(5);
/// Until releases that meet a conflict for longer than their callers wait are done.
const RELEASED: Duration = Duration::from_secs(10);

/// Who takes the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Sluice(Kind),
    /// The algorithm that Sluice was described with.
    Reference,
    /// The same, and its transactions never meet: each waits for a turn that costs nothing.
    ReferenceInTurns,
}

/// One case: how many slots, and how long each is held.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    who: Who,
    slots: i32,
    hold: Duration,
    warm_up: Duration,
    measured: Duration,
    seed: u64,
}

/// A caller that asked, and when it had its slot.
#[derive(Clone, Copy, Debug)]
struct Served {
    process: usize,
    asked: Instant,
    began: Instant,
}

/// What came of it.
#[derive(Debug, Default)]
struct Figures {
    grants_a_second: f64,
    failed_writes: f64,
    write_units: f64,
    read_units: f64,
    /// The part of the slots that was free while somebody waited.
    idle: f64,
    /// The largest difference of a process's mean wait from what it would be if slots went to who came first.
    unfair: f64,
    /// The 99th percentile of the waits, as a multiple of the one in the order of coming.
    late: f64,
    /// Slots that nobody holds at the end, and that were not given back.
    not_given_back: f64,
    /// The fewest slots that a process had.
    least: usize,
}

#[derive(Clone)]
enum Process {
    Sluice(Client),
    Reference(Reference, Option<Arc<tokio::sync::Mutex<()>>>),
}

type Log = Arc<Mutex<Vec<Served>>>;

impl Process {
    /// Takes a slot, holds it, gives it back, and again, until `end`.
    async fn work(self, number: usize, hold: Duration, end: Instant, log: Log) {
        // If all asked at one instant, they would be served in the order of their numbers at best.
        sleep(hold * u32::try_from(number).unwrap() / u32::try_from(PROCESSES).unwrap()).await;
        while Instant::now() < end {
            let asked = Instant::now();
            let served = |log: &Log| {
                log.lock().unwrap().push(Served { process: number, asked, began: Instant::now() });
            };
            match &self {
                Self::Sluice(client) => {
                    let slot = client.slot(SLOTS).timeout(Duration::from_secs(900));
                    let ran = slot.run(async |_| {
                        served(&log);
                        sleep(hold).await;
                        Ok::<_, LimitError>(())
                    });
                    ran.await.unwrap();
                }
                Self::Reference(reference, turns) => {
                    let leases = loop {
                        let turn = match turns {
                            Some(turns) => Some(turns.lock().await),
                            None => None,
                        };
                        match reference.acquire().await.unwrap() {
                            TakeResult::Granted { held, .. } => break held,
                            TakeResult::Refused { wait } => {
                                drop(turn);
                                sleep(wait).await;
                            }
                            TakeResult::GaveUp => sleep(Duration::from_millis(1)).await,
                        }
                    };
                    served(&log);
                    sleep(hold).await;
                    let turn = match turns {
                        Some(turns) => Some(turns.lock().await),
                        None => None,
                    };
                    // What it fails to give back is counted at the end.
                    let _ = reference.release(leases).await;
                    drop(turn);
                }
            }
        }
    }
}

impl Crowd {
    async fn run(self) -> Figures {
        fastrand::seed(self.seed);
        let clock = TestClock::new(Timestamp::from_secs(1_800_000_000));
        let dynamo = EmbeddedDynamo::with_clock(clock).unwrap();
        dynamo.create_table(TABLE).await.unwrap();
        dynamo.faults().always(Operation::TransactWriteItems, Fault::NewToken);
        let limit = Limit::concurrent(Amount::from_tokens(self.slots), Cost::ONE).unwrap();
        dynamo.client(TABLE).ops().apply_limit(&Dimension::new(SLOTS).unwrap(), &limit).await.unwrap();
        let raw = dynamo.clone();
        let dynamo = dynamo.behind(&DynamoProfile::new(5));
        let turns = (self.who == Who::ReferenceInTurns).then(Arc::default);
        let log = Log::default();
        let end = Instant::now() + self.warm_up + self.measured;
        let mut callers = JoinSet::new();
        let mut clients = Vec::new();
        for number in 0..PROCESSES {
            let process = match self.who {
                Who::Sluice(kind) => {
                    let settings = Client::builder(TABLE).leases(kind.leases()).note_use(false);
                    let client = dynamo.client_with(settings);
                    clients.push(client.clone());
                    Process::Sluice(client)
                }
                Who::Reference | Who::ReferenceInTurns => {
                    let (dynamo, table) = (dynamo.dynamodb(), TABLE.to_owned());
                    let clock = raw.clock().off_by(0);
                    Process::Reference(
                        Reference { dynamo, table, dimensions: vec![(SLOTS.into(), 1.0)], clock },
                        turns.clone(),
                    )
                }
            };
            callers.spawn(process.work(number, self.hold, end, Arc::clone(&log)));
        }
        sleep(self.warm_up).await;
        dynamo.meter().reset();
        let began = Instant::now();
        let (mut free, mut looks) = (0.0, 0.0);
        while Instant::now() < end {
            sleep((self.hold / 500).max(Duration::from_millis(1))).await;
            free += free_slots(&raw);
            looks += 1.0;
        }
        let (failed, usage) = (dynamo.meter().failed_writes(), dynamo.meter().total());
        while callers.join_next().await.is_some() {}
        sleep(RELEASED).await;
        let free_at_the_end = free_slots(&raw);
        let mut served = std::mem::take(&mut *log.lock().unwrap());
        served.retain(|served| served.began >= began && served.began <= end);
        #[allow(clippy::cast_precision_loss)]
        let grants = served.len() as f64;
        let (unfair, late) = order(&served);
        #[allow(clippy::cast_precision_loss)]
        Figures {
            grants_a_second: grants / self.measured.as_secs_f64(),
            failed_writes: failed as f64 / grants,
            write_units: usage.write_units as f64 / grants,
            read_units: usage.read_units / grants,
            idle: free / looks / f64::from(self.slots),
            unfair,
            late,
            not_given_back: f64::from(self.slots) - free_at_the_end,
            least: (0..PROCESSES)
                .map(|process| served.iter().filter(|served| served.process == process).count())
                .min()
                .unwrap_or_default(),
        }
    }
}

fn free_slots(dynamo: &EmbeddedDynamo) -> f64 {
    let row = dynamo.row(TABLE, SLOTS).unwrap().unwrap();
    row["tokens"]["N"].as_str().unwrap().parse().unwrap()
}

/// How far the waits are from those in which the same starts go to the callers in the order of coming.
fn order(served: &[Served]) -> (f64, f64) {
    let mut asked: Vec<_> = served.iter().map(|served| (served.asked, served.process)).collect();
    asked.sort_unstable();
    let mut began: Vec<_> = served.iter().map(|served| served.began).collect();
    began.sort_unstable();
    let (mut own, mut fair) = (vec![Vec::new(); PROCESSES], vec![Vec::new(); PROCESSES]);
    for one in served {
        own[one.process].push((one.began - one.asked).as_secs_f64());
    }
    for ((asked, process), began) in asked.iter().zip(&began) {
        fair[*process].push(began.saturating_duration_since(*asked).as_secs_f64());
    }
    #[allow(clippy::cast_precision_loss)]
    let mean = |waits: &Vec<f64>| waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    let all: Vec<f64> = fair.iter().flatten().copied().collect();
    let usual = mean(&all).max(0.001);
    let unfair =
        own.iter().zip(&fair).map(|(own, fair)| (mean(own) - mean(fair)).abs() / usual).fold(0.0, f64::max);
    let p99 = |waits: &[Vec<f64>]| {
        let mut waits: Vec<f64> = waits.iter().flatten().copied().collect();
        waits.sort_unstable_by(f64::total_cmp);
        waits.get(waits.len() * 99 / 100).copied().unwrap_or_default()
    };
    (unfair, p99(&own) / p99(&fair).max(0.001))
}

const CASES: [(i32, u64, u64); 6] =
    [(10, 5, 10), (100, 5, 60), (10, 500, 30), (100, 500, 30), (10, 5_000, 600), (100, 5_000, 60)];

/// One and a half rounds, in which each process has a slot once.
fn warm_up(slots: i32, hold: Duration) -> Duration {
    let rounds = 1.5 * PROCESSES as f64 / f64::from(slots);
    WARM_UP.max(hold.mul_f64(rounds))
}

/// Prints what this one achieves in a case.
#[allow(clippy::print_stdout)]
async fn measure(who: Who, seed: u64, (slots, hold, measured): (i32, Duration, Duration)) -> Figures {
    let warm_up = warm_up(slots, hold);
    let figures = Crowd { who, slots, hold, warm_up, measured, seed }.run().await;
    println!(
        "{slots:>3} slots held {:>4} ms, {:<16} {:>6.2}/s, failed {:>5.2}, units {:>5.1} w {:>5.1} r, \
         idle {:>5.1} %, process off by {:>3.0} %, p99 x {:.2}, not given back {}",
        hold.as_millis(),
        format!("{who:?}").replace("Sluice", ""),
        figures.grants_a_second,
        figures.failed_writes,
        figures.write_units,
        figures.read_units,
        figures.idle * 100.0,
        figures.unfair * 100.0,
        figures.late,
        figures.not_given_back,
    );
    figures
}

/// Beside the reference, and the reference whose transactions never meet: 15 to 30 grants a second each, or
/// all of the ten slots that are held for five seconds.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn crowds_are_measured_beside_the_reference() {
    for (slots, hold_ms, secs) in CASES {
        let case = (slots, Duration::from_millis(hold_ms), Duration::from_secs(secs));
        let mut most = 0.0_f64;
        for who in [Who::Reference, Who::ReferenceInTurns] {
            let figures = measure(who, 7, case).await;
            let least = if hold_ms > 1_000 { 1.0 } else { 10.0 };
            assert!((least..=40.0).contains(&figures.grants_a_second), "{figures:?}");
            most = most.max(figures.grants_a_second);
        }
        // Slots that are held for five seconds: nearly all that is possible is granted by each.
        let is_all = (slots, hold_ms) == (10, 5_000) || (slots, hold_ms) == (100, 5_000);
        let times = if hold_ms < 100 {
            2.0
        } else if is_all {
            0.99
        } else {
            1.0
        };
        for who in [Who::Sluice(Kind::Rows), Who::Sluice(Kind::Inline)] {
            for seed in [7, 1] {
                let figures = measure(who, seed, case).await;
                assert!(figures.grants_a_second >= times * most, "{who:?} and {most}: {figures:?}");
                judge(slots, case.1, &figures);
            }
        }
    }
}

fn judge(slots: i32, hold: Duration, figures: &Figures) {
    let (are_free, is_short) = (slots > i32::try_from(PROCESSES).unwrap(), hold < Duration::from_millis(100));
    assert!(figures.failed_writes <= 3.0 && figures.not_given_back == 0.0, "{figures:?}");
    // Who still waits at the end is in none of the waits.
    assert!(figures.least > 0, "a process had no slot: {figures:?}");
    if is_short {
        assert!(figures.grants_a_second >= 400.0, "{figures:?}");
        // Where slots are free, the row is what all wait for: chance decides who comes next.
        let (unfair, late) = if are_free { (0.2, 6.0) } else { (0.1, 1.5) };
        assert!(figures.unfair <= unfair && figures.late <= late, "{figures:?}");
    } else if !are_free {
        let most_unfair = if hold < Duration::from_secs(1) { 0.05 } else { 0.2 };
        assert!(figures.idle <= 0.02 && figures.late <= 1.2, "{figures:?}");
        assert!(figures.unfair <= most_unfair, "{figures:?}");
    } else {
        // More slots than callers: of the 128 a second that 64 calls of 500 ms can be, or 12.8 of 5 s.
        let most = PROCESSES as f64 / hold.as_secs_f64();
        assert!(figures.grants_a_second >= 0.8 * most, "{figures:?}");
    }
}

/// Both kinds of lease, at slots that all wait for: more than twice the reference (18 a second, in
/// `crowds_are_measured_beside_the_reference`), in the order of coming, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_crowd_is_served_in_order_and_near_what_the_row_can_do() {
    for kind in all_or_first(&[Kind::Inline, Kind::Rows]).iter().copied() {
        let (hold, short) = (Duration::from_millis(5), Duration::from_secs(2));
        let crowd =
            Crowd { who: Who::Sluice(kind), slots: 10, hold, warm_up: short, measured: short, seed: 7 };
        let figures = crowd.run().await;
        assert!(figures.grants_a_second >= 300.0 && figures.failed_writes <= 3.0, "{kind:?}: {figures:?}");
        // A few seconds of a crowd: the long measurement is closer, and without an order it is 4 to 6.
        assert!(figures.unfair <= 0.3 && figures.late <= 2.0, "{kind:?}: {figures:?}");
        assert!(figures.not_given_back == 0.0 && figures.least > 0, "{kind:?}: {figures:?}");
    }
}

/// Slots that are held long are not idle for long.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_is_soon_taken() {
    let (hold, measured) = (Duration::from_millis(500), Duration::from_secs(8));
    let crowd = Crowd { who: Who::Sluice(Kind::Rows), slots: 10, hold, warm_up: WARM_UP, measured, seed: 7 };
    let figures = crowd.run().await;
    assert!(figures.idle <= 0.02 && figures.failed_writes <= 3.0 && figures.late <= 2.0, "{figures:?}");
}

/// What was seen of the pace before the callers were away for two seconds, in which nobody was served, is not
/// spread over that time: those far behind would look once in half a second, and slots would be free
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_crowd_that_comes_again_is_served_as_fast_as_before() {
    fastrand::seed(7);
    let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_800_000_000))).unwrap();
    dynamo.create_table(TABLE).await.unwrap();
    let limit = Limit::concurrent(Amount::from_tokens(10), Cost::ONE).unwrap();
    dynamo.client(TABLE).ops().apply_limit(&Dimension::new(SLOTS).unwrap(), &limit).await.unwrap();
    let dynamo = dynamo.behind(&DynamoProfile::new(5));
    let client = |_| dynamo.client_with(Client::builder(TABLE).leases(Kind::Inline.leases()));
    let clients: Vec<Client> = (0..PROCESSES).map(client).collect();
    let served_in = async |time: Duration| {
        let (log, end, mut callers) = (Log::default(), Instant::now() + time, JoinSet::new());
        for (number, client) in clients.iter().enumerate() {
            let process = Process::Sluice(client.clone());
            callers.spawn(process.work(number, Duration::from_millis(5), end, Arc::clone(&log)));
        }
        callers.join_all().await;
        let log = log.lock().unwrap();
        log.iter().filter(|served| served.began <= end).count()
    };
    served_in(Duration::from_millis(50)).await;
    sleep(Duration::from_secs(2)).await;
    // 189, if the pace counts the time away.
    let served = served_in(Duration::from_secs(1)).await;
    assert!(served >= 400, "{served}");
}

/// A row takes 1,000 writes a second, whoever sends them: to ask again soon is to be rejected again. What
/// meets a transaction goes through some milliseconds later.
#[tokio::test(start_paused = true)]
async fn a_take_that_is_throttled_pauses_longer_than_one_that_met_a_transaction() {
    let mut pauses = Vec::new();
    for fault in [Fault::conflict(), Fault::throttled()] {
        fastrand::seed(7);
        let world = Kind::Inline.with_slots(SLOTS, 50).await;
        let (client, mut held) = (world.client(), Vec::new());
        let began = Instant::now();
        for _ in 0..40 {
            world.dynamo.faults().next(Operation::UpdateItem, fault.clone());
            held.push(take(&client, SLOTS).await);
        }
        pauses.push(began.elapsed() / 40);
    }
    // 25 and 100 ms at most.
    assert!(pauses[0] <= Duration::from_millis(25), "{pauses:?}");
    assert!(pauses[1] >= Duration::from_millis(35), "{pauses:?}");
}
