//! Whose turn it is to sweep a bucket: the mark on its load row.

use std::time::Duration;

use sluice_core::{HEAL_EVERY, Load, Timestamp, Update, heal_after, heal_as_usual, mark, mark_anew, unmark};

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
    /// An earlier sweep of the bucket was.
    was_dear: bool,
}

impl Turn {
    /// Marks the bucket, where no other process has of late. A mark that is sent again after a lost reply finds itself.
    pub(super) async fn take(inner: &Inner, entry: &Entry) -> Result<Option<Self>, StoreError> {
        let (now, refusals) = (inner.now(), 0);
        entry.wanted.tried(now, HEAL_EVERY);
        let update = mark(&entry.dimension, refusals, now);
        let mut in_doubt = false;
        let mut written = inner.store.update_noting(&update, IfAmbiguous::SendAgain, &mut in_doubt).await;
        if let Ok(Written::ConditionFailed(Some(row))) = &written
            && let Some(anew) = mark_anew(&entry.dimension, &Attributes(row), refusals, now)
        {
            written = inner.store.update_noting(&anew, IfAmbiguous::SendAgain, &mut in_doubt).await;
        }
        let row = match written {
            Ok(Written::Applied(row)) => {
                let load = entry.saw_load(&row, inner.now());
                return Ok(Some(Self::of(&load, now)));
            }
            Ok(Written::ConditionFailed(row)) => row.unwrap_or_default(),
            Err(error) => return Err(error),
        };
        let load = entry.saw_load(&row, inner.now());
        if in_doubt && load.healed_at() == Some(now) {
            return Ok(Some(Self::of(&load, now)));
        }
        metrics::healed(entry, "left");
        // Right after the other's time is over, and not a whole time after this try.
        let left = load.may_be_marked_at(now).since(now);
        // A row that cannot be read does not say when that is.
        let left = if left.is_zero() { HEAL_EVERY } else { left };
        let apart = Duration::from_millis(fastrand::u64(0..APART_MS));
        entry.wanted.tried(now, left.max(MOMENT) + apart);
        Ok(None)
    }

    fn of(load: &Load, at: Timestamp) -> Self {
        Self { at, was_dear: load.heal_after().is_some() }
    }

    /// Whether an earlier sweep of the bucket was dear.
    pub(super) const fn was_dear(self) -> bool {
        self.was_dear
    }

    /// Has all processes leave the bucket alone for `spacing`, where the table is large. Best effort: where it fails, another reads the
    /// table too soon.
    pub(super) async fn put_off(self, inner: &Inner, entry: &Entry, spacing: Duration) {
        if spacing > HEAL_EVERY {
            entry.wanted.lengthen(spacing);
            tell(inner, heal_after(&entry.dimension, self.at, spacing)).await;
        }
    }

    /// Where the sweep was as cheap as most, and an earlier one was not, the row says nothing of that any more.
    pub(super) async fn was_cheap(self, inner: &Inner, entry: &Entry, spacing: Duration) {
        if spacing <= HEAL_EVERY && self.was_dear {
            tell(inner, heal_as_usual(&entry.dimension, self.at)).await;
        }
    }

    /// Leaves it to others, who would else find a fresh mark and wait for a sweep that is not made. Where this fails, they wait once.
    pub(super) async fn give_back(self, inner: &Inner, entry: &Entry) {
        if let Err(error) = inner.store.update(&unmark(&entry.dimension, self.at), IfAmbiguous::SendAgain).await {
            tracing::debug!(event = "heal.turn_kept", dimension = %entry.dimension, %error);
        }
    }
}

async fn tell(inner: &Inner, update: Update) {
    if let Err(error) = inner.store.update(&update, IfAmbiguous::SendAgain).await {
        tracing::debug!(event = "heal.spacing_untold", key = update.key, %error);
    }
}
