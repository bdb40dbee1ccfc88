//! What reserving close to the truth is worth, on recorded calls: see `tests/data` and `docs/tokens.md`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, LimitType, Rate};
use sluice_sdk::{Client, Outcome, Request, TokenEstimator};
use tokio::time::{Instant, sleep};

use crate::world::{World, dimension};

mod on_arrival;

const TPM: &str = "acme#tpm";
const KIND: &str = "conversation";
const TOKENS_PER_SECOND: i32 = 4_000;
/// Three times as many as the limit keeps busy.
const CALLERS: usize = 64;
/// Not counted: the bucket is full at first, and the estimator knows nothing.
const WARM_UP: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
struct Call {
    prompt: u64,
    answer: u64,
}

impl Call {
    fn used(self) -> u64 {
        self.prompt + self.answer
    }

    /// Not recorded: half a second to the first token, and 40 tokens a second.
    fn time(self) -> Duration {
        Duration::from_millis(500 + 25 * self.answer)
    }
}

fn recorded() -> Vec<Call> {
    let rows = include_str!("../../data/azure-llm-2023-conv.csv").lines().skip(1);
    let call = |row: &str| {
        let (prompt, answer) = row.split_once(',').unwrap();
        Call { prompt: prompt.parse().unwrap(), answer: answer.parse().unwrap() }
    };
    rows.map(call).collect()
}

/// What callers reserve for the answer; the length of the prompt they know.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reserve {
    MaxTokens,
    Estimate,
}

/// How they come to a grant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// By slots, each booked in its turn.
    Booked,
    /// By asking again after the wait that they are told.
    Retried,
}

/// How they end it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Settle,
    Release,
}

#[derive(Clone, Copy)]
struct Setting {
    start: Start,
    end: End,
    /// What an answer may be at most.
    max_tokens: u64,
    /// What the bucket holds, in seconds of its refill.
    capacity_secs: i32,
}

/// A call that was made.
struct Made {
    at: Duration,
    used: u64,
    reserved: u64,
}

struct Run {
    client: Client,
    estimator: TokenEstimator,
    reserve: Reserve,
    setting: Setting,
    began: Instant,
    line: Mutex<std::vec::IntoIter<Call>>,
    made: Mutex<Vec<Made>>,
}

impl Run {
    async fn of(reserve: Reserve, setting: Setting) -> Arc<Self> {
        let world = World::embedded().await;
        let rate = Rate::per(Amount::from_tokens(TOKENS_PER_SECOND), Duration::from_secs(1)).unwrap();
        let capacity = Amount::from_tokens(TOKENS_PER_SECOND * setting.capacity_secs);
        let limit = Limit::rate(LimitType::Tokens, capacity, rate, Cost::ONE).unwrap();
        let client = world.client();
        client.ops().apply_limit(&dimension(TPM), &limit).await.unwrap();
        let (line, made) = (Mutex::new(recorded().into_iter()), Mutex::default());
        let run = Self {
            client,
            estimator: TokenEstimator::default(),
            reserve,
            setting,
            began: Instant::now(),
            line,
            made,
        };
        let run = Arc::new(run);
        let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(Arc::clone(&run).caller())).collect();
        for caller in callers {
            caller.await.unwrap();
        }
        run
    }

    async fn caller(self: Arc<Self>) {
        loop {
            let Some(call) = self.line.lock().unwrap().next() else { return };
            match self.setting.start {
                Start::Booked => self.in_a_slot(call).await,
                Start::Retried => self.under_a_grant(call).await,
            }
        }
    }

    async fn in_a_slot(&self, call: Call) {
        let reserved = self.reserved(call);
        let slot = self.client.slot(TPM).cost(TPM, reserved).timeout(Duration::from_secs(86_400));
        let called = slot.run(async |slot| {
            self.make(call, reserved).await;
            if self.setting.end == End::Settle {
                slot.used(TPM, call.used()).unwrap();
            }
            Ok::<_, sluice_sdk::LimitError>(())
        });
        called.await.unwrap();
    }

    async fn under_a_grant(&self, call: Call) {
        let (mut grant, reserved) = loop {
            let reserved = self.reserved(call);
            match self.client.acquire(Request::from(TPM).cost(TPM, reserved)).await.unwrap() {
                Outcome::Granted(grant) => break (grant, reserved),
                Outcome::RetryIn(retry) => sleep(retry.wait()).await,
            }
        };
        self.make(call, reserved).await;
        if self.setting.end == End::Settle {
            grant.settle(TPM, call.used()).await.unwrap();
        }
        grant.release().await.unwrap();
    }

    async fn make(&self, call: Call, reserved: u64) {
        self.made.lock().unwrap().push(Made { at: self.began.elapsed(), used: call.used(), reserved });
        sleep(call.time()).await;
        self.estimator.observe(KIND, call.answer);
    }

    fn reserved(&self, call: Call) -> u64 {
        let most = self.setting.max_tokens;
        call.prompt
            + match self.reserve {
                Reserve::MaxTokens => most,
                Reserve::Estimate => self.estimator.estimate_or(KIND, most),
            }
    }

    /// The share of the limit's refill that was used, from the warm-up to the last start: there was always
    /// someone who waited.
    fn use_of_the_limit(&self) -> f64 {
        let made = self.made.lock().unwrap();
        assert_eq!(made.len(), recorded().len());
        let last = made.iter().map(|call| call.at).max().unwrap();
        let used: u64 =
            made.iter().filter(|call| (WARM_UP..last).contains(&call.at)).map(|call| call.used).sum();
        used as f64 / (f64::from(TOKENS_PER_SECOND) * (last - WARM_UP).as_secs_f64())
    }

    /// The share of calls that used more than they had reserved.
    fn exceeded(&self) -> f64 {
        let made = self.made.lock().unwrap();
        made.iter().filter(|call| call.used > call.reserved).count() as f64 / made.len() as f64
    }
}

async fn use_of_the_limit(reserve: Reserve, setting: Setting) -> f64 {
    Run::of(reserve, setting).await.use_of_the_limit()
}

async fn nine_tenths_against_four(setting: Setting) {
    let estimated = use_of_the_limit(Reserve::Estimate, setting).await;
    assert!((0.9..=1.02).contains(&estimated), "{estimated}");
    let by_max_tokens = use_of_the_limit(Reserve::MaxTokens, setting).await;
    assert!(by_max_tokens < 0.4, "{by_max_tokens}");
}

#[tokio::test(start_paused = true)]
async fn estimates_use_nine_tenths_of_a_limit_of_which_max_tokens_use_under_four() {
    let setting = Setting { start: Start::Booked, end: End::Settle, max_tokens: 4_096, capacity_secs: 10 };
    nine_tenths_against_four(setting).await;
}

/// The capacity of a whole minute forgives a large reservation that is settled soon, and this one is too
/// large for it.
#[tokio::test(start_paused = true)]
async fn so_they_do_where_an_answer_may_be_long_and_the_bucket_holds_a_minute() {
    let setting = Setting { start: Start::Retried, end: End::Settle, max_tokens: 16_384, capacity_secs: 60 };
    nine_tenths_against_four(setting).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "more than a minute: prints the table of docs/tokens.md"]
#[allow(clippy::print_stdout)]
async fn the_table_of_the_document() {
    for (end, start) in
        [(End::Release, Start::Retried), (End::Settle, Start::Booked), (End::Settle, Start::Retried)]
    {
        for (max_tokens, capacity_secs) in [(4_096, 10), (4_096, 60), (16_384, 10), (16_384, 60)] {
            let setting = Setting { start, end, max_tokens, capacity_secs };
            let by_max_tokens = use_of_the_limit(Reserve::MaxTokens, setting).await * 100.0;
            let run = Run::of(Reserve::Estimate, setting).await;
            let (estimated, exceeded) = (run.use_of_the_limit() * 100.0, run.exceeded() * 100.0);
            print!("| {end:?}, {start:?} | {max_tokens} | {capacity_secs} s | ");
            println!("{by_max_tokens:.0} % | {estimated:.0} % | {exceeded:.0} % |");
        }
    }
}
