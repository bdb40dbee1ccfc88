//! Giving back: what a holder releases, and what a sweep reclaims.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_core::{
    Amount, Bucket, CancellationReason, Chunk, ChunkStep, Cost, Lease, MAX_LEASES_PER_TRANSACTION, Returned, Verdict,
    Write,
};

use crate::attempt::{in_parallel, inline, stopped};
use crate::cache::Entry;
use crate::client::Inner;
use crate::grant::{Hold, Part, Parts, Slots};
use crate::lane::{Lane, NoAnswer, Seat, Service};
use crate::settle::settle_charged;
use crate::store::{Attributes, Cancelled, IfAmbiguous, Store, StoreError, Transacted, Transaction, Written};

/// How a release ended. Each is fine for the caller; the last two say that something else was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Released {
    /// What was held is back.
    GivenBack,
    /// There was not room for all of it: another client had restored this slot, or others. What there was room for came back.
    AlreadyCapped,
    /// The lease was gone: it ended, and a sweep gave the slot back, perhaps to someone else while this holder still called.
    LeaseGone,
}

/// Why a release could not be confirmed. The slot comes back when its lease ends.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Other writers were faster in every try.
    #[error("the release of {key} met a conflict in every try; the slot comes back when its lease ends")]
    Contended {
        /// The lease.
        key: String,
    },
    /// DynamoDB will never accept it, or the bucket's row cannot be read.
    #[error("{key} cannot be given back: {message}")]
    Refused {
        /// The lease.
        key: String,
        /// What DynamoDB said, or what is wrong with the row.
        message: String,
    },
    /// The table did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A release tries longer than an acquire: where it gives up, a slot is out of use until its lease ends.
pub(crate) const RELEASE_TRIES: u32 = 20;

/// Plans of a chunk made again for a bucket that others keep moving, before it is left to a sweep.
const REPLANS: u32 = 20;

/// What came of giving chunks back.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Leases whose slots (or rows) were given back.
    pub(crate) restored: usize,
    /// Of those, leases of slots.
    pub(crate) restored_slots: usize,
    /// The same in slots, for the recount.
    pub(crate) returned: Returned,
    /// Leases deleted without all of their slots, since the bucket had no room for them.
    pub(crate) already_capped: usize,
    /// Leases that were gone or renewed.
    pub(crate) lost_races: usize,
    /// Times that a conflict or throttling was waited out.
    pub(crate) conflicts_retried: usize,
    /// Leases that conflicts or the deadline left for another time.
    pub(crate) left: usize,
    /// Leases whose chunk can never pass: its first lease, and the message.
    pub(crate) failed: Vec<(String, String)>,
    /// What became of each lease that is settled, by its key; kept where somebody asks.
    pub(crate) ends: Option<HashMap<String, Released>>,
}

impl Tally {
    fn committed(&mut self, chunk: &Chunk) {
        let leases = chunk.leases().len();
        let released = if chunk.is_already_capped() {
            self.already_capped += leases;
            Released::AlreadyCapped
        } else {
            self.restored += leases;
            Released::GivenBack
        };
        if chunk.restores_slots() {
            self.restored_slots += leases;
        }
        self.ended(chunk.leases().iter().map(|lease| lease.key().to_owned()), released);
        self.returned.add(chunk.returned());
    }

    fn ended(&mut self, keys: impl Iterator<Item = String>, released: Released) {
        if let Some(ends) = &mut self.ends {
            ends.extend(keys.map(|key| (key, released)));
        }
    }
}

/// Sends a chunk until it is done, split where it must be. `more_time` is asked before every request.
pub(crate) async fn settle(
    store: &Store,
    chunk: Chunk,
    tries: u32,
    more_time: impl Fn() -> bool,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let mut queue = vec![(chunk, 0, 0)];
    while let Some((chunk, attempt, replans)) = queue.pop() {
        let writes = chunk.writes();
        let sent = Transaction::new(&writes);
        if !more_time() {
            tally.left += chunk.leases().len();
            continue;
        }
        let reasons = match send(store, &writes, &sent).await {
            Err(StoreError::Contended { .. }) if tally.ends.is_some() && attempt < tries => {
                // Somebody waits for it: throttling passes sooner than a lease ends.
                store.back_off(attempt).await;
                queue.push((chunk, attempt + 1, replans));
                continue;
            }
            Err(StoreError::Contended { .. }) => {
                // The store has waited as long as is worth it: throttled as a whole.
                tally.left += chunk.leases().len();
                continue;
            }
            Err(error) => {
                tally.left +=
                    chunk.leases().len() + queue.iter().map(|(chunk, ..)| chunk.leases().len()).sum::<usize>();
                return Err(error);
            }
            Ok(Transacted::Committed) => {
                tally.committed(&chunk);
                continue;
            }
            Ok(Transacted::Cancelled(reasons)) => reasons,
        };
        let (leases, cost) = (chunk.leases().len(), chunk.cost());
        let keys: Vec<String> = chunk.leases().iter().map(|lease| lease.key().to_owned()).collect();
        let step = match after(store, chunk, reasons).await {
            Ok(step) => step,
            Err(error) => {
                tally.left += leases + queue.iter().map(|(chunk, ..)| chunk.leases().len()).sum::<usize>();
                return if matches!(error, StoreError::Contended { .. }) { Ok(()) } else { Err(error) };
            }
        };
        match step {
            ChunkStep::Continue { chunks, lost_races } => {
                tally.lost_races += lost_races;
                let stays = |key: &String| chunks.iter().flat_map(Chunk::leases).any(|lease| lease.key() == key);
                tally.ended(keys.into_iter().filter(|key| !stays(key)), Released::LeaseGone);
                let left = chunks.iter().fold(Amount::ZERO, |sum, chunk| sum.plus(chunk.cost()));
                tally.returned.lost = tally.returned.lost.plus(cost.minus(left));
                // Planned again, at once, from the row as it was a moment ago: each failure means that another writer got on.
                let replans = replans + u32::from(lost_races == 0 && chunks.len() == 1);
                if replans > REPLANS {
                    tally.left += chunks.iter().map(|chunk| chunk.leases().len()).sum::<usize>();
                    continue;
                }
                queue.extend(chunks.into_iter().map(|chunk| (chunk, attempt, replans)));
            }
            ChunkStep::BackOff(chunks) if attempt >= tries => {
                tally.left += chunks.iter().map(|chunk| chunk.leases().len()).sum::<usize>();
            }
            ChunkStep::BackOff(chunks) => {
                tally.conflicts_retried += 1;
                store.back_off(attempt).await;
                queue.extend(chunks.into_iter().map(|chunk| (chunk, attempt + 1, replans)));
            }
            ChunkStep::Fail(message) => {
                tally.failed.extend(std::iter::repeat_n(message_of(&writes, message), leases.max(1)));
            }
        }
    }
    Ok(())
}

/// A lone delete is a single write at half the price of a transaction.
async fn send(store: &Store, writes: &[Write], transaction: &Transaction) -> Result<Transacted, StoreError> {
    let [Write::Delete(delete)] = writes else { return store.transact(transaction).await };
    let failed = CancellationReason { verdict: Verdict::ConditionFailed, message: String::new() };
    Ok(match store.delete(delete).await? {
        Written::Applied(_) => Transacted::Committed,
        Written::ConditionFailed(row) => Transacted::Cancelled(vec![Cancelled { reason: failed, row }]),
    })
}

async fn after(store: &Store, chunk: Chunk, mut reasons: Vec<Cancelled>) -> Result<ChunkStep, StoreError> {
    let Some(dimension) = chunk.leases().first().map(|lease| lease.dimension().clone()) else {
        return Ok(ChunkStep::Continue { chunks: Vec::new(), lost_races: 0 });
    };
    let mut row = None;
    if let Some(of_bucket) = reasons.get_mut(chunk.leases().len()) {
        row = of_bucket.row.take();
        if row.is_none() && of_bucket.reason.verdict == Verdict::ConditionFailed {
            // A bucket counts as gone only when a read says so: its slots would be lost on a mere omission.
            row = store.read(dimension.as_str()).await?;
        }
    }
    let bucket = row.map(|row| Bucket::read(&dimension, &Attributes(&row)));
    let reasons: Vec<CancellationReason> = reasons.into_iter().map(|cancelled| cancelled.reason).collect();
    Ok(chunk.after(&reasons, bucket))
}

fn message_of(writes: &[Write], message: String) -> (String, String) {
    let key = writes.iter().find_map(|write| match write {
        Write::Delete(delete) => Some(delete.key.clone()),
        _ => None,
    });
    (key.unwrap_or_default(), message)
}

/// Releases the parts of a grant whose call was made.
pub(crate) async fn release(inner: &Arc<Inner>, parts: Parts) -> Result<Released, ReleaseError> {
    let releases = parts.into_iter().map(|mut part| {
        let inner = Arc::clone(inner);
        async move {
            settle_charged(&inner, &mut part).await;
            release_part(&inner, &part).await
        }
    });
    let mut released = Released::GivenBack;
    let mut failure = None;
    for result in in_parallel(releases.collect()).await {
        match result {
            Ok(part) => released = released.max(part),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(released), Err)
}

async fn release_part(inner: &Arc<Inner>, part: &Part) -> Result<Released, ReleaseError> {
    match &part.hold {
        Hold::Tokens { lease: None, .. } => Ok(Released::GivenBack),
        Hold::Tokens { lease: Some(lease), .. } => {
            let chunk = Chunk::release_row(Lease::clone(lease));
            let mut released = release_chunk(inner, &part.entry, chunk).await;
            released.pop().unwrap_or(Ok(Released::GivenBack))
        }
        Hold::Slots(slots) => in_lane(inner, &part.entry, Slots::clone(slots)).await,
        Hold::Inline(held) => inline::release(inner, &part.entry, &held.id).await,
        Hold::Local => {
            inner.fallback.give_back(&part.entry.dimension, part.cost);
            Ok(Released::GivenBack)
        }
    }
}

/// Slots with lease rows on their way back: those of one bucket join in one transaction.
pub(crate) type ReleaseLane = Lane<Slots, Result<Released, ReleaseError>>;

async fn in_lane(inner: &Arc<Inner>, entry: &Arc<Entry>, slots: Slots) -> Result<Released, ReleaseError> {
    loop {
        let service = |seat| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(entry), seat)) };
        let ticket = entry.releases.join(slots.clone(), service);
        match ticket.answer().await {
            Ok(released) => return released,
            Err(NoAnswer::NotServed) => {}
            Err(NoAnswer::Lost) => return Err(stopped("TransactWriteItems").into()),
        }
    }
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, mut seat: Seat<Slots, Result<Released, ReleaseError>>) {
    while let Some(turns) = seat.next(MAX_LEASES_PER_TRANSACTION).await {
        let Some(last) = turns.last() else { continue };
        // The youngest reading of its capacity.
        let bucket = Arc::clone(&last.ask.bucket);
        let leases = turns.iter().map(|turn| turn.ask.lease.clone()).collect();
        let released = release_chunk(&inner, &entry, Chunk::release(&bucket, leases)).await;
        turns.into_iter().zip(released).for_each(|(turn, released)| turn.answer(released));
    }
}

/// Gives back what the leases of a chunk hold, and says of each what became of it, in their order.
async fn release_chunk(inner: &Inner, entry: &Entry, chunk: Chunk) -> Vec<Result<Released, ReleaseError>> {
    let mut tally = Tally { ends: Some(HashMap::new()), ..Tally::default() };
    let leases = chunk.leases().to_vec();
    let settled = settle(&inner.store, chunk, RELEASE_TRIES, || true, &mut tally).await;
    if let Ok(slots) = Cost::new(tally.returned.slots) {
        entry.slot_freed(slots);
    }
    let ends = tally.ends.take().unwrap_or_default();
    let released = leases.iter().map(|lease| {
        let key = lease.key().to_owned();
        match (ends.get(&key), &settled) {
            (Some(released), _) => Ok(*released),
            (None, Err(error)) => Err(ReleaseError::Store(error.clone())),
            (None, Ok(())) => Err(match tally.failed.iter().find(|(of, _)| *of == key) {
                Some((_, message)) => ReleaseError::Refused { key, message: message.clone() },
                None => ReleaseError::Contended { key },
            }),
        }
    });
    let released: Vec<_> = released.collect();
    for (lease, released) in leases.iter().zip(&released) {
        match released {
            Ok(Released::GivenBack) => tracing::debug!(event = "release.ok", dimension = %entry.dimension),
            Ok(released) => {
                tracing::warn!(event = "release.late", dimension = %entry.dimension, lease = lease.key(), ?released);
            }
            Err(_) => {}
        }
    }
    released
}

/// Gives back the parts of a grant whose call was never made: slots as in a release, and rate tokens as far as they have not
/// flowed back by themselves. Best effort for the tokens: what is lost refills.
pub(crate) async fn give_back_unused(inner: &Arc<Inner>, parts: Parts) {
    let returns = parts.into_iter().map(|part| {
        let inner = Arc::clone(inner);
        async move {
            if let Hold::Tokens { receipt, .. } = &part.hold
                && let Some(update) = receipt.give_back(inner.now())
            {
                // Twice would be too much: after a lost reply the tokens are left to refill.
                match inner.store.update(&update, IfAmbiguous::Stop).await {
                    Ok(Written::Applied(row)) => {
                        let bucket = Bucket::read(&part.entry.dimension, &Attributes(&row));
                        bucket.into_iter().for_each(|bucket| part.entry.wrote(Arc::new(bucket), inner.now()));
                    }
                    // Others booked behind it: its start is for the next caller of this process, if one comes in time.
                    Ok(Written::ConditionFailed(Some(_))) if part.lease().is_none() => part.entry.abandon(part.clone()),
                    Ok(Written::ConditionFailed(_)) => {}
                    Err(error) => tracing::debug!(event = "give_back.lost", dimension = %part.entry.dimension, %error),
                }
            }
            if let Err(error) = release_part(&inner, &part).await {
                tracing::warn!(event = "release.failed", dimension = %part.entry.dimension, %error);
            }
        }
    });
    in_parallel(returns.collect()).await;
}
