//! A round of a lane: plans and writes until each of its callers has an answer or stays in the queue.
//!
//! A round ends: each request ends, and none begins after [`LONGEST_TRYING`] except after a success, which
//! serves a caller. [`Setback`] decides what that means for the callers that it has not served.

use std::time::Duration;

use sluice_core::Dimension;
use tokio::time::{Instant, sleep};

use crate::api::error::AcquireError;
use crate::api::refusal::contended;
use crate::lane::inner::Inner;
use crate::lane::poll::{Others, Poll, spread_after_return};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{QueueAsk, Waiter, Waiting};
use crate::lane::setback::Setback;
use crate::lane::unclaimed::UnclaimedGrant;

/// Plans made without a pause: each has the row of a moment ago, and each failure is another's success.
const PLANS_AT_ONCE: u32 = 8;

/// How long a round tries. A larger value serves more callers in one round beside busy writers. A smaller
/// value answers callers that do not wait sooner.
const LONGEST_TRYING: Duration = Duration::from_secs(1);

/// In a crowd, the pauses begin as long as they are after so many tries: up to 100 ms. The row takes 1,000
/// writes a second, whoever sends them: shorter pauses are more writes that it rejects, and no grant more.
/// Longer ones are more time before a caller learns that the crowd is over.
const AHEAD_IN_A_CROWD: u32 = 2;

/// The outcome of one step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A caller was served.
    Served,
    /// The rows were read: the next plan uses them.
    Read,
    /// Another writer was faster, and the reply shows the row that it left.
    Overtaken,
    /// Another writer holds the rows.
    Held,
    /// DynamoDB throttled the write, or a transaction held the row.
    Throttled,
    /// DynamoDB throttled the write, and no order of callers keeps others from writing the row.
    Crowded,
}

/// What is left of a round: callers that stay in the queue, and grants that nobody was there to take.
pub(super) type Unfinished<Q, A> = (Waiting<Q, A>, Vec<UnclaimedGrant>);

/// The callers of a round.
pub(super) trait Batch {
    /// What a caller of the lane asks.
    type Ask: QueueAsk;
    /// What it is answered.
    type Answer;

    /// Ends the round.
    fn into_unfinished(self) -> Unfinished<Self::Ask, Self::Answer>;

    /// The bucket that a refusal names if no other is known.
    fn dimension(&self) -> &Dimension;

    /// The callers that are still to be served, and those of them that have left.
    fn waiters(&mut self) -> &mut Vec<Waiter<Self::Ask, Self::Answer>>;

    /// Makes one plan and its write, or one read, or gives the answers that need neither. Its requests end.
    fn step(&mut self, has_read: bool) -> impl Future<Output = Result<Step, AcquireError>> + Send;

    /// Answers all remaining callers, or notes that they stay in the queue.
    fn set_back(&mut self, setback: &Setback);
}

/// Serves a lane, round after round, until no caller is left. After a round in which callers stay, the lane
/// pauses, as `poll` says of the `others` that wait; then `paused` is called. A round takes all callers in
/// the queue, so that none stands unanswered behind a full write of others: not in an outage, not a release
/// behind callers that wait, and not a caller that does not wait.
pub(super) async fn lead<B: Batch>(
    inner: &Inner,
    mut leader: Leader<B::Ask, B::Answer>,
    mut poll: Poll,
    batch: impl Fn(Vec<Waiter<B::Ask, B::Answer>>) -> B,
    others: impl Fn() -> Others,
    paused: impl Fn(),
) {
    while let Some(waiters) = leader.next(usize::MAX).await {
        let served = waiters.len();
        let mut batch = batch(waiters);
        let returns = inner.store.returns();
        serve(inner, &mut batch).await;
        // What nobody took goes to callers in the queue, if they ask for exactly that, or back to the bucket.
        let after = leader.after(served, batch.into_unfinished(), &mut poll, &others);
        let has_paused = tokio::select! {
            biased;
            has_paused = after => has_paused,
            () = wake_on_return(inner, &leader, returns) => unreachable!("it only wakes"),
        };
        if has_paused {
            paused();
        }
    }
}

/// Ends a pause when DynamoDB comes back, soon and not at the same time as in other lanes.
async fn wake_on_return<Q, A>(inner: &Inner, leader: &Leader<Q, A>, returns: u32) {
    inner.store.returned(returns).await;
    sleep(spread_after_return()).await;
    leader.wake();
    std::future::pending().await
}

async fn serve(inner: &Inner, batch: &mut impl Batch) {
    let (began, mut tries, mut has_read) = (Instant::now(), 0, false);
    while has_callers(batch) {
        let step = batch.step(has_read).await;
        let is_throttled = matches!(step, Ok(Step::Throttled | Step::Crowded));
        let ahead = if matches!(step, Ok(Step::Crowded)) { AHEAD_IN_A_CROWD } else { 0 };
        match step {
            Ok(Step::Served) => continue,
            // A reading that was fetched for this round counts, however long the read took.
            Ok(Step::Read) if !has_read => {
                has_read = true;
                continue;
            }
            Ok(Step::Read | Step::Overtaken) => tries += 1,
            Ok(Step::Held | Step::Throttled | Step::Crowded) => tries = tries.max(PLANS_AT_ONCE - 1) + 1,
            Err(error) => {
                let setback = Setback::of(error, batch.dimension());
                return batch.set_back(&setback);
            }
        }
        if began.elapsed() >= LONGEST_TRYING || !pause(inner, tries, ahead, batch.dimension()).await {
            let setback = match is_throttled {
                true => Setback::Throttled(contended(batch.dimension())),
                false => Setback::overtaken(batch.dimension()),
            };
            return batch.set_back(&setback);
        }
    }
}

fn has_callers(batch: &mut impl Batch) -> bool {
    let waiters = batch.waiters();
    waiters.retain(|waiter| !waiter.is_left());
    !waiters.is_empty()
}

/// Waits before the `tries`th new plan, after the first few, as long as `ahead` tries later. Returns false if
/// it is time to give up.
async fn pause(inner: &Inner, tries: u32, ahead: u32, dimension: &Dimension) -> bool {
    if tries >= PLANS_AT_ONCE + inner.store.max_retries() {
        return false;
    }
    tracing::debug!(event = "acquire.contention_retry", %dimension, tries);
    if tries >= PLANS_AT_ONCE {
        inner.store.back_off(tries - PLANS_AT_ONCE + ahead).await;
    }
    true
}
