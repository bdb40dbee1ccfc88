//! Two minutes of callers who ask for twice of what there is, in virtual time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use sluice_sdk::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{World, settle};

const RPM: &str = "openai#rpm";
const CALLERS: u64 = 50;
/// Ten calls a second.
const CALLS: i32 = 10;
const MINUTES: Duration = Duration::from_secs(120);

/// A call that was begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Its place among those that asked.
    asked: u64,
    booked_micros: i64,
    begun_micros: i64,
}

#[derive(Debug, Default)]
struct Log {
    asked: u64,
    begun: Vec<Begun>,
    cancelled: u64,
}

/// Asks again and again: fifty of them, one call each in two and a half seconds where none has to wait, would
/// be twenty a second.
async fn caller(world: Rc<World>, client: Client, number: u64, cancels: bool, log: Rc<RefCell<Log>>) {
    let end = Instant::now() + MINUTES;
    let mut random = fastrand::Rng::with_seed(number);
    sleep(Duration::from_millis(random.u64(0..2_500))).await;
    while Instant::now() < end {
        let asked = {
            let mut log = log.borrow_mut();
            log.asked += 1;
            log.asked
        };
        let call = async |slot: sluice_sdk::Slot| {
            let (booked_micros, begun_micros) =
                (slot.start_at().micros(), world.dynamo.clock().now().micros());
            log.borrow_mut().begun.push(Begun { asked, booked_micros, begun_micros });
            Ok::<_, sluice_sdk::LimitError>(())
        };
        let slot = client.slot(RPM).timeout(Duration::from_secs(60)).run(call);
        // A fifth go away at some time of their wait.
        let patience = Duration::from_millis(random.u64(1..2_400));
        if cancels && random.u64(0..5) == 0 {
            match timeout(patience, slot).await {
                Ok(called) => called.unwrap(),
                Err(_) => log.borrow_mut().cancelled += 1,
            }
        } else {
            slot.await.unwrap();
        }
        sleep(Duration::from_millis(2_500)).await;
    }
}

/// What fifty callers of `processes` did in two minutes, and how many calls there were tokens for.
async fn run(processes: usize, cancels: bool) -> (Log, i64) {
    let world = Rc::new(World::with_rate(RPM, CALLS, 1).await.distant());
    let clients: Vec<Client> = (0..processes).map(|_| world.client()).collect();
    let log = Rc::new(RefCell::new(Log::default()));
    let began = world.dynamo.clock().now();
    let tasks = tokio::task::LocalSet::new();
    for number in 0..CALLERS {
        let client = clients[usize::try_from(number).unwrap() % processes].clone();
        tasks.spawn_local(caller(Rc::clone(&world), client, number, cancels, Rc::clone(&log)));
    }
    tasks.await;
    settle().await;
    let there = i64::from(CALLS) + i64::from(CALLS) * 120;
    // Nothing is lost: a second after the last start the bucket is full again.
    sleep(Duration::from_secs(8)).await;
    world.dynamo.faults().clear();
    assert_eq!(world.level(RPM).await, CALLS.to_string());
    let mut log = log.take();
    let end = began.after(MINUTES).micros();
    log.begun.retain(|begun| begun.begun_micros <= end);
    (log, there)
}

fn check(log: &Log, there: i64) {
    let starts = |log: &Log| log.begun.iter().map(|begun| begun.booked_micros).collect::<Vec<_>>();
    assert!(starts(log).is_sorted(), "starts are begun in the order in which they were booked");
    let late = log.begun.iter().map(|begun| begun.begun_micros - begun.booked_micros).max().unwrap();
    assert!(late <= 50_000, "{late} us past its booked time");
    let used = i64::try_from(log.begun.len()).unwrap();
    assert!(used <= there && used * 100 >= there * 97, "{used} of {there}");
    // The bound: in no window more than what it refills, and the burst.
    for (first, begun) in log.begun.iter().enumerate() {
        let in_a_second =
            log.begun[first..].iter().filter(|next| next.begun_micros < begun.begun_micros + 1_000_000);
        assert!(in_a_second.count() <= 20);
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_callers_of_one_process_at_twice_the_limit_start_in_the_order_of_asking() {
    let (log, there) = run(1, false).await;
    check(&log, there);
    assert!(log.begun.is_sorted_by_key(|begun| begun.asked));
}

#[tokio::test(start_paused = true)]
async fn a_fifth_that_goes_away_on_the_way_loses_nothing() {
    let (log, there) = run(1, true).await;
    check(&log, there);
    let share = log.cancelled * 100 / log.asked;
    assert!((12..=25).contains(&share), "{share} % went away");
    let starts: BTreeSet<i64> = log.begun.iter().map(|begun| begun.booked_micros).collect();
    assert!(starts.len() + 20 >= log.begun.len(), "what one left, one other takes over");
}

#[tokio::test(start_paused = true)]
async fn five_processes_at_twice_the_limit_keep_one_line() {
    let (log, there) = run(5, false).await;
    check(&log, there);
}

/// A start that is left behind others' bookings can be taken over within its process alone: with more
/// processes more is lost (`docs/semantics.md`, *Booked starts*).
#[tokio::test(start_paused = true)]
async fn a_fifth_that_goes_away_on_the_way_loses_little_between_two_processes() {
    let (log, there) = run(2, true).await;
    check(&log, there);
    let share = log.cancelled * 100 / log.asked;
    assert!((12..=25).contains(&share), "{share} % went away");
}
