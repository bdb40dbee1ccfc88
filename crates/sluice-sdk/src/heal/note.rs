//! The note of this process in a bucket's load row: its refusals, and itself as one that wants slots.

use sluice_core::{clear_refusals, note, note_again};
use sluice_table::{Attributes, Item, Resend, StoreError, Written};

use crate::heal::wanted::Wanted;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;

/// Tries of one note: fewer than other changes have. A note that fails is written again a period later, and
/// hundreds of processes that begin a period together would pay for each other's failed tries.
const TRIES: u32 = 6;

/// Writes the note of this process, with the number of callers that were refused since its last note, if any
/// caller asked since. The reply states how many processes want slots, and shows the load row. A note whose
/// reply is lost is sent again, and may count twice for a period or two.
pub(super) async fn write(inner: &Inner, entry: &Entry, wanted: &Wanted) -> Result<(), StoreError> {
    let Some(refusals) = wanted.take_asked() else { return Ok(()) };
    let noted = try_to_write(inner, entry, refusals).await;
    match noted {
        Ok(Some(row)) => {
            let now = inner.now();
            entry.load.apply_crowd(entry.apply_load(&row, now).crowd(now));
            tracing::debug!(event = "heal.noted", dimension = %entry.dimension, crowd = entry.load.crowd());
            Ok(())
        }
        // The next note carries the refusals.
        Ok(None) => {
            wanted.put_back(refusals);
            Ok(())
        }
        Err(error) => {
            wanted.put_back(refusals);
            Err(error)
        }
    }
}

/// The row as the note left it; `None` if other processes were faster in every try. Processes that begin a
/// period at the same time make each other's writes fail, and a refusal count that is not a number takes one
/// more try.
async fn try_to_write(inner: &Inner, entry: &Entry, refusals: u32) -> Result<Option<Item>, StoreError> {
    let (dimension, now) = (&entry.dimension, inner.time().await?);
    let mut update = note(dimension, refusals, now);
    for _ in 0..TRIES {
        let row = match inner.store.update(&update, Resend::Always).await? {
            Written::Applied(row) => return Ok(Some(row)),
            Written::ConditionFailed(row) => row.unwrap_or_default(),
        };
        let row = Attributes(&row);
        if let Some(clear) = clear_refusals(dimension, &row) {
            inner.store.update(&clear, Resend::Always).await?;
        }
        update = note_again(dimension, &row, refusals, now);
    }
    Ok(None)
}
