//! What a grant of a share costs: for callers that are alone in their processes, and for those that meet in
//! lanes. Each asks again as soon as it had its call, so that callers compete for every token.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, DeclaredShare, MOST_SHARES, Split, Timestamp};
use sluice_sdk::{Client, LimitError, Outcome, Request};
use sluice_testkit::{Meter, Operation};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::busy::{CHANGING, Product, shared_by};
use super::{RPM, name, share};
use crate::world::{TABLE, World, dimension, requests};

/// Requests a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    /// Also those whose replies were lost.
    applied: f64,
    failed: f64,
    reads: f64,
}

impl Paid {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(meter: &Meter, grants: usize) -> Self {
        let of = |operation| meter.of(operation).requests;
        let (failed, reads) = (meter.failed_writes(), of(Operation::GetItem) + of(Operation::BatchGetItem));
        let applied = meter.total().requests - reads - failed;
        let [applied, failed, reads] = [applied, failed, reads].map(|number| number as f64 / grants as f64);
        Self { applied, failed, reads }
    }

    pub(super) fn writes(self) -> f64 {
        self.applied + self.failed
    }
}

impl fmt::Display for Paid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied, failed, reads } = self;
        write!(f, "{applied:.2} applied writes, {failed:.2} failed writes, {reads:.2} reads")
    }
}

/// How a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It books its start.
    Slot,
    /// It asks, sleeps for the wait that its refusal tells, and asks again.
    AfterRefusal,
}

/// Callers that ask again as soon as they had their call, in processes of one or of several.
#[derive(Clone, Copy)]
struct Loops {
    processes: usize,
    callers_each: usize,
    waits: Waits,
    /// Those of the bucket: the products', or none.
    shares: &'static [Product],
    /// Which of the three products ask in each phase.
    phases: &'static [[bool; 3]],
}

/// A call: the process of its caller, when it was asked for, and when it started.
type Call = (usize, Timestamp, Timestamp);

struct Figures {
    paid: Paid,
    calls: Vec<Call>,
}

const PHASE: Duration = Duration::from_secs(10);
const ALL: &[[bool; 3]] = &[[true; 3]; 4];
/// A product that rests lends, and finds its part when it comes back.
const RESTING: &[[bool; 3]] = &[
    [true, true, true],
    [false, true, true],
    [true, false, true],
    [true, true, false],
    [false, false, true],
];

impl Loops {
    async fn run(self) -> Figures {
        let (dynamo, _) = shared_by(self.shares, 50, 7).await;
        let (calls, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let mut callers = JoinSet::new();
        for process in 0..self.processes {
            let product = process % CHANGING.len();
            let settings = Client::builder(TABLE).share(name(CHANGING[product].share)).note_use(false);
            let client = dynamo.client_with(settings);
            for _ in 0..self.callers_each {
                callers.spawn(self.asks(client.clone(), process, began, Arc::clone(&calls)));
            }
        }
        while let Some(ended) = callers.join_next().await {
            ended.unwrap();
        }
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        Figures { paid: Paid::of(dynamo.meter(), calls.len()), calls }
    }

    async fn asks(self, client: Client, process: usize, began: Instant, calls: Arc<Mutex<Vec<Call>>>) {
        let mut end = began;
        for asking in self.phases {
            end += PHASE;
            while asking[process % CHANGING.len()] && Instant::now() < end {
                let asked = client.now();
                let start = match self.waits {
                    Waits::Slot => {
                        let slot = client.slot(RPM).max_wait(Duration::from_secs(30));
                        slot.run(async |slot| Ok::<_, LimitError>(slot.start_at())).await.unwrap()
                    }
                    Waits::AfterRefusal => {
                        while let Outcome::RetryIn(retry) = client.acquire(RPM).await.unwrap() {
                            sleep(retry.wait()).await;
                        }
                        client.now()
                    }
                };
                calls.lock().unwrap().push((process, asked, start));
            }
            sleep_until(end).await;
        }
    }
}

impl Figures {
    /// The time that all but one in a hundred of the calls waited less than; and what it would be if each
    /// process gave its starts to its callers in the order in which they came.
    fn waits_as_given_and_in_order(&self) -> [Duration; 2] {
        let mut of_process: BTreeMap<usize, [Vec<Timestamp>; 2]> = BTreeMap::new();
        for (process, asked, start) in &self.calls {
            let [all_asked, starts] = of_process.entry(*process).or_default();
            all_asked.push(*asked);
            starts.push(*start);
        }
        let p99 = |mut waits: Vec<Duration>| {
            waits.sort();
            waits[waits.len() * 99 / 100]
        };
        let given = self.calls.iter().map(|(_, asked, start)| start.since(*asked)).collect();
        let mut in_order = Vec::new();
        for [mut asked, mut starts] in of_process.into_values() {
            asked.sort();
            starts.sort();
            in_order.extend(starts.iter().zip(&asked).map(|(start, asked)| start.since(*asked)));
        }
        [p99(given), p99(in_order)]
    }
}

#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn lone_and_in_lanes(callers: usize) {
    for (phases, what) in [(ALL, "all ask"), (RESTING, "some rest")] {
        let alone =
            Loops { processes: callers, callers_each: 1, waits: Waits::Slot, shares: &CHANGING, phases };
        let lanes = Loops { processes: 3, callers_each: callers / 3, ..alone };
        let (alone_paid, in_lanes) = (alone.run().await.paid, lanes.run().await);
        let waits = in_lanes.waits_as_given_and_in_order();
        let lanes_paid = in_lanes.paid;
        println!(
            "{callers} callers, {what}, alone: {alone_paid}; in lanes: {lanes_paid}, 99 in 100 wait less \
             than {waits:?} (as given, in order)"
        );
        assert!(alone_paid.writes() <= 1.5, "{what}: {alone_paid}");
        assert!(lanes_paid.writes() < alone_paid.writes(), "{what}, in lanes: {lanes_paid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_takes_one_and_a_half_writes_at_most_alone_and_fewer_in_lanes() {
    lone_and_in_lanes(18).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn a_grant_takes_one_and_a_half_writes_at_most_of_72_callers_too() {
    lone_and_in_lanes(72).await;
}

/// Callers that do not book come together when the wait is over that all of them were told, and one has the
/// token. So they are told different waits, and a read looks first.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn callers_that_sleep_after_refusals_make_one_and_a_half_writes_at_most() {
    let alone = Loops {
        processes: 18,
        callers_each: 1,
        waits: Waits::AfterRefusal,
        shares: &CHANGING,
        phases: &[[true; 3]; 2],
    };
    let alone = alone.run().await;
    let mut of_process = BTreeMap::<usize, usize>::new();
    alone.calls.iter().for_each(|(process, ..)| *of_process.entry(*process).or_default() += 1);
    println!("after refusals, alone: {}; calls of each process: {of_process:?}", alone.paid);
    assert!(alone.paid.writes() <= 1.5, "{}", alone.paid);
    // Twenty seconds, and the burst.
    assert!(alone.calls.len() >= 1_040, "{} of 1,050 calls", alone.calls.len());
    for product in 0..CHANGING.len() {
        let of_each: Vec<usize> =
            (product..18).step_by(CHANGING.len()).map(|process| of_process[&process]).collect();
        let (sum, least) = (of_each.iter().sum::<usize>(), of_each.iter().min().unwrap());
        assert!(least * 6 * 2 >= sum, "a process has half of an equal part: {of_each:?}");
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn callers_that_sleep_after_refusals_fail_less_with_shares_and_not_in_lanes() {
    let (shares, phases): (&'static [Product], _) = (&CHANGING, ALL);
    let alone = Loops { processes: 18, callers_each: 1, waits: Waits::AfterRefusal, shares, phases };
    let lanes = Loops { processes: 3, callers_each: 6, ..alone };
    let one_line = Loops { shares: &[], ..alone };
    let (alone, lanes) = (alone.run().await.paid, lanes.run().await.paid);
    let one_line = one_line.run().await.paid;
    println!("after refusals, alone: {alone}; in lanes: {lanes}; alone, without shares: {one_line}");
    assert!(alone.writes() <= 1.5 && alone.writes() <= one_line.writes() && lanes.writes() <= 1.1);
}

/// A write pays for its whole row, by the KB. Lines that have lent and been settled are as long as lines become
/// without a vendor's replies.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn a_call_of_a_bucket_with_all_the_shares_that_it_can_have_writes_two_units_at_most() {
    for has_floors in [false, true] {
        let units = units_with_all_shares(has_floors).await;
        println!(
            "{MOST_SHARES} shares, with floors {has_floors}: {units:?} units before they lend, and after"
        );
        assert!(units.iter().all(|units| *units <= 2), "{units:?}");
    }
}

/// Write units of a call: while lines are used by their own callers alone, and when all have lent.
async fn units_with_all_shares(has_floors: bool) -> [u64; 2] {
    let world = World::embedded().await;
    let names: Vec<String> = (1..=MOST_SHARES).map(|number| format!("product-{number:02}")).collect();
    let floor = has_floors.then_some(Amount::from_tokens(123));
    let of = |name: &String| DeclaredShare { floor, background: has_floors, ..share(name, "0.06") };
    let of_all: Vec<DeclaredShare> = names.iter().map(of).collect();
    let split = Split::new(requests(10_000, 60_000), &of_all).unwrap();
    world.client().ops().apply_split(&dimension(RPM), &split).await.unwrap();
    let calls = async |cost: i32| {
        for of in &names {
            world.pass(Duration::from_micros(1_234_567));
            let client = world.client_with(|settings| settings.share(name(of)));
            for _ in 0..2 {
                let request = Request::from(RPM).cost(RPM, Amount::from_tokens(cost));
                let Outcome::Granted(mut grant) = client.acquire(request).await.unwrap() else { continue };
                grant.settle(RPM, Amount::from_micros(1_234_567)).await.unwrap();
            }
        }
    };
    let mut units = [0; 2];
    // The second call of each share finds too little in its own line.
    for (units, cost) in units.iter_mut().zip([7, 350]) {
        calls(cost).await;
        world.dynamo.meter().reset();
        calls(cost).await;
        let used = world.dynamo.meter().of(Operation::UpdateItem);
        *units = used.write_units.div_ceil(used.requests);
    }
    units
}
