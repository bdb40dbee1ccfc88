//! A round of a lane: plans and writes until each of its callers has an answer or stays in the queue.
//!
//! A round always ends: each of its requests ends by itself, and none begins after [`LONGEST_TRYING`], except
//! a request after a success, and each success serves a caller. [`Setback`] decides what the end of a round
//! means for the callers that it has not served.

use std::time::Duration;

use sluice_core::Dimension;
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::lane::inner::Inner;
use crate::lane::per_bucket::RETURN_HEARD;
use crate::lane::setback::Setback;

/// How many plans are made without a pause after a failed condition. Each plan has the row as it was a moment
/// ago, and each failure means that another writer succeeded.
const PLANS_AT_ONCE: u32 = 8;

/// How long a round tries. A larger value serves more callers in one round beside busy writers. A smaller
/// value answers callers that do not wait sooner.
const LONGEST_TRYING: Duration = Duration::from_secs(1);

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
}

/// The callers of a round.
pub(super) trait Batch {
    /// The bucket that a refusal names if no other is known.
    fn dimension(&self) -> &Dimension;

    /// Drops callers that have left, and returns whether a caller is still to be served.
    fn has_callers(&mut self) -> bool;

    /// Makes one plan and its write, or one read of what is not known, or gives the answers that need
    /// neither. Each of its requests ends.
    fn step(&mut self, has_read: bool) -> impl Future<Output = Result<Step, AcquireError>> + Send;

    /// Answers all remaining callers, or notes that they stay in the queue.
    fn set_back(&mut self, setback: &Setback);
}

/// Serves the callers of `batch` until each has its answer or stays in the queue.
pub(super) async fn serve(inner: &Inner, batch: &mut impl Batch) {
    let (began, mut tries, mut has_read) = (Instant::now(), 0, false);
    while batch.has_callers() {
        match batch.step(has_read).await {
            Ok(Step::Served) => continue,
            // A reading that was fetched for this round counts, however long the read took.
            Ok(Step::Read) if !has_read => {
                has_read = true;
                continue;
            }
            Ok(Step::Read | Step::Overtaken) => tries += 1,
            Ok(Step::Held) => tries = tries.max(PLANS_AT_ONCE - 1) + 1,
            Err(error) => {
                let setback = Setback::of(error, batch.dimension());
                return batch.set_back(&setback);
            }
        }
        if began.elapsed() >= LONGEST_TRYING || !pause(inner, tries, batch.dimension()).await {
            let setback = Setback::overtaken(batch.dimension());
            return batch.set_back(&setback);
        }
    }
}

/// Waits before the `tries`th new plan, once the plans without a pause are used up. Returns false if it is
/// time to give up.
async fn pause(inner: &Inner, tries: u32, dimension: &Dimension) -> bool {
    if tries >= PLANS_AT_ONCE + inner.store.max_retries() {
        return false;
    }
    tracing::debug!(event = "acquire.contention_retry", %dimension, tries);
    if tries >= PLANS_AT_ONCE {
        inner.store.back_off(tries - PLANS_AT_ONCE).await;
    }
    true
}

/// Returns the longest that a round takes if none of its writes succeeds: `LONGEST_TRYING`, and then, begun
/// just before its end, a reading (which may wait for that of another caller), a request that tells the time,
/// and a write.
fn longest_round(inner: &Inner) -> Duration {
    LONGEST_TRYING + inner.store.attempt().of_rows() + 3 * inner.store.longest_request()
}

/// Returns the longest that an attempt keeps a caller that does not wait: a first read of buckets that it
/// does not know, the round that is under way when it comes, its own round, and the return of what other
/// dimensions granted.
pub(crate) fn longest_attempt(inner: &Inner) -> Duration {
    let look_up = inner.store.attempt().of_rows() + inner.store.longest_request();
    look_up + 2 * longest_round(inner) + RETURN_HEARD
}
