//! Cool-downs: the vendor asked for a pause, and the whole fleet keeps it.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, Dimension, Timestamp};
use sluice_table::{Resend, StoreError, Written};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, parse, refresh, unknown};
use crate::lane::slot_lines;

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

/// The result of ending a cool-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndedCoolDown {
    /// A cool-down was in force until this time, and is over.
    Ended(Timestamp),
    /// No cool-down was in force.
    NoneInForce,
}

impl Client {
    /// Stops all grants of `dimension` for `pause` from now, to any process: for a vendor that asks for it. A
    /// longer cool-down is never cut short ([`end_cool_down`](Self::end_cool_down) does that). What was
    /// granted may still be used; a start that was booked into the pause is booked again after it. Stock of
    /// other processes ([`ClientBuilder::prefetch`](crate::ClientBuilder::prefetch)) may be used up to one
    /// second more.
    ///
    /// Costs one write: at most two requests (4.2 s each), three if DynamoDB's time is not known. A
    /// concurrency bucket with shares takes one write more for each.
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

    /// Ends the cool-down of `dimension`, for every process. For an operator who knows that the vendor
    /// accepts calls again. Other processes learn of the end when they look at the row again: a new call
    /// within a second, a caller that waits within about four seconds.
    ///
    /// If the vendor asks for another pause at the same time, that pause is ended too, as far as the tries
    /// allow. Takes at most the time of three requests (4.2 s each).
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, or a table that does not answer. If other
    /// processes set a longer cool-down in every try, the error is
    /// [`StoreError::Contended`](crate::StoreError).
    pub async fn end_cool_down(&self, dimension: &str) -> Result<EndedCoolDown, AcquireError> {
        let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
        let ended = end_cool_down(&self.inner, &self.inner.entry(&dimension)).await?;
        if let EndedCoolDown::Ended(was_until) = ended {
            tracing::warn!(event = "cool_down.ended", %dimension, %was_until);
        }
        Ok(ended)
    }
}

/// Cools the bucket down: all of its rows, if it is a concurrency bucket with shares.
pub(crate) async fn cool_down(
    inner: &Inner,
    entry: &Arc<Entry>,
    until: Timestamp,
) -> Result<CoolDown, AcquireError> {
    // The reply shows which rows there are.
    let whole = slot_lines::whole(inner, entry);
    let (mut set, mut failure) = (cool_row(inner, &whole, until).await?, None);
    for row in slot_lines::other_rows(inner, &whole).await? {
        match cool_row(inner, &row, until).await {
            Ok(of_own) if row.dimension == entry.dimension => set = of_own,
            // The row of a share that is being declared or removed. One row that fails leaves the others no
            // less to do.
            Ok(_) | Err(AcquireError::UnknownDimension { .. }) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(set), Err)
}

async fn cool_row(inner: &Inner, entry: &Entry, until: Timestamp) -> Result<CoolDown, AcquireError> {
    let update = sluice_core::cool_down(&entry.dimension, until);
    // Setting the same end twice equals setting it once.
    match inner.store.update(&update, Resend::Always).await? {
        Written::Applied(row) => {
            for entry in inner.entries_of(&entry.dimension) {
                entry.apply_write(Arc::new(parse(&entry, &row)?), inner.now());
            }
            Ok(CoolDown::Set(until))
        }
        Written::ConditionFailed(Some(_)) => {
            let bucket = refresh(inner, entry).await?.bucket;
            Ok(CoolDown::LongerAlready(bucket.blocked_until().unwrap_or(until).max(until)))
        }
        Written::ConditionFailed(None) => Err(unknown(inner, entry)),
    }
}

async fn end_cool_down(inner: &Inner, entry: &Arc<Entry>) -> Result<EndedCoolDown, AcquireError> {
    let whole = slot_lines::whole(inner, entry);
    let (mut ended, mut failure) = (end_of_row(inner, &whole).await?, None);
    for row in slot_lines::other_rows(inner, &whole).await? {
        match end_of_row(inner, &row).await {
            Ok(EndedCoolDown::NoneInForce) | Err(AcquireError::UnknownDimension { .. }) => {}
            Ok(of_row) => ended = of_row,
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(ended), Err)
}

async fn end_of_row(inner: &Inner, entry: &Entry) -> Result<EndedCoolDown, AcquireError> {
    let mut bucket = refresh(inner, entry).await?.bucket;
    let now = inner.time().await?;
    let in_force = |bucket: &Bucket| bucket.blocked_until().filter(|until| *until > now);
    let (mut tries, mut ended) = (inner.store.tries(), EndedCoolDown::NoneInForce);
    while tries.another() {
        let Some(until) = in_force(&bucket) else { return Ok(ended) };
        ended = EndedCoolDown::Ended(until);
        // A second send finds no cool-down, or a later one, and removes neither.
        match inner.store.update(&sluice_core::end_cool_down(&entry.dimension, until), Resend::Always).await?
        {
            Written::Applied(row) => {
                apply_read(inner, entry, &row)?;
                return Ok(ended);
            }
            Written::ConditionFailed(Some(row)) => bucket = apply_read(inner, entry, &row)?,
            Written::ConditionFailed(None) => return Err(unknown(inner, entry)),
        }
    }
    let message = "the vendor asked for a longer pause in every try".to_owned();
    Err(StoreError::Contended { operation: "UpdateItem", message }.into())
}
