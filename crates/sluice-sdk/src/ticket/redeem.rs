//! Redeeming a ticket: once, by whoever is first.

use std::sync::Arc;

use sluice_core::{Bucket, Dimension, Judgement, RateReceipt, RowError, Ticket, TicketRow};
use tokio::time::{Duration, Instant};

use crate::acquire::AcquireError;
use crate::attempt::{contended, in_parallel, saw, unknown};
use crate::cache::Entry;
use crate::client::{Client, Inner};
use crate::grant::{Grant, Part, Uncalled};
use crate::outcome::{RetryIn, RetryReason};
use crate::store::{Attributes, IfAmbiguous, Item, StoreError, Written};

/// What came of a ticket.
#[derive(Debug)]
#[must_use = "a grant that is not used should be released, and a refusal waited for"]
#[non_exhaustive]
pub enum Redeemed {
    /// Call the vendor. The ticket is spent.
    Granted(Grant),
    /// Not yet: its start is still to come, or a bucket cools down. The ticket stays good, and is carried along
    /// ([`RetryIn::ticket`]).
    RetryIn(RetryIn),
    /// It was redeemed before, or its time has long passed and its row is gone. Nothing to do where a message was delivered
    /// twice; acquire anew where the work is not done.
    Spent,
    /// It is too late: some of what it held has run over the brim. Or the limits were changed. Acquire anew.
    Lapsed,
}

/// Why a ticket could not be judged. It may be redeemed again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedeemError {
    /// The ticket's row cannot be read.
    #[error("the ticket's row {key} cannot be read: {source}; acquire anew")]
    CorruptTicket {
        /// The row.
        key: String,
        /// The attribute, and what is wrong with it.
        source: RowError,
    },
    /// The ticket's text names other dimensions than its row: it was changed on the way.
    #[error("the ticket names other dimensions than its row {key} holds tokens of; acquire anew")]
    Altered {
        /// The row.
        key: String,
    },
    /// A bucket is gone or cannot be read, or the table did not answer. Where it may have been applied, the ticket may be spent.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl From<StoreError> for RedeemError {
    fn from(error: StoreError) -> Self {
        Self::Acquire(error.into())
    }
}

impl Client {
    /// Takes up a start that was booked with [`ticket_within`](crate::Request::ticket_within), by this process or another, without
    /// acquiring again. Never waits. One round trip of reads and one write; too early or too late by its own text, no request.
    ///
    /// However often a ticket is redeemed, and however many do so at once, it is granted once. It is good from its start until what
    /// it holds would run over the brim of its bucket, at most `(capacity - cost) / refill_rate` later, see
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
    /// # Errors
    /// [`RedeemError`]: a row that cannot be read, a bucket that is gone, a table that does not answer.
    pub async fn redeem(&self, ticket: &Ticket) -> Result<Redeemed, RedeemError> {
        let now = self.inner.now();
        if ticket.start_at() > now {
            let first = &ticket.dimensions()[0];
            let wait = ticket.start_at().since(now);
            return Ok(Redeemed::RetryIn(retry(ticket, wait, first, RetryReason::Exhausted)));
        }
        if ticket.use_by() < now {
            return Ok(Redeemed::Lapsed);
        }
        let (inner, owned) = (Arc::clone(&self.inner), ticket.clone());
        // On its own task: a caller that goes away in the middle gives back what it has redeemed.
        let redeemed = match tokio::spawn(async move { redeem(&inner, &owned).await }).await {
            Ok(redeemed) => redeemed,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => std::future::pending().await,
        };
        let answer = match redeemed {
            Ok(Claim::Mine(mut held)) => held.take().map_or(Redeemed::Spent, Redeemed::Granted),
            Ok(Claim::Not(answer)) => answer,
            Err(RedeemError::Acquire(AcquireError::Store(StoreError::Contended { .. }))) => {
                let told = contended(&ticket.dimensions()[0]).with_ticket(Some(ticket.clone()));
                Redeemed::RetryIn(told)
            }
            Err(error) => return Err(error),
        };
        tracing::debug!(event = "ticket.redeem", key = ticket.key(), outcome = answer.as_str());
        Ok(answer)
    }
}

impl Redeemed {
    /// The grant, if it is one.
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

/// What one call has of a ticket.
enum Claim {
    /// A grant, which is given back where nobody waits for it any more.
    Mine(Uncalled),
    Not(Redeemed),
}

async fn redeem(inner: &Arc<Inner>, ticket: &Ticket) -> Result<Claim, RedeemError> {
    let began = Instant::now();
    let entries: Vec<Arc<Entry>> = ticket.dimensions().iter().map(|dimension| inner.entry(dimension)).collect();
    let key = ticket.key();
    let (row, buckets) = tokio::join!(inner.store.read(&key), read(inner, &entries));
    let Some(row) = row? else { return Ok(Claim::Not(Redeemed::Spent)) };
    let row =
        TicketRow::read(&Attributes(&row)).map_err(|source| RedeemError::CorruptTicket { key: key.clone(), source })?;
    if !row.is_good() {
        return Ok(Claim::Not(Redeemed::Spent));
    }
    let buckets = in_order(&row, buckets?).ok_or(RedeemError::Altered { key })?;
    let good = match row.judge(&buckets, inner.now()) {
        Judgement::Good(good) => good,
        Judgement::Lapsed => return Ok(Claim::Not(Redeemed::Lapsed)),
        Judgement::Wait { wait, dimension, cooling_down } => {
            let reason = if cooling_down { RetryReason::CoolingDown } else { RetryReason::Exhausted };
            return Ok(Claim::Not(Redeemed::RetryIn(retry(ticket, wait, &dimension, reason))));
        }
    };
    if !claim(inner, &row).await? {
        return Ok(Claim::Not(Redeemed::Spent));
    }
    // The write may have taken its time, and the process may have been frozen: what was good then may have lapsed.
    let good = match row.judge(&buckets, inner.now()) {
        Judgement::Lapsed => return Ok(Claim::Not(Redeemed::Lapsed)),
        Judgement::Good(good) => good,
        Judgement::Wait { .. } => good,
    };
    Ok(Claim::Mine(grant(inner, good, began.elapsed())))
}

/// The buckets as they are, read side by side.
async fn read(inner: &Arc<Inner>, entries: &[Arc<Entry>]) -> Result<Vec<Arc<Bucket>>, AcquireError> {
    let reads = entries.iter().map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move {
            let row = inner.store.read(entry.dimension.as_str()).await?;
            saw(&inner, &entry, &row.ok_or_else(|| unknown(&inner, &entry))?)
        }
    });
    in_parallel(reads.collect()).await.into_iter().collect()
}

/// The readings in the order of the row's parts; `None` where they are of other dimensions.
fn in_order(row: &TicketRow, mut buckets: Vec<Arc<Bucket>>) -> Option<Vec<Arc<Bucket>>> {
    buckets.sort_by(|a, b| a.dimension().cmp(b.dimension()));
    let of_row = row.parts().iter().map(sluice_core::Booked::dimension);
    of_row.eq(buckets.iter().map(|bucket| bucket.dimension())).then_some(buckets)
}

/// Makes the ticket this call's own. False where it is someone else's.
async fn claim(inner: &Arc<Inner>, row: &TicketRow) -> Result<bool, StoreError> {
    let by = inner.config.lease_ids.next();
    let by = by.as_str();
    let is_mine = |seen: &Item| TicketRow::read(&Attributes(seen)).is_ok_and(|seen| seen.is_redeemed_by(by));
    match inner.store.update(&row.redeem(by, inner.now()), IfAmbiguous::SendAgain).await? {
        Written::Applied(_) => {}
        // An earlier send of this very request, whose reply was lost.
        Written::ConditionFailed(Some(seen)) if is_mine(&seen) => {}
        Written::ConditionFailed(_) => return Ok(false),
    }
    // Nobody waits for it: DynamoDB deletes the row by itself, if later.
    let (inner, delete) = (Arc::clone(inner), row.delete(by));
    tokio::spawn(async move {
        if let Err(error) = inner.store.delete(&delete).await {
            tracing::debug!(event = "ticket.row_left", key = delete.key, %error);
        }
    });
    Ok(true)
}

fn grant(inner: &Arc<Inner>, receipts: Vec<RateReceipt>, took: Duration) -> Uncalled {
    let now = inner.now();
    let part = |receipt: RateReceipt| Part::from_stock(inner.entry(receipt.dimension()), receipt, now);
    let parts = receipts.into_iter().map(part).collect();
    let mut held = Uncalled::default();
    held.join(Grant::of(Arc::clone(inner), parts, now, Duration::ZERO, took));
    held
}

fn retry(ticket: &Ticket, wait: Duration, dimension: &Dimension, reason: RetryReason) -> RetryIn {
    RetryIn::new(wait, dimension.clone(), reason).with_ticket(Some(ticket.clone()))
}
