//! Redeeming a ticket: once, by the first process that tries.

use std::sync::Arc;

use sluice_core::{Bucket, Cost, Dimension, Judgement, RateReceipt, RowError, Ticket, TicketRow};
use sluice_table::{Attributes, Item, Resend, StoreError, Written};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::api::error::AcquireError;
use crate::api::error_kind::ErrorKind;
use crate::api::no_ticket::NoTicket;
use crate::api::refusal::{RetryIn, RetryReason, contended};
use crate::api::request::{Ask, Payer};
use crate::call::counted;
use crate::client::Client;
use crate::grant::outcome::Outcome;
use crate::grant::{Grant, UnusedGrant};
use crate::lane::attempt;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::{Stopped, finished, in_parallel, stopped};
use crate::lane::part::Part;
use crate::lane::per_bucket::RETURN_WAIT;
use crate::lane::reading::{apply_read, unknown};
use crate::lane::shadow;
use crate::lane::task::boxed;
use crate::lane::terms::Terms;
use crate::telemetry::Source;

/// The outcome of redeeming a ticket.
#[derive(Debug)]
#[must_use = "release a grant that is not used; after a refusal, wait as long as it says"]
#[non_exhaustive]
pub enum Redeemed {
    /// Call the vendor. The ticket is spent.
    Granted(Grant),
    /// Not yet: the start is still to come, a bucket cools down, or what was not booked is not there. The
    /// ticket stays good, and the refusal contains it ([`RetryIn::ticket`]). If the refusal contains no
    /// ticket ([`RetryIn::no_ticket`] says why), acquire again after the wait.
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

impl ErrorKind for RedeemError {
    fn kind(&self) -> &'static str {
        "redeem"
    }
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
    /// A ticket over several dimensions holds those that refused when it was booked. The others are taken
    /// now, as [`acquire`](Self::acquire) takes them, before the ticket is spent. If one of them refuses, the
    /// ticket stays good, and the refusal contains it as long as the wait ends before the ticket's end.
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
    /// Takes at most the time of four requests (4.2 s each), and of one while DynamoDB does not answer. With
    /// dimensions that were not booked, the time of an [`acquire`](Self::acquire) is added.
    ///
    /// In shadow mode ([`Mode`](crate::Mode)), the answer is [`Granted`](Redeemed::Granted),
    /// [`Spent`](Redeemed::Spent) or [`Lapsed`](Redeemed::Lapsed): a caller that would have to come back
    /// acquires anew, and is granted at once.
    ///
    /// # Errors
    /// [`RedeemError`]: a row that cannot be read, a bucket that is gone, or a table that does not answer.
    pub async fn redeem(&self, ticket: &Ticket) -> Result<Redeemed, RedeemError> {
        // A closed client grants nothing, in shadow mode too.
        let asking = self.inner.background.begin()?;
        let redeemed = self.redeem_when_due(ticket, asking).await;
        let redeemed = shadow::or_in_shadow(&self.inner, redeemed, || Redeemed::Lapsed)?;
        Ok(match redeemed {
            Redeemed::RetryIn(_) if self.inner.config.mode.is_shadow() => Redeemed::Lapsed,
            redeemed => redeemed,
        })
    }

    async fn redeem_when_due(
        &self,
        ticket: &Ticket,
        asking: TaskTrackerToken,
    ) -> Result<Redeemed, RedeemError> {
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
        let redeemed = tokio::spawn(boxed(async move {
            let _asking = asking;
            redeem(&inner, &owned).await
        }));
        let redeemed = redeemed.await;
        let redeemed = finished(redeemed).unwrap_or_else(|Stopped| Err(stopped("UpdateItem").into()));
        let answer = match redeemed {
            Ok(Redemption::Mine(mut held)) => held.take().map_or(Redeemed::Spent, Redeemed::Granted),
            Ok(Redemption::Not(answer)) => answer,
            Err(RedeemError::Acquire(AcquireError::Store(StoreError::Contended { .. }))) => {
                let refusal = contended(&ticket.dimensions()[0]).with_ticket(Ok(ticket.clone()));
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
    let entries: Vec<Arc<Entry>> =
        ticket.dimensions().iter().map(|dimension| inner.entry(dimension)).collect();
    let key = ticket.key();
    let (row, buckets) = tokio::join!(inner.store.read(&key), read(inner, &entries));
    let Some(row) = row? else { return Ok(Redemption::Not(Redeemed::Spent)) };
    let row = TicketRow::read(&Attributes(&row))
        .map_err(|source| RedeemError::CorruptTicket { key: key.clone(), source })?;
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
    let mut held = UnusedGrant::default();
    match take_rest(inner, &row).await? {
        None => {}
        Some(Outcome::Granted(grant)) => held.join(grant),
        Some(Outcome::RetryIn(retry)) => {
            return Ok(Redemption::Not(Redeemed::RetryIn(rest_refused(inner, ticket, &row, retry))));
        }
    }
    if let Some(no) = claim_good(inner, ticket, &row, &entries).await? {
        // The rest is back before the caller asks again. The return goes on if it takes longer.
        let _ = timeout(RETURN_WAIT, held.cancel()).await;
        return Ok(Redemption::Not(no));
    }
    // The requests may have been slow, or the process frozen: a good ticket may have lapsed.
    let good = match row.judge(&buckets, inner.store.clock().known().unwrap_or_else(|| inner.now())) {
        Judgement::Lapsed => {
            let _ = timeout(RETURN_WAIT, held.cancel()).await;
            return Ok(Redemption::Not(Redeemed::Lapsed));
        }
        Judgement::Good(good) => good,
        Judgement::Wait { .. } => good,
    };
    let rest = held.take();
    held.join(grant(inner, good, began.elapsed()));
    rest.into_iter().for_each(|rest| held.join(rest));
    Ok(Redemption::Mine(held))
}

/// Takes what was not booked, now or not at all; `None` if everything was booked.
///
/// The rest is taken before the ticket is claimed, so that a refusal leaves the ticket good. Interleavings:
///
/// - Two clients redeem one ticket, or a message is delivered twice: both may take the rest. One claims the
///   ticket, and the other gives the rest back unused. Until then a third caller may be refused.
/// - The rest is there for one of them only: the other is refused, and finds the ticket spent when it comes
///   again.
/// - A crash between this write and the claim: the ticket is still good. Tokens of the rest refill, and slots
///   come back when their leases end.
/// - The reply to the claim is lost for good: the rest is given back, and the ticket may be spent, as a
///   ticket without a rest.
async fn take_rest(inner: &Arc<Inner>, row: &TicketRow) -> Result<Option<Outcome>, AcquireError> {
    let share = || Payer::Named(row.share().cloned());
    let ask = |(dimension, cost): &(Dimension, Cost)| Ask {
        dimension: dimension.clone(),
        cost: Some(*cost),
        share: share(),
    };
    let asks: Vec<Ask> = row.rest().iter().map(ask).collect();
    if asks.is_empty() {
        return Ok(None);
    }
    let terms = Terms::at_once(inner.config.lease_ttl);
    let taken = attempt::submit(inner, &asks, terms).await?;
    Ok(Some(Outcome::of(inner, taken, terms.lease, inner.config.renew_leases)))
}

/// The refusal of the rest. The ticket stays good, and goes with the refusal if it can still be in time. A
/// wait that is a guess ends before the ticket does.
fn rest_refused(inner: &Inner, ticket: &Ticket, row: &TicketRow, mut retry: RetryIn) -> RetryIn {
    let left = row.ticket().use_by().since(inner.now());
    if retry.wait >= left && !retry.reason.is_over_in_time() {
        retry.wait = left / 2;
    }
    let is_in_time = retry.wait < left;
    retry.with_ticket(if is_in_time { Ok(ticket.clone()) } else { Err(NoTicket::RestTooLate) })
}

/// Claims the ticket. Returns why there is no grant, if a cool-down or another redeemer came in between.
async fn claim_good(
    inner: &Arc<Inner>,
    ticket: &Ticket,
    row: &TicketRow,
    entries: &[Arc<Entry>],
) -> Result<Option<Redeemed>, RedeemError> {
    let by = inner.config.lease_ids.next();
    if !claim(inner, row, by.as_str()).await? {
        return Ok(Some(Redeemed::Spent));
    }
    let Some((wait, dimension)) = cooling_down(inner, entries).await else { return Ok(None) };
    let ticket = match take_back(inner, row, by.as_str()).await {
        TicketState::Good => Ok(ticket.clone()),
        TicketState::SomeoneElses => return Ok(Some(Redeemed::Spent)),
        TicketState::Lost => Err(NoTicket::ClaimLost),
    };
    let refusal = RetryIn::new(wait, dimension, RetryReason::CoolingDown).with_ticket(ticket);
    Ok(Some(Redeemed::RetryIn(refusal)))
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

fn grant(inner: &Arc<Inner>, receipts: Vec<RateReceipt>, took: Duration) -> Grant {
    let now = inner.now();
    let part = |receipt: RateReceipt| {
        let entry = inner.entry_of(receipt.dimension(), receipt.share());
        // What the row just showed, of the line of the share that booked.
        if let Some(read) = inner.entry(receipt.dimension()).reading().filter(|_| entry.reading().is_none()) {
            let line = Bucket::clone(&read.bucket).seen_from(receipt.share());
            entry.apply_read(Arc::new(line), now.before(read.age(now)));
        }
        Part::from_stock(entry, receipt, now)
    };
    let parts = receipts.into_iter().map(part).collect();
    Grant::of(Arc::clone(inner), parts, now, took)
}

fn retry(ticket: &Ticket, wait: Duration, dimension: &Dimension, reason: RetryReason) -> RetryIn {
    RetryIn::new(wait, dimension.clone(), reason).with_ticket(Ok(ticket.clone()))
}
