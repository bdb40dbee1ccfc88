//! Self-healing: a process that a full concurrency bucket refuses sweeps that bucket, one process of the fleet at a time, so that a
//! crashed holder's slots are back soon after its lease ends, and not only at the reconciler's next run.
//!
//! No call waits for it but [`Client::finish_healing`](crate::Client::finish_healing): it runs on a task of its own, which stays while
//! callers want slots (those in line, and those who were told to come back) and holds the client weakly. A mark on the bucket's load
//! row says who sweeps and when; either reply to it shows the row. A task that is frozen or ends half way harms nothing: all that a
//! sweep does is conditional.

use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sluice_core::{HEAL_EVERY, LONGEST_HEAL_SPACING, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::cache::Entry;
use crate::client::Inner;
use crate::metrics;
use crate::outcome::{RetryIn, RetryReason};
use crate::store::StoreError;
use crate::sweep::{self, Healed, ReadUnits};

mod due;
mod note;
mod turn;

use due::{Due, Dues};
use turn::Turn;

/// Of a table whose scan costs more, buckets are swept less often, in proportion: 25 units a second for one bucket.
const UNITS_PER_HEAL: u64 = 200;

/// A table that another process found large has so many read units at least, or is scanned in as many parts: 7,500 have the longest spacing.
const LARGE: u64 = LONGEST_HEAL_SPACING.as_secs() / HEAL_EVERY.as_secs() * UNITS_PER_HEAL;

/// A caller counts as wanting slots for so long after it looked last, or was told to come back: long enough for one sweep more, so that
/// who asks now and then has the slot as soon as who waits for it.
const COMES_BACK: Duration = HEAL_EVERY;

/// A role that may not is asked again after that long: its policy may have been on the way.
const DENIED_FOR: Duration = Duration::from_secs(600);

/// What all buckets of a process have in common.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    /// The role may not; until then it is not tried again, in microseconds since the epoch.
    denied_until: AtomicI64,
    /// Read units that a scan of the table takes, as far as is known; 0 before the first.
    read_units: AtomicU64,
    /// For who waits for them.
    dues: Dues,
}

/// Whether somebody wants slots of a bucket that has none.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    state: Mutex<State>,
    /// Wakes the task for a try that is due.
    woken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Refusals that were not told of yet.
    refusals: u32,
    /// Until when somebody wants some, as far as is known.
    until: Timestamp,
    /// When this process last tried, and for how long it need not again.
    tried: Option<(Timestamp, Duration)>,
    is_tended: bool,
    /// While a try is due or under way.
    due: Option<Due>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nobody wants slots any more.
    Leave,
    Wait(Duration),
    Try,
}

/// A caller was refused, and may come back after the wait that it was told.
pub(crate) fn refused(inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn) {
    if retry.reason == RetryReason::NoFreeSlot {
        wanted(inner, entry, retry.wait, 1);
    }
}

/// A request was shed, and its caller is to come back: nobody asks the bucket itself, and a crashed holder's slots would be found by
/// nobody.
pub(crate) fn shed(inner: &Arc<Inner>, entry: &Arc<Entry>, retry_after: Duration) {
    looked_for(inner, entry, retry_after, 1);
}

/// A request was let through though nothing departs, or would have been shed: what is held may be a crashed holder's.
pub(crate) fn admitted_in_doubt(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    looked_for(inner, entry, Duration::ZERO, 0);
}

fn looked_for(inner: &Arc<Inner>, entry: &Arc<Entry>, wait: Duration, refusals: u32) {
    if entry.limit().is_some_and(|limit| limit.is_concurrent()) {
        wanted(inner, entry, wait.min(LONGEST_RETURN), refusals);
    }
}

/// Who is told to come back later than this is not waited for: whoever asks next makes another task.
const LONGEST_RETURN: Duration = Duration::from_secs(60);

/// A caller in line looked in vain, and will look again.
pub(crate) fn waits(inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn) {
    if retry.reason == RetryReason::NoFreeSlot {
        wanted(inner, entry, Duration::ZERO, 0);
    }
}

fn wanted(inner: &Arc<Inner>, entry: &Arc<Entry>, wait: Duration, refusals: u32) {
    if !inner.config.self_heal || inner.healing.is_denied(inner.now()) {
        return;
    }
    let now = inner.now();
    let mut state = entry.wanted.state();
    state.refusals = state.refusals.saturating_add(refusals);
    state.until = state.until.max(now.after(wait + COMES_BACK));
    let runtime = match (state.is_tended, Handle::try_current()) {
        (true, _) => None,
        (false, Ok(runtime)) => Some(runtime),
        // Without a runtime there is nobody to do it.
        (false, Err(_)) => return,
    };
    state.is_tended = true;
    let is_due = state.left(now).is_zero();
    if is_due {
        state.due.get_or_insert_with(|| inner.healing.dues.one());
    }
    // A runtime that is shutting down drops the task at once, which takes the lock.
    drop(state);
    match runtime {
        Some(runtime) => {
            let tended = Tended { inner: Arc::downgrade(inner), entry: Arc::clone(entry), is_left: false };
            runtime.spawn(tended.run());
        }
        // Its timer may stand still while the process is frozen, and the clock does not.
        None if is_due => entry.wanted.woken.notify_one(),
        None => {}
    }
}

/// The task of one bucket. Dropped, as with its runtime, the next refusal makes another.
struct Tended {
    inner: Weak<Inner>,
    entry: Arc<Entry>,
    is_left: bool,
}

impl Drop for Tended {
    fn drop(&mut self) {
        if !self.is_left {
            let mut state = self.entry.wanted.state();
            state.is_tended = false;
            state.due = None;
        }
    }
}

impl Tended {
    async fn run(mut self) {
        loop {
            let pause = {
                let Some(inner) = self.inner.upgrade() else { return };
                match self.entry.wanted.next(&inner) {
                    Next::Leave => {
                        self.is_left = true;
                        return;
                    }
                    Next::Wait(pause) => pause,
                    Next::Try => {
                        if !try_to_heal(&inner, &self.entry).await {
                            return;
                        }
                        continue;
                    }
                }
            };
            let _ = timeout(pause, self.entry.wanted.woken.notified()).await;
        }
    }
}

impl State {
    /// How long until the next try. A clock that was set back makes a try of the past one of the future: it counts as none.
    fn left(&self, now: Timestamp) -> Duration {
        let tried = self.tried.filter(|(at, _)| *at <= now);
        tried.map_or(Duration::ZERO, |(at, quiet)| quiet.saturating_sub(now.since(at)))
    }
}

impl Wanted {
    /// After a clock was set back, nobody wants slots for longer than he may have been told to wait.
    fn next(&self, inner: &Inner) -> Next {
        let now = inner.now();
        let mut state = self.state();
        if state.until > now.after(LONGEST_RETURN + COMES_BACK) {
            state.until = now.after(COMES_BACK);
        }
        if state.until < now {
            // Under the lock, so that whoever wants some from now on makes another task.
            state.is_tended = false;
            state.due = None;
            return Next::Leave;
        }
        let left = state.left(now);
        if left.is_zero() {
            state.due.get_or_insert_with(|| inner.healing.dues.one());
            return Next::Try;
        }
        state.due = None;
        Next::Wait(left)
    }

    fn tried(&self, at: Timestamp, quiet: Duration) {
        self.state().tried = Some((at, quiet));
    }

    /// The last try was dearer than was thought.
    fn lengthen(&self, quiet: Duration) {
        if let Some((_, known)) = &mut self.state().tried {
            *known = quiet;
        }
    }

    fn take_refusals(&self) -> u32 {
        std::mem::take(&mut self.state().refusals)
    }

    fn put_back(&self, refusals: u32) {
        let mut state = self.state();
        state.refusals = state.refusals.saturating_add(refusals);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Healing {
    /// What the scan of this turn will cost, as far as is known: in so many parts the table is scanned.
    fn expected(&self, turn: Turn) -> u64 {
        match self.read_units.load(Ordering::Relaxed) {
            0 if turn.was_dear() => LARGE,
            known => known,
        }
    }

    /// What a scan cost. One that was cut off says that the table is larger, and one of which no part was whole that they are too large.
    fn learn(&self, read_units: u64, healed: Healed) {
        let known = self.read_units.load(Ordering::Relaxed).max(read_units);
        let now = match healed {
            Healed { is_whole: true, .. } => read_units,
            Healed { parts_read: 0, .. } => known.saturating_mul(2),
            _ => known,
        };
        self.read_units.store(now, Ordering::Relaxed);
    }

    fn is_denied(&self, now: Timestamp) -> bool {
        now.micros() < self.denied_until.load(Ordering::Relaxed)
    }

    /// Said once: every try after that is as vain.
    fn deny(&self, error: &StoreError, now: Timestamp) {
        if self.denied_until.swap(now.after(DENIED_FOR).micros(), Ordering::Relaxed) == 0 {
            tracing::warn!(event = "heal.denied", %error, "this process heals no buckets; slots of crashed holders wait for the reconciler");
        }
    }
}

/// Notes the process, marks the bucket as being swept, and sweeps it where nobody else does. False where this process may not.
async fn try_to_heal(inner: &Inner, entry: &Entry) -> bool {
    let noted = note::write(inner, entry).await;
    let turn = if matches!(noted, Err(StoreError::AccessDenied { .. })) {
        noted.map(|()| None)
    } else {
        Turn::take(inner, entry).await
    };
    let (turn, result) = match turn {
        Ok(Some(turn)) => (Some(turn), sweep_it(inner, entry, turn).await),
        Ok(None) => (None, Ok(())),
        Err(error) => (None, Err(error)),
    };
    match result {
        Ok(()) => true,
        Err(error @ StoreError::AccessDenied { .. }) => {
            metrics::healed(entry, "denied");
            inner.healing.deny(&error, inner.now());
            if let Some(turn) = turn {
                turn.give_back(inner, entry).await;
            }
            false
        }
        Err(error) => {
            metrics::healed(entry, "failed");
            tracing::debug!(event = "heal.failed", dimension = %entry.dimension, %error);
            true
        }
    }
}

async fn sweep_it(inner: &Inner, entry: &Entry, turn: Turn) -> Result<(), StoreError> {
    let read_units = ReadUnits::default();
    let mut sweep = pin!(sweep::heal(inner, &entry.dimension, inner.healing.expected(turn), &read_units));
    let result = match timeout(LONG, &mut sweep).await {
        Ok(result) => result,
        Err(_) => tokio::join!(sweep, turn.put_off(inner, entry, spacing(read_units.load(Ordering::Relaxed)))).0,
    };
    let read_units = read_units.load(Ordering::Relaxed);
    if read_units > 0 {
        // Whatever became of it.
        turn.put_off(inner, entry, spacing(read_units)).await;
    }
    let healed = result?;
    if read_units > 0 {
        inner.healing.learn(read_units, healed);
    }
    if read_units > 0 && healed.is_whole {
        turn.was_cheap(inner, entry, spacing(read_units)).await;
    }
    let Healed { restored, is_whole, .. } = healed;
    metrics::healed(entry, if restored > 0 { "restored" } else { "nothing" });
    if restored > 0 {
        entry.slots_reclaimed();
        tracing::info!(event = "heal.restored", dimension = %entry.dimension, leases = restored, is_whole);
    } else {
        tracing::debug!(event = "heal.complete", dimension = %entry.dimension, read_units, is_whole);
    }
    Ok(())
}

/// A sweep that takes longer tells in the middle what it has cost so far: others would else begin beside it, and nobody would know if
/// its process ended.
const LONG: Duration = Duration::from_secs(1);

/// How long a bucket is left alone after a sweep of so many read units.
fn spacing(read_units: u64) -> Duration {
    let times = u32::try_from(read_units.div_ceil(UNITS_PER_HEAL)).unwrap_or(u32::MAX);
    HEAL_EVERY.saturating_mul(times).clamp(HEAL_EVERY, LONGEST_HEAL_SPACING)
}
