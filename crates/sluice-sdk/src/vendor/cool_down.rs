//! Cool-downs: the vendor asked for a pause, and the whole fleet keeps it.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, Timestamp};
use sluice_table::{Resend, Written};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{parse, refresh, unknown};

/// The result of setting a cool-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoolDown {
    /// Nothing is granted before this time.
    Set(Timestamp),
    /// The bucket was already blocked for longer, until this time.
    LongerAlready(Timestamp),
}

impl CoolDown {
    /// When the cool-down is over.
    #[must_use]
    pub const fn until(self) -> Timestamp {
        match self {
            Self::Set(until) | Self::LongerAlready(until) => until,
        }
    }
}

impl Client {
    /// Stops all grants of `dimension` for `pause` from now, to any process: for a vendor that asks for it. A
    /// longer cool-down is never cut short. What was granted may still be used; a start that was booked into
    /// the pause is booked again after it. Stock of other processes
    /// ([`ClientBuilder::prefetch`](crate::ClientBuilder::prefetch)) may be used up to one second more.
    ///
    /// Costs one write: at most two requests (4.2 s each), three if DynamoDB's time is not known.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, or a table that does not answer.
    pub async fn cool_down(&self, dimension: &str, pause: Duration) -> Result<CoolDown, AcquireError> {
        let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
        let entry = self.inner.entry(&dimension);
        let set = cool_down(&self.inner, &entry, self.inner.time().await?.after(pause)).await?;
        if let CoolDown::Set(until) = set {
            tracing::warn!(event = "cool_down.set", %dimension, %until);
        }
        Ok(set)
    }
}

pub(crate) async fn cool_down(inner: &Inner, entry: &Entry, until: Timestamp) -> Result<CoolDown, AcquireError> {
    let update = sluice_core::cool_down(&entry.dimension, until);
    // Setting the same end twice equals setting it once.
    match inner.store.update(&update, Resend::Always).await? {
        Written::Applied(row) => {
            entry.apply_write(Arc::new(parse(&entry.dimension, &row)?), inner.now());
            Ok(CoolDown::Set(until))
        }
        Written::ConditionFailed(Some(_)) => {
            let bucket = refresh(inner, entry).await?.bucket;
            Ok(CoolDown::LongerAlready(bucket.blocked_until().unwrap_or(until).max(until)))
        }
        Written::ConditionFailed(None) => Err(unknown(inner, entry)),
    }
}
