//! Self-healing: a process that a full concurrency bucket refuses brings back the slots of crashed holders
//! soon after their leases end, rather than at the reconciler's next run.
//!
//! For each such bucket, a task notes the process in the load row, and gives back ended inline leases. For
//! all of them, one task scans the table, one process of the fleet at a time: the table's mark states which,
//! when, and where the scan continues (`turn.rs`). No call waits for this, except
//! [`Client::finish_healing`](crate::Client::finish_healing). The tasks run while callers are in the queue,
//! or were refused recently. Right after an outage they wait for those that hold leases
//! (`lane/fallback/hold.rs`). They hold the client weakly. All their writes are conditional, so a task may
//! freeze or end at any point.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_core::{Bucket, HEAL_EVERY, NOTE_EVERY, Timestamp};
use sluice_table::StoreError;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::client_ops::ops;
use crate::heal::wanted::Wanted;
use crate::lane::entry::Entry;
use crate::lane::fallback::hold;
use crate::lane::inner::{Inner, Refusals};
use crate::lane::reading::known_since;
use crate::lane::task::boxed;
use crate::telemetry;

mod due;
mod note;
mod turn;
pub(crate) mod wanted;

use crate::heal::due::PendingHeals;
use crate::heal::turn::ScanTurn;
use crate::heal::wanted::Next;

/// How long a caller counts as wanting slots after its last try or its refusal: long enough for one more
/// scan. So a caller that asks again later gets the slot as early as a caller that waits.
const COMES_BACK: Duration = HEAL_EVERY;

/// How long after a denied request healing tries again: the policy of the role may not have taken effect yet.
const DENIED_FOR: Duration = Duration::from_secs(600);

/// Inline leases are looked for in a reading of the bucket that is not older than this.
const YOUNG: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Healing {
    /// Whether callers want slots that a scan may find.
    table: Arc<Wanted>,
    notes_denied: Denied,
    scans_denied: Denied,
    /// Tries that are due or under way, for callers that wait for them.
    dues: PendingHeals,
}

fn healing(inner: &Inner) -> Arc<Healing> {
    inner.extensions.of()
}

/// After a denial: no try before this instant, in microseconds since the epoch.
#[derive(Debug, Default)]
struct Denied(AtomicI64);

/// What a task does.
#[derive(Clone, Debug)]
enum HealTask {
    /// The note of one bucket, and its inline leases.
    Bucket(Arc<Entry>, Arc<Wanted>),
    /// The scan of the table.
    Table(Arc<Wanted>),
}

/// Starts the healing of buckets whose slots callers want.
#[derive(Debug)]
pub(crate) struct Healer;

impl Refusals for Healer {
    fn refused(&self, inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn) {
        if retry.reason == RetryReason::NoFreeSlot {
            wanted(inner, entry, retry.wait, 1);
        }
    }

    fn waits(&self, inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn) {
        if retry.reason == RetryReason::NoFreeSlot {
            wanted(inner, entry, Duration::ZERO, 0);
        }
    }
}

/// A request was shed. Its caller does not ask the bucket, so nobody else would look for a crashed holder.
pub(crate) fn shed(inner: &Arc<Inner>, entry: &Arc<Entry>, retry_after: Duration) {
    looked_for(inner, entry, retry_after, 1);
}

/// A request was let through although nothing departs: the slots may be a crashed holder's.
pub(crate) fn admitted_in_doubt(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    looked_for(inner, entry, Duration::ZERO, 0);
}

fn looked_for(inner: &Arc<Inner>, entry: &Arc<Entry>, wait: Duration, refusals: u32) {
    if entry.limit().is_some_and(|limit| limit.is_concurrent()) {
        wanted(inner, entry, wait.min(LONGEST_RETURN), refusals);
    }
}

/// A task waits at most this long for a caller to come back; a later one creates another task.
const LONGEST_RETURN: Duration = Duration::from_secs(60);

fn wanted(inner: &Arc<Inner>, entry: &Arc<Entry>, wait: Duration, refusals: u32) {
    let now = inner.now();
    if !inner.config.self_heal || healing(inner).notes_denied.is_denied(now) {
        return;
    }
    let wanted = entry.extensions.of::<Wanted>();
    {
        let mut state = wanted.state();
        state.refusals = state.refusals.saturating_add(refusals);
        state.is_asked = true;
    }
    ensure_running(inner, HealTask::Bucket(Arc::clone(entry), wanted), now.after(wait + COMES_BACK));
}

fn ensure_running(inner: &Arc<Inner>, task: HealTask, until: Timestamp) {
    let wanted = task.wanted();
    let mut state = wanted.state();
    state.until = state.until.max(until);
    let runtime = match (state.is_tended, Handle::try_current()) {
        (true, _) => None,
        (false, Ok(runtime)) => Some(runtime),
        // Without a runtime, no task can run.
        (false, Err(_)) => return,
    };
    state.is_tended = true;
    let is_due = state.left(inner.now()).is_zero();
    if is_due {
        state.due.get_or_insert_with(|| healing(inner).dues.one());
    }
    // A runtime that is shutting down drops the task at once, and the drop takes the lock.
    drop(state);
    match runtime {
        Some(runtime) => {
            runtime.spawn(boxed(RunningTask { inner: Arc::downgrade(inner), task, is_left: false }.run()));
        }
        // The task's timer may stand still while the process is frozen. The clock does not.
        None if is_due => wanted.woken.notify_one(),
        None => {}
    }
}

impl HealTask {
    fn wanted(&self) -> &Wanted {
        match self {
            Self::Bucket(_, wanted) => wanted,
            Self::Table(wanted) => wanted,
        }
    }

    /// How long this process leaves it alone after a try, unless the try finds another time.
    fn quiet(&self) -> Duration {
        match self {
            Self::Bucket(..) => NOTE_EVERY,
            Self::Table(_) => HEAL_EVERY,
        }
    }

    /// Does what is due. Returns false if this process lacks the right.
    async fn try_once(&self, inner: &Arc<Inner>) -> bool {
        // Noted here for both: a try that is not noted is due again at once.
        self.wanted().tried(inner.now(), self.quiet());
        match self {
            Self::Bucket(entry, wanted) => heal_bucket(inner, entry, wanted).await,
            Self::Table(_) => scan_table(inner).await,
        }
    }
}

/// The Tokio task of one [`HealTask`]. If its runtime drops it, the next refusal creates another.
struct RunningTask {
    inner: Weak<Inner>,
    task: HealTask,
    is_left: bool,
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        if !self.is_left {
            let mut state = self.task.wanted().state();
            state.is_tended = false;
            state.due = None;
        }
    }
}

impl RunningTask {
    async fn run(mut self) {
        loop {
            let pause = {
                let Some(inner) = self.inner.upgrade() else { return };
                match self.task.wanted().next(&inner) {
                    Next::Leave => {
                        self.is_left = true;
                        return;
                    }
                    Next::Wait(pause) => pause,
                    Next::Try => match hold::left(&inner.store, inner.config.on_unavailable) {
                        // Those who hold leases that have ended may not know yet that DynamoDB answers.
                        Some(left) => left,
                        None if self.task.try_once(&inner).await => continue,
                        None => return,
                    },
                }
            };
            let _ = timeout(pause, self.task.wanted().woken.notified()).await;
        }
    }
}

impl Denied {
    fn is_denied(&self, now: Timestamp) -> bool {
        now.micros() < self.0.load(Ordering::Relaxed)
    }

    /// Warns once: later tries would be denied in the same way.
    fn deny(&self, error: &StoreError, now: Timestamp) {
        telemetry::healed("denied");
        if self.0.swap(now.after(DENIED_FOR).micros(), Ordering::Relaxed) == 0 {
            tracing::warn!(event = "heal.denied", %error, "for ten minutes this process heals no buckets; slots of crashed holders wait for the reconciler, or for a process that has the right");
        }
    }
}

/// Notes the process, gives back the bucket's inline leases that have ended, and has the table scanned if
/// lease rows may hold slots of the bucket. Returns false if this process lacks the right.
async fn heal_bucket(inner: &Arc<Inner>, entry: &Arc<Entry>, wanted: &Wanted) -> bool {
    let (noted, healed) = tokio::join!(note::write(inner, entry, wanted), look(inner, entry, wanted));
    if let Err(error) = healed {
        tracing::debug!(event = "heal.failed", dimension = %entry.dimension, %error);
    }
    match noted {
        Ok(()) => true,
        Err(error @ StoreError::AccessDenied { .. }) => {
            healing(inner).notes_denied.deny(&error, inner.now());
            false
        }
        Err(error) => {
            tracing::debug!(event = "heal.unnoted", dimension = %entry.dimension, %error);
            true
        }
    }
}

async fn look(inner: &Arc<Inner>, entry: &Arc<Entry>, wanted: &Wanted) -> Result<(), AcquireError> {
    // Usually the reply that refused the caller has already shown the row.
    let bucket = known_since(inner, entry, YOUNG).await?.bucket;
    if hold::holds(&inner.store, inner.config.on_unavailable) {
        // The reading has ended an outage.
        return Ok(());
    }
    let may_scan = !inner.config.heal_budget.is_none() && !healing(inner).scans_denied.is_denied(inner.now());
    if may_scan && may_have_rows(&bucket) {
        let until = wanted.state().until;
        ensure_running(inner, HealTask::Table(Arc::clone(&healing(inner).table)), until);
    }
    ops(inner).heal_inline(bucket).await?;
    Ok(())
}

/// Whether more slots are taken than the inline leases hold: the others have lease rows, which only a scan
/// finds. A lease that claims more than the capacity hides none. A bucket that is gone refuses nobody.
fn may_have_rows(bucket: &Bucket) -> bool {
    let capacity = bucket.limit().capacity();
    let held = bucket.inline().map_or_else(Default::default, |leases| leases.held_within(capacity));
    bucket.limit().is_concurrent() && capacity.minus(bucket.tokens()) > held
}

/// Scans the table, or a part, unless another process does. False if this process lacks the right.
async fn scan_table(inner: &Arc<Inner>) -> bool {
    let mut turn = match ScanTurn::take(inner).await {
        Ok(Some(turn)) => turn,
        Ok(None) => return true,
        Err(error) => return is_allowed(inner, &error),
    };
    match turn.run(inner).await {
        Ok(healed) => {
            telemetry::healed(if healed.leases > 0 { "restored" } else { "nothing" });
            tracing::debug!(event = "heal.complete", ?healed);
            true
        }
        Err(error) => {
            let is_allowed = is_allowed(inner, &error);
            if !is_allowed {
                turn.give_back(inner).await;
            }
            is_allowed
        }
    }
}

fn is_allowed(inner: &Inner, error: &StoreError) -> bool {
    if matches!(error, StoreError::AccessDenied { .. }) {
        healing(inner).scans_denied.deny(error, inner.now());
        return false;
    }
    telemetry::healed("failed");
    tracing::debug!(event = "heal.failed", %error);
    true
}
