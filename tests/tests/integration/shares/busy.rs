//! Products that ask for calls of one bucket with shares, each more or less in each phase of a run: what each
//! gets, how much of the limit is used, and what it costs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, COMMON, Cost, DeclaredShare, Dimension, Limit, LimitType, Rate, Split, Timestamp};
use sluice_history::{Checker, Event, Granted, Header, Kind, Limit as Promise, Refused, Share, Verdict};
use sluice_sdk::{Client, LimitError};
use sluice_testkit::{DynamoProfile, EmbeddedDynamo, Fault, Operation, TestClock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::writes::Paid;
use super::{RPM, name, share};
use crate::world::TABLE;

/// Calls a second that the vendor allows.
pub(super) const ALLOWED: f64 = 50.0;

/// A product: its share with the part that it is guaranteed (`common`: callers that name no share); and in
/// each phase, how many times that it asks for.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) share: &'static str,
    pub(super) part: f64,
    is_background: bool,
    pub(super) factors: &'static [f64],
}

pub(super) const CHANGING: [Product; 3] = [
    product("search", 0.5, &[1.0, 0.0, 1.0, 30.0, 2.0, 1.0, 0.0, 0.0, 5.0, 1.0]),
    product("checkout", 0.3, &[0.0, 2.0, 1.0, 2.0, 30.0, 0.0, 2.0, 0.0, 2.0, 1.0]),
    product("batch", 0.1, &[30.0, 30.0, 1.0, 2.0, 2.0, 30.0, 30.0, 2.0, 0.0, 30.0]),
];

/// The demand of each goes from nothing to thirty times its share and back, and one asks alone in between.
pub(super) const SHARPER: [Product; 3] = [
    product("search", 0.5, &[1.0, 0.0, 30.0, 0.0, 2.0, 1.0, 0.0, 2.0, 5.0, 1.0]),
    product("checkout", 0.3, &[0.0, 2.0, 1.0, 2.0, 0.0, 30.0, 0.0, 2.0, 2.0, 1.0]),
    product("batch", 0.1, &[30.0, 30.0, 1.0, 2.0, 5.0, 30.0, 30.0, 30.0, 0.0, 30.0]),
];

/// The same beside callers that name no share, who have what no share has.
pub(super) const BESIDE_COMMON: [Product; 4] = [
    SHARPER[0],
    SHARPER[1],
    SHARPER[2],
    product(COMMON, 0.1, &[2.0, 0.0, 30.0, 0.0, 30.0, 0.0, 30.0, 30.0, 1.0, 5.0]),
];

impl Product {
    /// The share that its callers name.
    pub(super) fn named(&self) -> Option<&'static str> {
        (self.share != COMMON).then_some(self.share)
    }
}

const fn product(share: &'static str, part: f64, factors: &'static [f64]) -> Product {
    Product { share, part, is_background: false, factors }
}

/// One call that was made.
#[derive(Clone, Copy)]
struct Call {
    product: usize,
    /// The number of the caller's process among those of the product.
    process: usize,
    start: Timestamp,
    waited: Duration,
}

/// What callers were promised, asked for and got, for the checker that shares no code with the client.
type History = Arc<Mutex<Vec<Event>>>;

/// While a share's first caller is on its way, and beside writes that fail, so much time passes.
const REQUEST_MICROS: i64 = 500_000;

pub(super) struct Busy {
    pub(super) products: &'static [Product],
    pub(super) burst: i32,
    pub(super) processes: usize,
    pub(super) phase: Duration,
    pub(super) patience: Duration,
    pub(super) seed: u64,
}

/// What came of a run.
pub(super) struct Outcome {
    calls: Vec<Call>,
    began: Timestamp,
    /// For each product and phase.
    pub(super) asked: Vec<Vec<u64>>,
    pub(super) paid: Paid,
    pub(super) verdict: Verdict,
}

/// A modelled DynamoDB of which some requests fail, with a bucket that has a share for each product.
/// The faults and the callers' times come from `seed`.
pub(super) async fn shared_by(products: &[Product], burst: i32, seed: u64) -> (EmbeddedDynamo, Split) {
    fastrand::seed(seed);
    let clock = TestClock::new(Timestamp::from_secs(1_800_000_000));
    let dynamo = EmbeddedDynamo::with_clock(clock).unwrap();
    dynamo.create_table(TABLE).await.unwrap();
    let dynamo = dynamo.behind(&DynamoProfile::new(5));
    let rate = Rate::per(Amount::from_tokens(50), Duration::from_secs(1)).unwrap();
    let limit = Limit::rate(LimitType::Requests, Amount::from_tokens(burst), rate, Cost::ONE).unwrap();
    let shared = |product: &Product| {
        let share = share(product.share, &product.part.to_string());
        DeclaredShare { background: product.is_background, ..share }
    };
    let shares: Vec<_> = products.iter().filter(|product| product.named().is_some()).map(shared).collect();
    let split = Split::new(limit, &shares).unwrap();
    dynamo.client(TABLE).ops().apply_split(&Dimension::new(RPM).unwrap(), &split).await.unwrap();
    dynamo.faults().draw(|_| fault());
    dynamo.meter().reset();
    (dynamo, split)
}

fn fault() -> Option<Fault> {
    match fastrand::u32(..1_000) {
        0..5 => Some(Fault::LoseReply),
        5..10 => Some(Fault::throttled()),
        10..15 => Some(Fault::Delay(Duration::from_millis(300))),
        _ => None,
    }
}

/// Writes into the history what lost replies cost: the write was applied, and the client, which does not know
/// it, takes as much again. It counts as a caller's that left with a booked start. A loan takes nothing that
/// the share is guaranteed.
fn tell_what_is_lost(dynamo: &EmbeddedDynamo, products: &'static [Product], history: &History) {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&lost);
    dynamo.faults().draw(move |call| {
        let fault = fault();
        if call.operation == Operation::UpdateItem && matches!(fault, Some(Fault::LoseReply)) {
            bodies.lock().unwrap().push(call.body.to_vec());
        }
        fault
    });
    let (clock, history) = (dynamo.clock().clone(), Arc::clone(history));
    dynamo.faults().watch(move |answered| {
        let mut lost = lost.lock().unwrap();
        let Some(at) = lost.iter().position(|body| body == answered.call.body) else { return };
        lost.swap_remove(at);
        let (now, body) = (clock.now().micros(), String::from_utf8_lossy(answered.call.body).into_owned());
        if answered.status != 200 || !body.contains("- :cost") || body.contains("#lent") {
            return;
        }
        // A write of the common line names no share.
        let is_of = |product: &&Product| product.named().is_some_and(|share| body.contains(share));
        let of = products.iter().find(is_of).or_else(|| products.iter().find(|one| one.named().is_none()));
        let lost = of.map(|product| gone(product, now, now));
        history.lock().unwrap().extend(lost);
    });
}

impl Busy {
    pub(super) async fn run(&self) -> Outcome {
        let (dynamo, split) = shared_by(self.products, self.burst, self.seed).await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let history: History = Arc::new(Mutex::new(vec![promised(&split)]));
        tell_what_is_lost(&dynamo, self.products, &history);
        let began = dynamo.clock().now();
        let mut products = JoinSet::new();
        for (number, product) in self.products.iter().copied().enumerate() {
            let settings = || {
                let settings = Client::builder(TABLE).note_use(false);
                product.named().into_iter().fold(settings, |settings, share| settings.share(name(share)))
            };
            let each = self.processes / self.products.len();
            let clients = (0..each).map(|_| dynamo.client_with(settings())).collect();
            let (phase, patience) = (self.phase, self.patience);
            let told = (Arc::clone(&calls), Arc::clone(&history));
            products.spawn(async move {
                (number, demand(clients, (number, product), phase, patience, told).await)
            });
        }
        let mut asked = vec![Vec::new(); self.products.len()];
        while let Some(done) = products.join_next().await {
            let (product, of) = done.unwrap();
            asked[product] = of;
        }
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        let paid = Paid::of(dynamo.meter(), calls.len());
        let mut checker = Checker::new();
        checker.feed(Event::History(Header { request_micros: REQUEST_MICROS, ..Header::new(1) }));
        std::mem::take(&mut *history.lock().unwrap()).into_iter().for_each(|event| checker.feed(event));
        Outcome { calls, began, asked, paid, verdict: checker.finish() }
    }
}

/// The limit and its shares, as an event.
fn promised(split: &Split) -> Event {
    let of = |limit: &Limit| {
        let rate = sluice_history::pico_per_sec(&limit.refill_rate().to_string()).unwrap();
        (limit.capacity().micros(), rate)
    };
    let shares = split.shares().iter().map(|share| {
        let (capacity, rate) = of(&share.limit);
        Share::new(share.name.as_str(), capacity, rate)
    });
    let (capacity, rate) = of(split.whole());
    Event::Limit(Promise::new(RPM, Kind::Requests, capacity, rate, 0).with_shares(shares.collect()))
}

/// What came of one caller's wait.
fn told(product: &Product, client: &Client, asked_at: Timestamp, slot: Option<&sluice_sdk::Slot>) -> Event {
    let (now, number) = (client.now().micros(), fastrand::u64(..));
    let Some(slot) = slot else {
        return gone(product, asked_at.micros(), now);
    };
    let share = product.share;
    let mut granted = Granted::at(format!("{share}-{number}"), share, RPM, 1_000_000, now);
    (granted.asked_at_micros, granted.start_at_micros) = (asked_at.micros(), slot.start_at().micros());
    (granted.booked, granted.share) = (true, product.named().map(str::to_owned));
    granted.paid_from = slot.paid_from(RPM).map(str::to_owned);
    Event::Granted(granted)
}

/// A caller left without a call, and may have left a booked start behind.
fn gone(product: &Product, asked_at_micros: i64, at_micros: i64) -> Event {
    Event::Refused(Refused {
        process: product.share.to_owned(),
        dimensions: vec![RPM.to_owned()],
        asked_at_micros,
        at_micros,
        booked: true,
        share: product.named().map(str::to_owned),
        error: None,
    })
}

/// Calls that arrive at random, each for a process of the product, and give up after `patience`. Returns how
/// many in each phase.
async fn demand(
    clients: Vec<Client>,
    (number, product): (usize, Product),
    phase: Duration,
    patience: Duration,
    (calls, history): (Arc<Mutex<Vec<Call>>>, History),
) -> Vec<u64> {
    let mut end = Instant::now();
    let (mut running, mut asked) = (JoinSet::new(), Vec::new());
    for factor in product.factors {
        let mut next = end;
        end += phase;
        asked.push(0);
        let every = factor * product.part * ALLOWED;
        let pause = || {
            if every > 0.0 { Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / every) } else { phase }
        };
        loop {
            next += pause();
            if next >= end {
                break;
            }
            sleep_until(next).await;
            let process = fastrand::usize(..clients.len());
            let client = clients[process].clone();
            let (calls, history) = (Arc::clone(&calls), Arc::clone(&history));
            *asked.last_mut().unwrap() += 1;
            running.spawn(async move {
                let (came, asked_at) = (Instant::now(), client.now());
                let slot = client.slot(RPM).max_wait(patience);
                let call = async |slot: sluice_sdk::Slot| {
                    history.lock().unwrap().push(told(&product, &client, asked_at, Some(&slot)));
                    let (start, waited) = (slot.start_at(), came.elapsed());
                    calls.lock().unwrap().push(Call { product: number, process, start, waited });
                    Ok::<_, LimitError>(())
                };
                // A refusal tells a wait that is too long, and books nothing.
                if matches!(slot.run(call).await, Err(LimitError::TimedOut(_) | LimitError::Acquire(_))) {
                    history.lock().unwrap().push(told(&product, &client, asked_at, None));
                }
            });
            while running.try_join_next().is_some() {}
        }
        sleep_until(end).await;
    }
    while running.join_next().await.is_some() {}
    asked
}

#[allow(clippy::cast_precision_loss)]
impl Outcome {
    pub(super) fn in_phase(&self, product: Option<usize>, phase: usize, length: Duration) -> usize {
        let from = self.began.after(length * u32::try_from(phase).unwrap());
        let to = from.after(length);
        let is_in = |call: &&Call| {
            product.is_none_or(|product| call.product == product) && call.start >= from && call.start < to
        };
        self.calls.iter().filter(is_in).count()
    }

    /// The fewest calls of a product in a window of this length, of all that begin at a whole second in this
    /// part of the run.
    pub(super) fn fewest_in(&self, product: usize, part: [Duration; 2], length: Duration) -> Option<usize> {
        let starts: Vec<Timestamp> =
            self.calls.iter().filter(|call| call.product == product).map(|call| call.start).collect();
        let begins = (part[0].as_secs()..).map(Duration::from_secs).take_while(|at| *at + length <= part[1]);
        let of = |at: Duration| {
            let [from, to] = [self.began.after(at), self.began.after(at + length)];
            starts.iter().filter(|start| **start >= from && **start < to).count()
        };
        begins.map(of).min()
    }

    /// The checker of histories finds nothing.
    pub(super) fn kept(&self) {
        let violations: Vec<String> = self.verdict.violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    /// The fewest and the most calls that a process of a product had in a phase.
    pub(super) fn of_each_process(
        &self,
        product: usize,
        phase: usize,
        length: Duration,
        processes: usize,
    ) -> [usize; 2] {
        let from = self.began.after(length * u32::try_from(phase).unwrap());
        let to = from.after(length);
        let mut of_each = vec![0; processes];
        let is_in = |call: &&Call| call.product == product && call.start >= from && call.start < to;
        self.calls.iter().filter(is_in).for_each(|call| of_each[call.process] += 1);
        [of_each.iter().min(), of_each.iter().max()].map(|calls| *calls.unwrap())
    }

    /// The time that all but one in a hundred of a product's calls waited less than.
    fn wait_of(&self, product: usize) -> Duration {
        let mut waits: Vec<Duration> =
            self.calls.iter().filter(|call| call.product == product).map(|call| call.waited).collect();
        waits.sort();
        waits[waits.len() * 99 / 100]
    }

    /// The largest number of calls above what flows in, over all windows: the burst that the vendor saw.
    pub(super) fn burst(&self) -> f64 {
        let mut starts: Vec<f64> =
            self.calls.iter().map(|call| call.start.micros_since(self.began) as f64 / 1e6).collect();
        starts.sort_by(f64::total_cmp);
        // `number - rate * time` rises by one a call: the largest rise from a low, the call at the low
        // included.
        let heights = starts.iter().enumerate().map(|(number, start)| number as f64 - start * ALLOWED);
        let (mut low, mut most) = (f64::INFINITY, 0_f64);
        for height in heights {
            low = low.min(height);
            most = most.max(height - low + 1.0);
        }
        most
    }
}

/// Both ask for twice the limit together, the critical one for less than its share.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn critical_calls_wait_a_tenth_of_what_background_calls_wait() {
    const BOTH: [Product; 2] = [
        product("critical", 0.6, &[0.9]),
        Product { is_background: true, ..product("background", 0.1, &[14.6]) },
    ];
    let (phase, patience) = (Duration::from_secs(60), Duration::from_secs(30));
    let result = Busy { products: &BOTH, burst: 50, processes: 8, phase, patience, seed: 7 }.run().await;
    let (critical, background) = (result.wait_of(0), result.wait_of(1));
    println!("99 in 100 critical calls wait less than {critical:?}, background calls {background:?}");
    assert!(critical * 10 <= background, "{critical:?} and {background:?}");
    result.kept();
    let made = result.calls.iter().filter(|call| call.product == 0).count();
    assert_eq!(made, usize::try_from(result.asked[0][0]).unwrap(), "each critical call was made");
    assert!(result.burst() <= 50.1);
}
