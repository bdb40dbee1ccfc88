//! The wait that a refusal tells is exact: a caller that is alone on its bucket, and comes back after it, is
//! granted.
//!
//! One process asks for tokens of a bucket that nobody else asks for, until it is refused; it comes back
//! after exactly the wait that it was told. Not judged is a wait before which a request of the process met a
//! fault (the tokens may have been taken twice, as late as that), and counted apart one that is not over by
//! the process's own time: replies corrected it backwards meanwhile, or its clock was set.
//!
//! While it waits it may ask for the same tokens together with others that are there. It is refused, and what
//! it took of the others is back soon, unless a request of the process met a fault, time jumped, or its
//! machine's clock was set or stood. Or it books a start and gives it up before it comes: what it booked is
//! back as soon, under the same conditions.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use sluice_core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_sdk::{LimitError, Outcome, Request, RetryIn, RetryReason, Slot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::conditions::stream;
use crate::liveness::{Public, Stopwatch};
use crate::process::{Process, Role};
use crate::row::{BucketRow, Micros};
use crate::times;
use crate::universe::Universe;

const TOKENS: &str = "lone#rpm";

/// What it takes beside, of a bucket that has enough.
const OTHERS: &str = "lone#tpm";

/// So soon is back what was taken beside a refusal.
const BACK_SOON: Duration = Duration::from_secs(3);

/// What rounding may cost, in millionths.
const ROUNDING: Micros = 10_000;

/// Of a shorter wait, half may be over before the booking's reply is there; a longer one may be refused.
const WORTH_BOOKING: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(5);

/// No caller of the simulation books further ahead.
const LONGEST_WAIT: Duration = Duration::from_secs(6);

/// A reading that is older refuses nobody by itself.
const REMEMBERED: Duration = Duration::from_millis(1_100);

/// What a fault leaves on its way may arrive so much later.
const LATE: Micros = 12_000_000;

/// What must have been judged in a run of many seeds.
pub(crate) const JUDGED: [&str; 3] = [
    "judged: a lone caller's wait",
    "judged: what was taken beside a refusal",
    "judged: a start that was booked and given up",
];

/// Founds its bucket, and begins.
pub(crate) async fn begin(universe: &Arc<Universe>, operator: &Process, tasks: &mut JoinSet<()>) {
    let seed = universe.scenario.seed;
    if stream(seed, "lone caller").u32(0..3) > 0 {
        return;
    }
    let mut rng = stream(seed, "what a lone caller asks");
    let capacity = rng.i32(1..=5);
    let whole = Amount::from_tokens(capacity);
    let refill = Rate::per(whole, Duration::from_millis(rng.u64(300..=8_000))).unwrap();
    let limit = Limit::rate(LimitType::Requests, whole, refill, Cost::ONE).unwrap();
    let (hundred, long) = (Amount::from_tokens(100), Duration::from_secs(100));
    let enough =
        Limit::rate(LimitType::Tokens, hundred, Rate::per(hundred, long).unwrap(), Cost::ONE).unwrap();
    for (name, limit) in [(TOKENS, &limit), (OTHERS, &enough)] {
        universe
            .undisturbed(operator.client.ops().apply_limit(&Dimension::new(name).unwrap(), limit))
            .await
            .unwrap();
    }
    let process = universe.process("lone", Role::Customer, |client| client);
    let most = universe.scenario.clock_error;
    process.set_clock_error(rng.i64(-most..=most));
    tasks.spawn(Lone { universe: Arc::clone(universe), process, capacity, rng }.live());
}

struct Lone {
    universe: Arc<Universe>,
    process: Process,
    capacity: i32,
    rng: Rng,
}

/// A wait that is over.
struct Waited {
    /// When its caller asked first, in true time.
    asked_at: Micros,
    /// When it was told, by the time of its process.
    told_at: Micros,
    told: RetryIn,
}

impl Lone {
    async fn live(mut self) {
        while !self.universe.is_over() {
            let cost = self.rng.i32(1..=self.capacity);
            let mut waited: Option<Waited> = None;
            while !self.universe.is_over() {
                let asked_at = self.universe.time();
                let begins = self.own_time();
                let request = Request::from(TOKENS).cost(TOKENS, cost);
                let ask = Stopwatch::of(&self.universe, &self.process, Public::Acquire);
                let answer = ask.on(self.process.client.acquire(request)).await;
                if let Some(waited) = waited.take() {
                    self.judge(&waited, begins, answer.as_ref().ok());
                }
                match answer {
                    Ok(Outcome::Granted(_)) => {
                        times::judge(&self.universe, &self.process, asked_at);
                        break;
                    }
                    Ok(Outcome::RetryIn(told)) => {
                        let (told_at, wait) = (self.own_time(), told.wait());
                        match self.rng.u32(0..6) {
                            0 | 1 if wait > REMEMBERED + BACK_SOON => {
                                sleep(REMEMBERED).await;
                                self.asks_for_others_too(cost).await;
                            }
                            2 if WORTH_BOOKING.contains(&wait) => self.gives_up_a_start(cost, wait).await,
                            _ => {
                                waited = Some(Waited { asked_at, told_at, told });
                                sleep(wait).await;
                            }
                        }
                    }
                    Err(_) => sleep(Duration::from_millis(200)).await,
                }
            }
            sleep(Duration::from_millis(self.rng.u64(0..1_000))).await;
        }
    }

    async fn asks_for_others_too(&mut self, cost: i32) {
        let taken = self.rng.i32(1..=20);
        let (asked_at, before) = (self.universe.time(), self.row(OTHERS));
        let request = Request::from([TOKENS, OTHERS]).cost(TOKENS, cost).cost(OTHERS, taken);
        let ask = Stopwatch::of(&self.universe, &self.process, Public::Acquire);
        if !matches!(ask.on(self.process.client.acquire(request)).await, Ok(Outcome::RetryIn(_))) {
            return;
        }
        if let Some(gone) = self.gone_after(OTHERS, &before, asked_at, JUDGED[1]).await {
            self.universe.violated(format!(
                "lone was refused, and of {taken} tokens that it took beside {gone} millionths are gone"
            ));
        }
    }

    /// Books a start, and goes before it comes.
    async fn gives_up_a_start(&self, cost: i32, wait: Duration) {
        let (asked_at, before) = (self.universe.time(), self.row(TOKENS));
        let slot = self.process.client.slot(Request::from(TOKENS).cost(TOKENS, cost)).max_wait(LONGEST_WAIT);
        let has_begun = AtomicBool::new(false);
        let call = async |_: Slot| {
            has_begun.store(true, Ordering::SeqCst);
            Ok::<_, LimitError>(())
        };
        let ended = timeout(wait / 2, slot.run(call)).await;
        if ended.is_ok() || has_begun.load(Ordering::SeqCst) {
            return;
        }
        if let Some(gone) = self.gone_after(TOKENS, &before, asked_at, JUDGED[2]).await {
            self.universe.violated(format!(
                "lone booked a start of {cost} tokens and gave it up, and {gone} millionths are gone"
            ));
        }
    }

    /// What the bucket lacks although all should be back, if that can be judged.
    async fn gone_after(
        &self,
        bucket: &str,
        before: &BucketRow,
        asked_at: Micros,
        judged: &'static str,
    ) -> Option<Micros> {
        sleep(BACK_SOON).await;
        let now = self.universe.time();
        let has_changed = self.process.machine.changed_since(asked_at - LATE)
            || self.universe.jumped_since(asked_at - LATE);
        if has_changed || self.process.tally.met_fault(asked_at - LATE, now) {
            return None;
        }
        self.universe.count(judged);
        let (had, has) = (before.line(now).min(before.capacity), self.row(bucket).line(now));
        (has < had - ROUNDING).then_some(had - has)
    }

    fn row(&self, bucket: &str) -> BucketRow {
        self.universe.ledger(|ledger| ledger.bucket(bucket).cloned()).expect("it was founded")
    }

    fn own_time(&self) -> Micros {
        self.process.client.now().micros().into()
    }

    /// Judges an answer to an asking that began when its process's time was `begins`.
    fn judge(&self, waited: &Waited, begins: Micros, answer: Option<&Outcome>) {
        let Waited { asked_at, told_at, told } = waited;
        let is_exact = told.reason() == RetryReason::Exhausted;
        if !is_exact || self.process.tally.met_fault(asked_at - LATE, self.universe.time()) {
            return;
        }
        let wait = Micros::try_from(told.wait().as_micros()).unwrap();
        let is_over = begins - told_at >= wait && !self.process.machine.changed_since(*asked_at);
        self.universe.count(if is_over {
            JUDGED[0]
        } else {
            "a lone caller's time was corrected in its wait"
        });
        if is_over && !matches!(answer, Some(Outcome::Granted(_))) {
            self.universe
                .violated(format!("lone was told to come back after {told:?}, did, and heard {answer:?}"));
        }
    }
}
