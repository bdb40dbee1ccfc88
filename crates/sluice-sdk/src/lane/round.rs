//! A round of a lane: plans and writes until each of its callers has an answer, or stays in line.
//!
//! A round ends, whatever hangs: each of its requests ends by itself, and none is begun after [`LONGEST_TRYING`] but those after a
//! success, of which each serves someone. What its end means for those it has not served is for [`Setback`] to say.

use std::time::Duration;

use sluice_core::Dimension;
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::lane::inner::Inner;
use crate::lane::per_bucket::RETURN_HEARD;
use crate::lane::setback::Setback;

/// Plans made at once after a false condition, before the next ones wait: each has the row as it was a moment ago, and each
/// failure means that another writer got on.
const PLANS_AT_ONCE: u32 = 8;

/// How long a round tries. Larger serves more callers in one go beside busy writers; smaller tells those who do not wait sooner.
const LONGEST_TRYING: Duration = Duration::from_secs(1);

/// What one step of a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Somebody was served.
    Served,
    /// The rows were read: plan by them.
    Read,
    /// Another writer was faster, and the reply shows what it made of the row.
    Overtaken,
    /// Another writer holds the rows.
    Held,
}

/// The callers of a round.
pub(super) trait Batch {
    /// The bucket that is told where nothing is known of any.
    fn dimension(&self) -> &Dimension;

    /// Drops those who have left, and says whether somebody is still to be served.
    fn has_callers(&mut self) -> bool;

    /// One plan and its write, one reading of what is not known, or the answers that need neither. Each of its requests ends.
    fn step(&mut self, has_read: bool) -> impl Future<Output = Result<Step, AcquireError>> + Send;

    /// Answers all who are left, or notes that they stay.
    fn set_back(&mut self, setback: &Setback);
}

/// Serves the callers of `batch` until each has its answer, or stays in line.
pub(super) async fn serve(inner: &Inner, batch: &mut impl Batch) {
    let (began, mut tries, mut has_read) = (Instant::now(), 0, false);
    while batch.has_callers() {
        match batch.step(has_read).await {
            Ok(Step::Served) => continue,
            // What was fetched for this very round counts, however long it took.
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

/// Waits before planning again for the `tries`th time, once the plans at once are used up. False where it is time to give up.
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

/// The longest that a round takes where no write of it succeeds: what it tries, then a reading (which may wait for that of another
/// caller), one that tells the time and a write, begun just before the end of that.
fn longest_round(inner: &Inner) -> Duration {
    LONGEST_TRYING + inner.store.attempt().of_rows() + 3 * inner.store.longest_request()
}

/// The longest that an attempt keeps a caller that does not wait: a first reading of buckets that it does not know, the round that
/// is under way when it comes, its own, and the return of what other dimensions granted.
pub(crate) fn longest_attempt(inner: &Inner) -> Duration {
    let look_up = inner.store.attempt().of_rows() + inner.store.longest_request();
    look_up + 2 * longest_round(inner) + RETURN_HEARD
}
