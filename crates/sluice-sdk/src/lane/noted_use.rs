//! What this process uses of a bucket, noted in the bucket's load row: at most once a minute, in the
//! background, and not by a process that uses nothing. Operators see who used what, and the replies tell how
//! many processes there are, of which each has a share while DynamoDB is out ([`fallback`](super::fallback)).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_core::{
    Amount, Cost, NOTE_USE_EVERY, Timestamp, USE_PERIOD, Use, note_use, note_use_again, period_of_use,
};
use sluice_table::{Attributes, Resend, StoreError, Written};
use tokio::runtime::Handle;

use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part};
use crate::lane::task::boxed;

/// Tries of one note. A note that fails is part of the next.
const TRIES: u32 = 4;

/// The notes of a client.
#[derive(Debug, Default)]
struct Notes {
    /// Whether a task waits for the next round.
    is_tended: AtomicBool,
    /// Whether the role may not write notes; then this process writes none.
    is_denied: AtomicBool,
}

/// Counts the tokens of a part that a call was granted, also those that were borrowed: a process counts once
/// for each share that it uses, not for those that it borrows of. Slots are counted when they come back.
pub(crate) fn granted(inner: &Arc<Inner>, part: &Part) {
    if let Hold::Tokens { .. } = part.hold {
        changed(inner, part.payer(), part.cost.amount());
    }
}

/// Takes back what was counted of a part whose call was not made.
pub(crate) fn not_used(inner: &Arc<Inner>, part: &Part) {
    if let Hold::Tokens { counts, .. } = part.hold {
        changed(inner, part.payer(), Amount::ZERO.minus(counts));
    }
}

/// Counts slots that came back, for the time for which they were held.
pub(super) fn slots_back(inner: &Arc<Inner>, entry: &Arc<Entry>, cost: Cost, held: Duration) {
    let product = i128::from(cost.amount().micros()) * i128::try_from(held.as_micros()).unwrap_or(i128::MAX);
    let slot_seconds = i64::try_from(product / 1_000_000).unwrap_or(i64::MAX);
    changed(inner, entry, Amount::from_micros(slot_seconds));
}

/// Counts a change of what was used: less than nothing if tokens came back.
pub(super) fn changed(inner: &Arc<Inner>, entry: &Arc<Entry>, change: Amount) {
    if !inner.config.note_use && !inner.config.on_unavailable.is_share() {
        return;
    }
    let noted = &entry.noted_use;
    noted.micros.fetch_add(change.micros(), Ordering::Relaxed);
    if noted.is_due.load(Ordering::Relaxed) || noted.is_due.swap(true, Ordering::AcqRel) {
        return;
    }
    noted.since.store(inner.now().micros(), Ordering::Relaxed);
    let notes = inner.extensions.of::<Notes>();
    // Without a runtime, a later use begins the task.
    let Ok(runtime) = Handle::try_current() else { return noted.is_due.store(false, Ordering::Release) };
    if !notes.is_tended.swap(true, Ordering::AcqRel) {
        runtime.spawn(boxed(NextRound { inner: Arc::downgrade(inner), notes }.run()));
    }
}

/// The task of the next round, one for a client. It keeps no bucket in memory, and not the client. If its
/// runtime drops it, the next use begins another.
struct NextRound {
    inner: Weak<Inner>,
    notes: Arc<Notes>,
}

impl Drop for NextRound {
    fn drop(&mut self) {
        // In this order: a use in between begins the next round, or is part of this one.
        self.notes.is_tended.store(false, Ordering::Release);
        let entries = self.inner.upgrade().map(|inner| inner.cache.entries()).unwrap_or_default();
        entries.iter().for_each(|entry| entry.noted_use.is_due.store(false, Ordering::Release));
    }
}

impl NextRound {
    async fn run(self) {
        tokio::time::sleep(NOTE_USE_EVERY).await;
        let Some(inner) = self.inner.upgrade() else { return };
        // Before the notes: what is used while they are written begins the next round.
        drop(self);
        write_all(&inner).await;
    }
}

/// Writes the notes of all buckets of which something was used, also of those whose last note failed, and
/// rehearses an outage with each. One after the other: nobody waits for them.
pub(crate) async fn write_all(inner: &Inner) {
    for entry in inner.cache.entries() {
        let micros = &entry.noted_use.micros;
        if micros.load(Ordering::Relaxed) == 0 {
            continue;
        }
        match inner.config.note_use {
            true => write(inner, &entry).await,
            false => micros.store(0, Ordering::Relaxed),
        }
        inner.fallback.rehearse(inner, &entry, inner.now());
    }
}

/// Notes what was used since the last note.
async fn write(inner: &Inner, entry: &Entry) {
    let micros = &entry.noted_use.micros;
    let since = Timestamp::from_micros(entry.noted_use.since.load(Ordering::Relaxed));
    if inner.now().since(since) > USE_PERIOD * 2 {
        // The process was frozen, or its machine slept: that use is of a time that is no longer shown.
        micros.store(0, Ordering::Relaxed);
        return;
    }
    let notes = inner.extensions.of::<Notes>();
    if notes.is_denied.load(Ordering::Relaxed) {
        return;
    }
    let used = Amount::from_micros(micros.swap(0, Ordering::Relaxed));
    let put_back = || micros.fetch_add(used.micros(), Ordering::Relaxed);
    match try_to_write(inner, entry, used).await {
        Ok(true) => {}
        Ok(false) => drop(put_back()),
        Err(error @ StoreError::AccessDenied { .. }) => {
            if !notes.is_denied.swap(true, Ordering::Relaxed) {
                tracing::warn!(event = "use.denied", dimension = %entry.dimension, %error,
                    "this process notes no use: allow dynamodb:UpdateItem on the load rows, or set SLUICE_NOTE_USE=off");
            }
        }
        // If the note may have been applied, it must not count twice.
        Err(StoreError::Unavailable { maybe_applied: true, .. }) => {}
        Err(error) => {
            put_back();
            tracing::debug!(event = "use.unnoted", dimension = %entry.dimension, %error);
        }
    }
}

/// False if other processes were faster in every try.
async fn try_to_write(inner: &Inner, entry: &Entry, used: Amount) -> Result<bool, StoreError> {
    let (dimension, caller) = (&entry.dimension, inner.config.caller.as_str());
    let now: Timestamp = inner.time().await?;
    let counted_in = Some(entry.noted_use.counted_in.load(Ordering::Relaxed));
    let noted = Use { caller, used, counted_in };
    let mut update = note_use(dimension, noted, now);
    for _ in 0..TRIES {
        match inner.store.update(&update, Resend::UnlessAmbiguous).await? {
            Written::Applied(row) => {
                entry.noted_use.counted_in.store(period_of_use(now), Ordering::Relaxed);
                let processes = entry.apply_load(&row, now).processes(now);
                entry.load.apply_processes(processes, now);
                return Ok(true);
            }
            Written::ConditionFailed(row) => {
                update = note_use_again(dimension, &Attributes(&row.unwrap_or_default()), noted, now);
            }
        }
    }
    Ok(false)
}
