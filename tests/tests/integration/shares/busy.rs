//! Products whose demand changes from nothing to thirty times their share and back: what each gets, how much of the limit is used,
//! and what it costs.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate, Timestamp};
use sluice_sdk::{Client, LimitError};
use sluice_testkit::{DynamoProfile, EmbeddedDynamo, Fault, TestClock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{name, share};
use crate::world::TABLE;

const RPM: &str = "openai#rpm";

/// Calls a second that the vendor allows.
const ALLOWED: f64 = 50.0;

/// What each product is guaranteed, as a part; and in each phase, how many times that it asks for.
const PRODUCTS: [(&str, &str, f64, [f64; 10]); 3] = [
    ("search", "0.5", 0.5, [1.0, 0.0, 1.0, 30.0, 2.0, 1.0, 0.0, 0.0, 5.0, 1.0]),
    ("checkout", "0.3", 0.3, [0.0, 2.0, 1.0, 2.0, 30.0, 0.0, 2.0, 0.0, 2.0, 1.0]),
    ("batch", "0.1", 0.1, [30.0, 30.0, 1.0, 2.0, 2.0, 30.0, 30.0, 2.0, 0.0, 30.0]),
];

/// One call that was made.
#[derive(Clone, Copy)]
struct Call {
    product: usize,
    start: Timestamp,
}

struct Busy {
    burst: i32,
    processes: usize,
    phase: Duration,
    faults: bool,
}

/// What came of a run.
struct Result {
    calls: Vec<Call>,
    began: Timestamp,
    asked: [[u64; 10]; 3],
    writes: f64,
    failed: f64,
}

impl Busy {
    async fn run(&self) -> Result {
        fastrand::seed(7);
        let clock = TestClock::new(Timestamp::from_secs(1_800_000_000));
        let dynamo = EmbeddedDynamo::with_clock(clock).unwrap();
        dynamo.create_table(TABLE).await.unwrap();
        let dynamo = dynamo.behind(&DynamoProfile::new(5));
        let rate = Rate::per(Amount::from_tokens(50), Duration::from_secs(1)).unwrap();
        let limit = Limit::rate(LimitType::Requests, Amount::from_tokens(self.burst), rate, Cost::ONE).unwrap();
        let shares: Vec<_> = PRODUCTS.iter().map(|(name, part, ..)| share(name, part)).collect();
        let split = sluice_core::Split::new(limit, &shares).unwrap();
        dynamo.client(TABLE).ops().apply_split(&Dimension::new(RPM).unwrap(), &split).await.unwrap();
        if self.faults {
            dynamo.faults().draw(|_| match fastrand::u32(..1_000) {
                0..5 => Some(Fault::LoseReply),
                5..10 => Some(Fault::throttled()),
                10..15 => Some(Fault::Delay(Duration::from_millis(300))),
                _ => None,
            });
        }
        dynamo.meter().reset();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let began = dynamo.clock().now();
        let mut products = JoinSet::new();
        for (product, (share, .., factors)) in PRODUCTS.iter().enumerate() {
            let settings = || Client::builder(TABLE).share(name(share)).note_use(false);
            let clients = (0..self.processes / 3).map(|_| dynamo.client_with(settings())).collect();
            let part = PRODUCTS[product].2;
            products.spawn(demand(clients, product, part, *factors, self.phase, Arc::clone(&calls)));
        }
        let mut asked = [[0; 10]; 3];
        while let Some(done) = products.join_next().await {
            let (product, of) = done.unwrap();
            asked[product] = of;
        }
        let usage = dynamo.meter().total();
        let failed = dynamo.meter().failed_writes();
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        #[allow(clippy::cast_precision_loss)]
        Result { calls, began, asked, writes: usage.requests as f64, failed: failed as f64 }
    }
}

/// Calls that arrive at random, each for a process of the product, and give up after five seconds.
async fn demand(
    clients: Vec<Client>,
    product: usize,
    part: f64,
    factors: [f64; 10],
    phase: Duration,
    calls: Arc<Mutex<Vec<Call>>>,
) -> (usize, [u64; 10]) {
    let began = Instant::now();
    let (mut running, mut asked) = (JoinSet::new(), [0; 10]);
    for (number, factor) in factors.into_iter().enumerate() {
        let end = began + phase * (u32::try_from(number).unwrap() + 1);
        if factor == 0.0 {
            sleep_until(end).await;
            continue;
        }
        let mut next = Instant::now();
        while next < end {
            let client = clients[fastrand::usize(..clients.len())].clone();
            let calls = Arc::clone(&calls);
            asked[number] += 1;
            running.spawn(async move {
                let slot = client.slot(RPM).max_wait(Duration::from_secs(5));
                let call = async |slot: sluice_sdk::Slot| {
                    calls.lock().unwrap().push(Call { product, start: slot.start_at() });
                    Ok::<_, LimitError>(())
                };
                let _ = slot.run(call).await;
            });
            while running.try_join_next().is_some() {}
            next += Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / (factor * part * ALLOWED));
            sleep_until(next).await;
        }
    }
    while running.join_next().await.is_some() {}
    (product, asked)
}

#[allow(clippy::cast_precision_loss)]
impl Result {
    fn in_phase(&self, product: Option<usize>, phase: usize, length: Duration) -> usize {
        let from = self.began.after(length * u32::try_from(phase).unwrap());
        let to = from.after(length);
        let is_in = |call: &&Call| product.is_none_or(|product| call.product == product) && call.start >= from && call.start < to;
        self.calls.iter().filter(is_in).count()
    }

    /// The largest number of calls above what flows in, over all windows: the burst that the vendor saw.
    fn burst(&self) -> f64 {
        let mut starts: Vec<f64> = self.calls.iter().map(|call| call.start.micros_since(self.began) as f64 / 1e6).collect();
        starts.sort_by(f64::total_cmp);
        // `number - rate * time` rises by one a call: the largest rise from a low, the call at the low included.
        let heights = starts.iter().enumerate().map(|(number, start)| number as f64 - start * ALLOWED);
        let (mut low, mut most) = (f64::INFINITY, 0_f64);
        for height in heights {
            low = low.min(height);
            most = most.max(height - low + 1.0);
        }
        most
    }
}

#[allow(clippy::cast_precision_loss, clippy::print_stdout)]
async fn judged(busy: Busy, least_used: f64) {
    let result = busy.run().await;
    let length = busy.phase.as_secs_f64();
    let mut text = String::new();
    let mut worst = f64::INFINITY;
    let mut used = f64::INFINITY;
    for phase in 0..10 {
        write!(text, "phase {phase}:").unwrap();
        let mut demand = 0.0;
        for (product, (share, _, part, factors)) in PRODUCTS.iter().enumerate() {
            let promised = part * ALLOWED * length;
            let (got, asked) = (result.in_phase(Some(product), phase, busy.phase) as f64, result.asked[product][phase] as f64);
            demand += factors[phase] * part;
            write!(text, "  {share} asked {asked:.0} got {got:.0} of {promised:.0}").unwrap();
            if factors[phase] >= 2.0 {
                worst = worst.min((got + 1.0) / promised);
            }
        }
        let all = result.in_phase(None, phase, busy.phase) as f64 / (ALLOWED * length);
        writeln!(text, "  used {:.1} %", all * 100.0).unwrap();
        if demand >= 1.2 {
            used = used.min(all);
        }
    }
    let writes = result.writes / result.calls.len() as f64;
    let failed = result.failed / result.calls.len() as f64;
    println!("{text}{} processes, burst {}: worst guarantee {:.1} %, least used {:.1} %, {writes:.2} requests and {failed:.2} failed writes a call, burst seen {:.1}",
        busy.processes, busy.burst, worst * 100.0, used * 100.0, result.burst());
    // Two clocks' errors add to a burst; these clocks are exact, and a start is told in microseconds.
    assert!(result.burst() <= f64::from(busy.burst) + 0.1, "the vendor saw a burst of {}", result.burst());
    assert!(worst >= 0.98, "a product got {worst} of what it was promised");
    assert!(used >= least_used, "{used} of the limit was used");
}

#[tokio::test(start_paused = true)]
async fn each_product_gets_its_guarantee_and_the_rest_is_used() {
    let phase = Duration::from_secs(12);
    judged(Busy { burst: 50, processes: 18, phase, faults: true }, 0.99).await;
}

/// Ten minutes, with the figures: `cargo nextest run -p sluice-tests shares::busy --run-ignored all --no-capture`.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes"]
async fn ten_minutes_of_each() {
    let phase = Duration::from_secs(60);
    for (burst, processes, least) in [(50, 18, 0.99), (50, 72, 0.99), (20, 18, 0.97)] {
        judged(Busy { burst, processes, phase, faults: true }, least).await;
    }
    sleep(Duration::ZERO).await;
}
