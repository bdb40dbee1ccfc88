//! Expired holders: holders whose lease ended while their call went on. They are counted in metrics and in
//! the load row, where the next sweep reads the count and reports it to an operator.

use std::sync::Arc;

use sluice_core::{Dimension, note_expired_holders, replace_expired_holders};
use sluice_table::{Attributes, Resend, Store, StoreError, Written};
use tokio::runtime::Handle;

use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::task::boxed;
use crate::telemetry;

/// Counts a holder that found its lease gone. The caller does not wait; a lost write is one count fewer.
pub(crate) fn found(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    telemetry::expired_but_alive(entry.label());
    if !entry.limit().is_some_and(|limit| limit.is_concurrent()) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
    runtime.spawn(boxed(async move {
        if let Err(error) = note(&inner.store, &entry.dimension).await {
            tracing::debug!(event = "lease.outlived_untold", dimension = %entry.dimension, %error);
        }
    }));
}

/// Adds one to the count in the load row. The sum is sent once. The write that replaces an invalid count may
/// be sent again: it then finds a valid count and does nothing.
async fn note(store: &Store, dimension: &Dimension) -> Result<(), StoreError> {
    if let Written::ConditionFailed(Some(row)) =
        store.update(&note_expired_holders(dimension, 1), Resend::UnlessAmbiguous).await?
        && let Some(anew) = replace_expired_holders(dimension, &Attributes(&row), 1)
    {
        store.update(&anew, Resend::Always).await?;
    }
    Ok(())
}
