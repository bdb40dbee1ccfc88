//! Whose turn it is to sweep a bucket: the mark on its load row.

use std::time::Duration;

use sluice_core::{Timestamp, mark, mark_anew, unmark};

use crate::cache::Entry;
use crate::client::Inner;
use crate::metrics;
use crate::store::{Attributes, IfAmbiguous, StoreError, Written};

/// All processes that the bucket refuses wait for the same instant; they try within so many milliseconds after it, and find, most of
/// them, that one has been there.
const APART_MS: u64 = 1_000;

/// A mark that is nearly over is not asked for more often than this.
const MOMENT: Duration = Duration::from_millis(100);

/// This process's turn, by its mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    at: Timestamp,
}

impl Turn {
    /// Marks the bucket, where no other process has of late. A mark that is sent again after a lost reply finds itself.
    pub(super) async fn take(inner: &Inner, entry: &Entry) -> Result<Option<Self>, StoreError> {
        let (now, spacing, refusals) = (inner.now(), inner.healing.spacing(), entry.wanted.take_refusals());
        entry.wanted.tried(now, spacing);
        let update = mark(&entry.dimension, refusals, spacing, now);
        let mut in_doubt = false;
        let mut written = inner.store.update_noting(&update, IfAmbiguous::SendAgain, &mut in_doubt).await;
        if let Ok(Written::ConditionFailed(Some(row))) = &written
            && let Some(anew) = mark_anew(&entry.dimension, &Attributes(row), refusals, spacing, now)
        {
            written = inner.store.update_noting(&anew, IfAmbiguous::SendAgain, &mut in_doubt).await;
        }
        let row = match written {
            Ok(Written::Applied(row)) => {
                entry.saw_load(&row, inner.now());
                return Ok(Some(Self { at: now }));
            }
            Ok(Written::ConditionFailed(row)) => row.unwrap_or_default(),
            Err(error) => {
                entry.wanted.put_back(refusals);
                return Err(error);
            }
        };
        let load = entry.saw_load(&row, inner.now());
        let marked_at = load.healed_at();
        if in_doubt && marked_at == Some(now) {
            return Ok(Some(Self { at: now }));
        }
        entry.wanted.put_back(refusals);
        metrics::healed(entry, "left");
        // Right after the other's time is over, and not a whole time after this try.
        let since = now.since(marked_at.unwrap_or(now));
        let apart = Duration::from_millis(fastrand::u64(0..APART_MS));
        entry.wanted.tried(now, spacing.saturating_sub(since).max(MOMENT) + apart);
        Ok(None)
    }

    /// Leaves it to others, who would else find a fresh mark and wait for a sweep that is not made. Where this fails, they wait once.
    pub(super) async fn give_back(self, inner: &Inner, entry: &Entry) {
        if let Err(error) = inner.store.update(&unmark(&entry.dimension, self.at), IfAmbiguous::SendAgain).await {
            tracing::debug!(event = "heal.turn_kept", dimension = %entry.dimension, %error);
        }
    }
}
