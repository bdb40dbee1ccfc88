//! Lowers a bucket to what the headers of a reply say is left.

use std::sync::{Arc, OnceLock};

use sluice_core::{
    Amount, Cost, Dimension, Limit, Observation, RatePlanner, RateReceipt, Remaining, ShareName, Timestamp,
};
use sluice_table::{Resend, Written};
use sluice_vendors::{Headers, Quota, Reported};
use tokio::time::timeout;

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::grant::Grant;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part, line_of};
use crate::lane::reading::{apply_read, known, unknown};
use crate::lane::{shadow, slot_lines};
use crate::telemetry;

pub(crate) mod limit;

use limit::{observe_limit, strictest};

/// The reply to the latest call of a bucket. Locked while a vendor's reply is compared with the bucket.
#[derive(Debug, Default)]
struct LatestReply(tokio::sync::Mutex<Option<Remaining>>);

/// Whether a reply whose limits are not understood was reported.
#[derive(Debug, Default)]
struct UnknownHeaders(OnceLock<()>);

impl UnknownHeaders {
    /// Counts the reply, and logs the first: a bucket that hears nothing from its vendor looks like one that
    /// agrees.
    fn report(&self, entry: &Entry, header: &str) {
        telemetry::vendor_unknown(entry.label());
        self.0.get_or_init(|| {
            tracing::warn!(event = "vendor.unknown_headers", dimension = %entry.dimension, header, vendor = entry.vendor.vendor,
                "the vendor reports its limits in headers that its profile does not read: give the bucket the vendor's name, or a \
                 profile in SLUICE_VENDORS");
        });
    }
}

/// What a vendor's reply said about one bucket, and what it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// The effect of the remaining quota that the vendor reported.
    pub level: ObservedLevel,
    /// The effect of the limit that the vendor reported.
    pub limit: ObservedLimit,
    /// Number of headers that could not be read. They changed nothing.
    pub unreadable: usize,
}

/// What the vendor's count did to the bucket's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservedLevel {
    /// The reply did not say what is left, or the bucket is a concurrency bucket, whose slots leases count.
    NotSaid,
    /// No grant was named, or one made while DynamoDB was out, so it is unknown which calls the vendor had
    /// counted.
    NoGrant,
    /// The bucket is as low as the vendor says, or lower, to within one call. No request was needed.
    Agrees,
    /// The bucket was lowered by this amount.
    Lowered(Amount),
    /// The reply is older than what happened to the bucket since. Or the grant was taken in a transaction
    /// (`SLUICE_LEASES=all`, or a slot with its tokens) or carried as a ticket, so it is unknown which calls
    /// the vendor counted.
    Stale,
}

/// How the vendor's limit compares with the bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservedLimit {
    /// The reply did not state a limit.
    NotSaid,
    /// The vendor's limit is the bucket's limit, or higher.
    NotLower,
    /// The vendor's limit is lower than the bucket's. It is noted in the bucket's row, for `sluice doctor`.
    Lower(Amount),
    /// The vendor's lower limit is the bucket's now, as the bucket asks for (`adopt_lower_limit`). If the
    /// bucket's floor (`adopt_at_least`) is higher, the floor is the bucket's limit.
    Adopted(Amount),
}

/// The position of a call among those that the bucket counts.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) dimension: Dimension,
    /// The bucket as the call's share sees it: the call's own replies keep that reading new.
    entry: Arc<Entry>,
    receipt: RateReceipt,
    pub(crate) start: Timestamp,
}

impl Mark {
    /// The line that its tokens are of.
    pub(crate) fn paid_from(&self) -> &str {
        line_of(&self.receipt)
    }

    pub(crate) const fn cost(&self) -> Cost {
        self.receipt.cost()
    }

    /// The share that pays; `None` is the common line.
    pub(crate) fn share(&self) -> Option<&ShareName> {
        self.entry.share.as_ref()
    }

    pub(crate) fn of(part: &Part) -> Option<Self> {
        let Hold::Tokens { receipt, .. } = &part.hold else { return None };
        let entry = Arc::clone(part.payer());
        Some(Self {
            dimension: entry.dimension.clone(),
            entry,
            receipt: receipt.clone(),
            start: part.start_at,
        })
    }
}

impl Client {
    /// Applies the rate-limit headers of a vendor's reply to a call made under `grant`. The first part of the
    /// dimension's name identifies the vendor: see [`Vendors::of`](sluice_vendors::Vendors::of).
    ///
    /// If the vendor has less left than the bucket counts, a write lowers the bucket; it is never raised.
    /// Calls that the vendor has not counted yet stay counted once, whatever the order of replies. A lower
    /// limit is reported (event `vendor.limit_lower`, metric `sluice.vendor.limit_lower`, `sluice doctor`),
    /// and becomes the bucket's if the bucket says so. Missing or unreadable headers change nothing. If both
    /// agree, no request is made.
    ///
    /// Takes at most an attempt (1 s) and a request (4.2 s) while DynamoDB does not answer, and an attempt
    /// and seven requests while others conflict. In the second case, an unknown bucket takes one more of
    /// each.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, one of which the grant holds nothing
    /// ([`RequestError::NotHeld`]), a row that cannot be read, or a table that does not answer.
    pub async fn observe(
        &self,
        dimension: &str,
        headers: &impl Headers,
        grant: Option<&Grant>,
    ) -> Result<Observed, AcquireError> {
        match grant {
            Some(grant) => grant.observe(dimension, headers).await,
            None => observe_or_spare(&self.inner, dimension, headers, None).await,
        }
    }
}

impl Grant {
    /// Applies the rate-limit headers of the vendor's reply to the call, as [`Client::observe`] does.
    ///
    /// # Errors
    /// As for [`Client::observe`].
    pub async fn observe(&self, dimension: &str, headers: &impl Headers) -> Result<Observed, AcquireError> {
        let part = self.parts().iter().find(|part| part.entry.asked().as_str() == dimension);
        if part.is_none() && self.basis() == Basis::Table {
            return Err(RequestError::NotHeld(dimension.to_owned()).into());
        }
        observe_or_spare(self.inner(), dimension, headers, part.and_then(Mark::of)).await
    }
}

/// As [`observe`]; in shadow mode, a failure is counted and no error.
pub(crate) async fn observe_or_spare(
    inner: &Inner,
    dimension: &str,
    headers: &impl Headers,
    mark: Option<Mark>,
) -> Result<Observed, AcquireError> {
    let observed = observe(inner, dimension, headers, mark).await;
    let nothing = || Observed { level: ObservedLevel::NotSaid, limit: ObservedLimit::NotSaid, unreadable: 0 };
    shadow::or_in_shadow(inner, observed, nothing)
}

pub(crate) async fn observe(
    inner: &Inner,
    dimension: &str,
    headers: &impl Headers,
    mark: Option<Mark>,
) -> Result<Observed, AcquireError> {
    let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
    let own = inner.entry(&dimension);
    let entry = mark.as_ref().map_or_else(|| Arc::clone(&own), |mark| Arc::clone(&mark.entry));
    // The vendor knows no shares.
    let entry = slot_lines::whole(inner, &entry);
    let limit = known(inner, &entry).await?.bucket.limit_at_vendor();
    entry.unsettled.heard();
    let quota = Quota::of(&dimension, limit.limit_type());
    let reading = sluice_vendors::read(&entry.vendor, quota, headers, inner.now());
    if let Some(header) = sluice_vendors::unknown_header(&entry.vendor, headers) {
        entry.extensions.of::<UnknownHeaders>().report(&entry, header);
    }
    for unreadable in &reading.unreadable {
        telemetry::vendor_unreadable(entry.label());
        tracing::warn!(event = "vendor.unreadable_header", %dimension, %unreadable);
    }
    // Of many replies, the first lowers the bucket. One that hangs delays the others by one attempt at most.
    let latest = own.extensions.of::<LatestReply>();
    let mut in_turn = timeout(inner.store.attempt().of_rows(), latest.0.lock()).await.ok();
    let said = strictest(&limit, &reading.reported);
    let level = observe_level(inner, &entry, &limit, &said, mark, in_turn.as_deref_mut()).await?;
    let limit = observe_limit(inner, &entry, &limit, &said).await?;
    Ok(Observed { level, limit, unreadable: reading.unreadable.len() })
}

async fn observe_level(
    inner: &Inner,
    entry: &Entry,
    limit: &Limit,
    reported: &Reported,
    mark: Option<Mark>,
    newest: Option<&mut Option<Remaining>>,
) -> Result<ObservedLevel, AcquireError> {
    let Some(left) = reported.remaining.filter(|_| !limit.is_concurrent()) else {
        return Ok(ObservedLevel::NotSaid);
    };
    let Some(mark) = mark else { return Ok(ObservedLevel::NoGrant) };
    // Up to half of the unit to which the vendor rounds may be left in addition.
    let left = left.plus(reported.rounded_to.half());
    let remaining = Remaining { receipt: mark.receipt, start: mark.start, left };
    if let Some(newest) = newest {
        // The row knows the newest reply that lowered it; only the process knows the replies that agreed.
        if newest.as_ref().is_some_and(|newest| remaining.is_older_than(newest)) {
            return Ok(ObservedLevel::Stale);
        }
        if remaining.receipt.is_shown() {
            *newest = Some(remaining.clone());
        }
    }
    let mut tries = inner.store.tries();
    while tries.another() {
        let bucket = known(inner, entry).await?.bucket;
        let (by, update) = match RatePlanner::new(&bucket).observe(
            &remaining,
            inner.config.longest_cool_down,
            inner.time().await?,
        ) {
            Observation::Agrees => return Ok(ObservedLevel::Agrees),
            Observation::Stale => return Ok(ObservedLevel::Stale),
            Observation::Lower(by, update) => (by, update),
        };
        // If the write is sent again after a lost reply, it fails on its own condition.
        match inner.store.update(&update, Resend::Always).await? {
            Written::Applied(row) => {
                let after = crate::lane::reading::parse(entry, &row)?;
                entry.apply_write(Arc::new(after), inner.now());
                telemetry::vendor_lowered(entry.label());
                tracing::info!(event = "vendor.lowered", dimension = %entry.dimension, %by, vendor_left = %left);
                return Ok(ObservedLevel::Lowered(by));
            }
            Written::ConditionFailed(Some(row)) => drop(apply_read(inner, entry, &row)?),
            Written::ConditionFailed(None) => return Err(unknown(inner, entry)),
        }
    }
    Ok(ObservedLevel::Stale)
}
