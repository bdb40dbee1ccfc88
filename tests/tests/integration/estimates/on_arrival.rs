//! A vendor that counts what a call may use, when the call arrives: the estimate is sent as `max_tokens`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, LimitType, Rate};
use sluice_sdk::{Client, LimitError, TokenEstimator};
use tokio::time::{Instant, sleep};

use super::{CALLERS, Call, KIND, TOKENS_PER_SECOND, WARM_UP, recorded};
use crate::world::{World, dimension};

/// Nothing goes back to a bucket of this vendor.
const TPM: &str = "openai#tpm";

/// What the vendor counts of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counts {
    /// OpenAI: the larger of the input and `max_tokens`.
    Larger,
    /// Azure: their sum.
    Sum,
}

impl Counts {
    fn of(self, prompt: u64, max_tokens: u64) -> u64 {
        match self {
            Self::Larger => prompt.max(max_tokens),
            Self::Sum => prompt + max_tokens,
        }
    }
}

/// What callers send as `max_tokens`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    Ceiling,
    Estimate,
}

struct Run {
    client: Client,
    estimator: TokenEstimator,
    counts: Counts,
    sent: Sent,
    ceiling: u64,
    began: Instant,
    line: Mutex<std::vec::IntoIter<Call>>,
    /// When each call had its whole reply.
    whole: Mutex<Vec<Duration>>,
    twice: AtomicUsize,
}

impl Run {
    async fn of(counts: Counts, sent: Sent, ceiling: u64) -> Arc<Self> {
        let world = World::embedded().await;
        let rate = Rate::per(Amount::from_tokens(TOKENS_PER_SECOND), Duration::from_secs(1)).unwrap();
        let capacity = Amount::from_tokens(TOKENS_PER_SECOND * 60);
        let limit = Limit::rate(LimitType::Tokens, capacity, rate, Cost::ONE).unwrap();
        let client = world.client();
        client.ops().apply_limit(&dimension(TPM), &limit).await.unwrap();
        let run = Arc::new(Self {
            client,
            estimator: TokenEstimator::default(),
            counts,
            sent,
            ceiling,
            began: Instant::now(),
            line: Mutex::new(recorded().into_iter()),
            whole: Mutex::default(),
            twice: AtomicUsize::new(0),
        });
        let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(Arc::clone(&run).caller())).collect();
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!(run.whole.lock().unwrap().len(), recorded().len(), "every reply is whole in the end");
        run
    }

    async fn caller(self: Arc<Self>) {
        loop {
            let Some(call) = self.line.lock().unwrap().next() else { return };
            match self.sent {
                Sent::Ceiling => self.make(call, self.ceiling).await,
                Sent::Estimate => self.with_the_estimate(call).await,
            }
            self.whole.lock().unwrap().push(self.began.elapsed());
        }
    }

    async fn with_the_estimate(&self, call: Call) {
        let mut cap = self.estimator.cap(KIND, self.ceiling);
        loop {
            self.make(call, cap.max_tokens()).await;
            if call.answer <= cap.max_tokens() || !cap.raise() {
                break;
            }
            self.twice.fetch_add(1, Ordering::Relaxed);
        }
        cap.observe(call.answer.min(self.ceiling));
    }

    async fn make(&self, call: Call, max_tokens: u64) {
        let cost = self.counts.of(call.prompt, max_tokens);
        let slot = self.client.slot(TPM).cost(TPM, cost).max_wait(Duration::from_secs(86_400));
        let cut = Call { answer: call.answer.min(max_tokens), ..call };
        let called = slot.run(async |_| {
            sleep(cut.time()).await;
            Ok::<_, LimitError>(())
        });
        called.await.unwrap();
    }

    /// Whole replies a minute, after the warm-up.
    fn per_minute(&self) -> f64 {
        let whole = self.whole.lock().unwrap();
        let last = whole.iter().max().unwrap();
        let counted = whole.iter().filter(|at| **at >= WARM_UP).count();
        counted as f64 * 60.0 / (*last - WARM_UP).as_secs_f64()
    }

    fn made_twice(&self) -> f64 {
        self.twice.load(Ordering::Relaxed) as f64 / recorded().len() as f64
    }
}

#[tokio::test(start_paused = true)]
async fn the_estimate_sent_as_max_tokens_lets_through_twice_as_many_calls_and_cuts_no_reply() {
    let by_ceiling = Run::of(Counts::Larger, Sent::Ceiling, 4_096).await;
    let by_estimate = Run::of(Counts::Larger, Sent::Estimate, 4_096).await;
    let (before, after) = (by_ceiling.per_minute(), by_estimate.per_minute());
    assert!(after > 2.0 * before, "{before} calls a minute, then {after}");
    assert!((0.01..0.15).contains(&by_estimate.made_twice()), "{}", by_estimate.made_twice());
}

#[tokio::test(start_paused = true)]
#[ignore = "prints the second table of docs/tokens.md"]
#[allow(clippy::print_stdout)]
async fn the_table_of_vendors_that_count_on_arrival() {
    for counts in [Counts::Larger, Counts::Sum] {
        for ceiling in [4_096, 16_384] {
            let by_ceiling = Run::of(counts, Sent::Ceiling, ceiling).await.per_minute();
            let run = Run::of(counts, Sent::Estimate, ceiling).await;
            let (by_estimate, twice) = (run.per_minute(), run.made_twice() * 100.0);
            println!("| {counts:?} | {ceiling} | {by_ceiling:.0} | {by_estimate:.0} | {twice:.0} % |");
        }
    }
}
