//! Redeeming a ticket: once, by the first process that tries.

use std::sync::Arc;

use sluice_core::{Bucket, Dimension, Judgement, RateReceipt, RowError, Ticket, TicketRow};
use sluice_table::{Attributes, Item, Resend, StoreError, Written};
use tokio::time::{Duration, Instant};

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason, contended};
use crate::call::counted;
use crate::client::Client;
use crate::grant::{Grant, UnusedGrant};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::{Stopped, finished, in_parallel, stopped};
use crate::lane::part::Part;
use crate::lane::reading::{apply_read, unknown};
use crate::telemetry::Source;

/// The outcome of redeeming a ticket.
#[derive(Debug)]
#[must_use = "release a grant that is not used; after a refusal, wait as long as it says"]
#[non_exhaustive]
pub enum Redeemed {
    /// Call the vendor. The ticket is spent.
    Granted(Grant),
    /// Not yet: the start is still to come, or a bucket cools down. The ticket stays good, and the refusal
    /// contains it ([`RetryIn::ticket`]). If the refusal contains no ticket, because the table failed half
    /// way, acquire again after the wait.
    RetryIn(RetryIn),
    /// The ticket was redeemed before, or its time passed long ago and its row is gone. If a message was
    /// delivered twice, there is nothing to do; if the work is not done, acquire again.
    Spent,
    /// Too late: some of its tokens have overflowed. Or the limits were changed. Acquire again.
    Lapsed,
}

/// Why a ticket could not be judged. It may be redeemed again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedeemError {
    /// The ticket's row cannot be read.
    #[error("the ticket's row {key} cannot be read: {source}; acquire again without the ticket")]
    CorruptTicket {
        /// The row.
        key: String,
        /// The attribute, and what is wrong with it.
        source: RowError,
    },
    /// The text of the ticket names other dimensions than its row: the text was changed on the way.
    #[error("the ticket and its row {key} name different dimensions; acquire again without the ticket")]
    Altered {
        /// The row.
        key: String,
    },
    /// A bucket is gone or cannot be read, or the table did not answer. If the write may have been applied,
    /// the ticket may be spent.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl From<StoreError> for RedeemError {
    fn from(error: StoreError) -> Self {
        Self::Acquire(error.into())
    }
}

impl Client {
    /// Redeems a start that any process booked with [`ticket_within`](crate::Request::ticket_within), without
    /// acquiring again. Never waits. Makes reads, one write, and reads again, for a cool-down set in between.
    /// If the ticket's own text says too early or too late, makes no request.
    ///
    /// However often and by however many it is redeemed, a ticket is granted once. It is good from its start
    /// until its tokens would overflow the bucket, at most `(capacity - cost) / refill_rate` later: see
    /// [`Ticket::use_by`].
    ///
    /// ```no_run
    /// # async fn work(sluice: sluice_sdk::Client, carried: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// use sluice_sdk::{Redeemed, Ticket};
    ///
    /// let ticket: Ticket = carried.parse()?;
    /// match sluice.redeem(&ticket).await? {
    ///     Redeemed::Granted(grant) => drop(grant.release().await?), // after the call
    ///     Redeemed::RetryIn(retry) => println!("requeue, with the same ticket, for {:?}", retry.wait()),
    ///     _ => println!("acquire anew"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Takes at most the time of four requests (4.2 s each), and of one while DynamoDB does not answer.
    ///
    /// # Errors
    /// [`RedeemError`]: a row that cannot be read, a bucket that is gone, or a table that does not answer.
    pub async fn redeem(&self, ticket: &Ticket) -> Result<Redeemed, RedeemError> {
        // If the time is not known yet, the row gives the same answer one read later.
        if let Some(now) = self.inner.store.clock().known() {
            if ticket.start_at() > now {
                let first = &ticket.dimensions()[0];
                let wait = ticket.start_at().since(now);
                return Ok(Redeemed::RetryIn(retry(ticket, wait, first, RetryReason::Exhausted)));
            }
            if ticket.use_by() < now {
                return Ok(Redeemed::Lapsed);
            }
        }
        let (inner, owned) = (Arc::clone(&self.inner), ticket.clone());
        // On its own task: if the caller goes away half way, what was redeemed is given back.
        let redeemed = tokio::spawn(async move { redeem(&inner, &owned).await }).await;
        let redeemed = finished(redeemed).unwrap_or_else(|Stopped| Err(stopped("UpdateItem").into()));
        let answer = match redeemed {
            Ok(Redemption::Mine(mut held)) => held.take().map_or(Redeemed::Spent, Redeemed::Granted),
            Ok(Redemption::Not(answer)) => answer,
            Err(RedeemError::Acquire(AcquireError::Store(StoreError::Contended { .. }))) => {
                let refusal = contended(&ticket.dimensions()[0]).with_ticket(Some(ticket.clone()));
                Redeemed::RetryIn(refusal)
            }
            Err(error) => return Err(error),
        };
        match &answer {
            Redeemed::Granted(grant) => counted::granted(&self.inner, grant, Some(Source::Ticket)),
            Redeemed::RetryIn(retry) => counted::refused(&self.inner, retry),
            _ => {}
        }
        tracing::debug!(event = "ticket.redeem", key = ticket.key(), outcome = answer.as_str());
        Ok(answer)
    }
}

impl Redeemed {
    /// The grant, if the ticket was granted.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            _ => None,
        }
    }

    const fn as_str(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::RetryIn(_) => "retry_in",
            Self::Spent => "spent",
            Self::Lapsed => "lapsed",
        }
    }
}

/// What one call gets of a ticket.
enum Redemption {
    /// A grant. It is given back if nobody waits for it any more.
    Mine(UnusedGrant),
    Not(Redeemed),
}

async fn redeem(inner: &Arc<Inner>, ticket: &Ticket) -> Result<Redemption, RedeemError> {
    let began = Instant::now();
    let entries: Vec<Arc<Entry>> = ticket.dimensions().iter().map(|dimension| inner.entry(dimension)).collect();
    let key = ticket.key();
    let (row, buckets) = tokio::join!(inner.store.read(&key), read(inner, &entries));
    let Some(row) = row? else { return Ok(Redemption::Not(Redeemed::Spent)) };
    let row =
        TicketRow::read(&Attributes(&row)).map_err(|source| RedeemError::CorruptTicket { key: key.clone(), source })?;
    if !row.is_good() {
        return Ok(Redemption::Not(Redeemed::Spent));
    }
    let buckets = in_order(&row, buckets?).ok_or(RedeemError::Altered { key })?;
    let good = match row.judge(&buckets, inner.time().await?) {
        Judgement::Good(good) => good,
        Judgement::Lapsed => return Ok(Redemption::Not(Redeemed::Lapsed)),
        Judgement::Wait { wait, dimension, cooling_down } => {
            let reason = if cooling_down { RetryReason::CoolingDown } else { RetryReason::Exhausted };
            return Ok(Redemption::Not(Redeemed::RetryIn(retry(ticket, wait, &dimension, reason))));
        }
    };
    let by = inner.config.lease_ids.next();
    if !claim(inner, &row, by.as_str()).await? {
        return Ok(Redemption::Not(Redeemed::Spent));
    }
    if let Some((wait, dimension)) = cooling_down(inner, &entries).await {
        let ticket = match take_back(inner, &row, by.as_str()).await {
            TicketState::Good => Some(ticket.clone()),
            TicketState::SomeoneElses => return Ok(Redemption::Not(Redeemed::Spent)),
            TicketState::Lost => None,
        };
        let refusal = RetryIn::new(wait, dimension, RetryReason::CoolingDown).with_ticket(ticket);
        return Ok(Redemption::Not(Redeemed::RetryIn(refusal)));
    }
    // The requests may have been slow, or the process frozen: a good ticket may have lapsed.
    let good = match row.judge(&buckets, inner.time().await?) {
        Judgement::Lapsed => return Ok(Redemption::Not(Redeemed::Lapsed)),
        Judgement::Good(good) => good,
        Judgement::Wait { .. } => good,
    };
    Ok(Redemption::Mine(grant(inner, good, began.elapsed())))
}

/// Whether the vendor asked for a pause between the reads and the claim: the longest wait, and its bucket. If
/// the buckets cannot be read, the call is made: trouble of the limiter must not prevent it.
async fn cooling_down(inner: &Arc<Inner>, entries: &[Arc<Entry>]) -> Option<(Duration, Dimension)> {
    let buckets = read(inner, entries).await.ok()?;
    let now = inner.now();
    let wait = |bucket: Arc<Bucket>| {
        let until = bucket.blocked_until().filter(|until| *until > now)?;
        Some((until.since(now), bucket.dimension().clone()))
    };
    buckets.into_iter().filter_map(wait).max_by_key(|(wait, _)| *wait)
}

async fn read(inner: &Arc<Inner>, entries: &[Arc<Entry>]) -> Result<Vec<Arc<Bucket>>, AcquireError> {
    let reads = entries.iter().map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move {
            let row = inner.store.read(entry.dimension.as_str()).await?;
            apply_read(&inner, &entry, &row.ok_or_else(|| unknown(&inner, &entry))?)
        }
    });
    in_parallel(reads.collect()).await.map_err(|Stopped| stopped("GetItem"))?.into_iter().collect()
}

/// The buckets in the order of the row's parts; `None` if they are of other dimensions.
fn in_order(row: &TicketRow, mut buckets: Vec<Arc<Bucket>>) -> Option<Vec<Arc<Bucket>>> {
    buckets.sort_by(|a, b| a.dimension().cmp(b.dimension()));
    let of_row = row.parts().iter().map(sluice_core::Booked::dimension);
    of_row.eq(buckets.iter().map(|bucket| bucket.dimension())).then_some(buckets)
}

/// Marks the ticket as redeemed by `by`. Returns false if someone else has redeemed it.
async fn claim(inner: &Inner, row: &TicketRow, by: &str) -> Result<bool, StoreError> {
    let is_mine = |seen: &Item| TicketRow::read(&Attributes(seen)).is_ok_and(|seen| seen.is_redeemed_by(by));
    Ok(match inner.store.update(&row.redeem(by, inner.time().await?), Resend::Always).await? {
        Written::Applied(_) => true,
        // True if an earlier send of this request was applied and its reply was lost.
        Written::ConditionFailed(seen) => seen.is_some_and(|seen| is_mine(&seen)),
    })
}

/// The state of a ticket after its claim was taken back.
enum TicketState {
    Good,
    /// A send whose reply was lost took the claim back, and someone else has redeemed the ticket since.
    SomeoneElses,
    /// The state is unknown, or the row is gone: the tokens refill.
    Lost,
}

async fn take_back(inner: &Inner, row: &TicketRow, by: &str) -> TicketState {
    let seen = match inner.store.update(&row.take_back(by), Resend::Always).await {
        Ok(Written::Applied(row)) => Some(row),
        Ok(Written::ConditionFailed(seen)) => seen,
        Err(error) => {
            tracing::warn!(event = "ticket.lost", key = row.ticket().key(), %error);
            None
        }
    };
    match seen.map(|seen| TicketRow::read(&Attributes(&seen))) {
        Some(Ok(seen)) if seen.is_good() => TicketState::Good,
        Some(Ok(_)) => TicketState::SomeoneElses,
        Some(Err(_)) | None => TicketState::Lost,
    }
}

fn grant(inner: &Arc<Inner>, receipts: Vec<RateReceipt>, took: Duration) -> UnusedGrant {
    let now = inner.now();
    let part = |receipt: RateReceipt| Part::from_stock(inner.entry(receipt.dimension()), receipt, now);
    let parts = receipts.into_iter().map(part).collect();
    let mut held = UnusedGrant::default();
    held.join(Grant::of(Arc::clone(inner), parts, now, took));
    held
}

fn retry(ticket: &Ticket, wait: Duration, dimension: &Dimension, reason: RetryReason) -> RetryIn {
    RetryIn::new(wait, dimension.clone(), reason).with_ticket(Some(ticket.clone()))
}
