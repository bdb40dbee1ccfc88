//! Sends chunks until they are done, and splits them if necessary.

use std::collections::HashMap;

use sluice_core::{Amount, Bucket, CancellationCause, CancellationReason, Chunk, ChunkStep, Returned, Write};

use sluice_table::{
    Attempted, Attributes, Cancelled, MOST_TRIES, Store, StoreError, Transacted, Transaction, Written,
};

use crate::released::Released;

/// The result of giving chunks back.
#[derive(Debug, Default)]
pub struct Tally {
    /// Leases whose slots (or rows) were given back.
    pub restored: usize,
    /// Of those, leases of slots.
    pub restored_slots: usize,
    /// The same in slots, for the recount.
    pub returned: Returned,
    /// Leases deleted without all of their slots, because the bucket had no room for the slots.
    pub already_capped: usize,
    /// Leases that were gone or renewed.
    pub lost_races: usize,
    /// How often a conflict or throttling was waited out.
    pub conflicts_retried: usize,
    /// Leases left for another time, because of conflicts or the deadline.
    pub left: usize,
    /// Leases whose chunk can never pass: the key of the chunk's first lease, and the message.
    pub failed: Vec<(String, String)>,
    /// The outcome of each lease that is done, by its key. Kept only if a caller wants it.
    pub ends: Option<HashMap<String, Released>>,
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

    /// Of the leases with `keys`, whose cost was `cost`, those in `chunks` stay; the others were gone or
    /// renewed. If an earlier send was not answered and all leases are gone, then that send deleted them, as
    /// far as is known: nothing shows that another writer did.
    fn lost(
        &mut self,
        chunks: &[Chunk],
        lost_races: usize,
        keys: Vec<String>,
        cost: Amount,
        send_state: SendState,
    ) {
        self.lost_races += lost_races;
        let stays = |key: &String| chunks.iter().flat_map(Chunk::leases).any(|lease| lease.key() == key);
        let by_own = send_state == SendState::Unanswered && lost_races == keys.len();
        let released = if by_own { Released::GivenBack } else { Released::LeaseGone };
        self.ended(keys.into_iter().filter(|key| !stays(key)), released);
        let left = chunks.iter().fold(Amount::ZERO, |sum, chunk| sum.plus(chunk.cost()));
        self.returned.lost = self.returned.lost.plus(cost.minus(left));
    }

    fn leave(&mut self, chunks: &[Chunk]) {
        self.left += chunks.iter().map(|chunk| chunk.leases().len()).sum::<usize>();
    }

    fn ended(&mut self, keys: impl Iterator<Item = String>, released: Released) {
        if let Some(ends) = &mut self.ends {
            ends.extend(keys.map(|key| (key, released)));
        }
    }
}

/// Whether every send of a chunk's leases so far is known not to have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendState {
    Answered,
    /// One send was not answered. If the chunk is sent again under the same token, the two sends are one
    /// transaction. If it is planned again, it is another transaction, and finds what the first one did.
    Unanswered,
}

/// A chunk to be sent, and how often it failed: because of conflicts, and because its plan was too old.
struct Queued {
    chunk: Chunk,
    attempt: u32,
    replans: u32,
    send_state: SendState,
}

/// Where chunks are sent, and how often each waits out a conflict.
struct Sender<'a> {
    store: &'a Store,
    tries: u32,
    queue: Vec<Queued>,
    tally: &'a mut Tally,
}

/// Sends a chunk until it is done, and splits it if necessary. `more_time` is called before every request. A
/// part is left to a sweep after `tries` conflicts that were waited out, or [`MOST_TRIES`] plans that were
/// too old.
///
/// # Errors
/// [`StoreError`] if DynamoDB is unavailable or rejects a request. `tally` counts what throttling leaves.
pub async fn send_chunk(
    store: &Store,
    chunk: Chunk,
    tries: u32,
    more_time: impl Fn() -> bool,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let queue = vec![Queued { chunk, attempt: 0, replans: 0, send_state: SendState::Answered }];
    let mut sender = Sender { store, tries, queue, tally };
    while let Some(next) = sender.queue.pop() {
        if !more_time() {
            sender.tally.left += next.chunk.leases().len();
            continue;
        }
        if let Err(error) = sender.send(next).await {
            sender.tally.left += sender.queue.iter().map(|queued| queued.chunk.leases().len()).sum::<usize>();
            return if matches!(error, StoreError::Contended { .. }) { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

impl Sender<'_> {
    async fn send(&mut self, mut next: Queued) -> Result<(), StoreError> {
        let writes = next.chunk.writes();
        let leases = next.chunk.leases().len();
        let attempted = send(self.store, &writes).await;
        if attempted.maybe_applied {
            next.send_state = SendState::Unanswered;
        }
        match attempted.answer {
            Ok(Transacted::Committed) => self.tally.committed(&next.chunk),
            Ok(Transacted::Cancelled(reasons)) => self.cancelled(next, &writes, reasons).await?,
            Err(StoreError::Contended { .. }) if self.tally.ends.is_some() && next.attempt < self.tries => {
                // A caller waits for the result: throttling ends sooner than a lease does.
                self.store.back_off(next.attempt).await;
                self.queue.push(Queued { attempt: next.attempt + 1, ..next });
            }
            // Throttled as a whole: the store has already waited as long as is useful.
            Err(StoreError::Contended { .. }) => self.tally.left += leases,
            Err(error) => {
                self.tally.left += leases;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn cancelled(
        &mut self,
        Queued { chunk, attempt, replans, send_state }: Queued,
        writes: &[Write],
        reasons: Vec<Cancelled>,
    ) -> Result<(), StoreError> {
        let (leases, cost) = (chunk.leases().len(), chunk.cost());
        let keys: Vec<String> = chunk.leases().iter().map(|lease| lease.key().to_owned()).collect();
        let step = after(self.store, chunk, reasons).await.inspect_err(|_| self.tally.left += leases)?;
        match step {
            ChunkStep::Continue { chunks, lost_races } => {
                self.tally.lost(&chunks, lost_races, keys, cost, send_state);
                // Planned again at once, from the row as it was a moment ago: each failure means that another
                // writer succeeded.
                let replans = replans + u32::from(lost_races == 0 && chunks.len() == 1);
                if replans > MOST_TRIES {
                    self.tally.leave(&chunks);
                } else {
                    self.put_back(chunks, attempt, replans, send_state);
                }
            }
            ChunkStep::BackOff(chunks) if attempt >= self.tries => self.tally.leave(&chunks),
            ChunkStep::BackOff(chunks) => {
                self.tally.conflicts_retried += 1;
                self.store.back_off(attempt).await;
                self.put_back(chunks, attempt + 1, replans, send_state);
            }
            ChunkStep::Fail(message) => {
                self.tally.failed.extend(std::iter::repeat_n(message_of(writes, message), leases.max(1)));
            }
        }
        Ok(())
    }

    fn put_back(&mut self, chunks: Vec<Chunk>, attempt: u32, replans: u32, send_state: SendState) {
        self.queue.extend(chunks.into_iter().map(|chunk| Queued { chunk, attempt, replans, send_state }));
    }
}

/// Sends the writes. A lone delete is sent as a single write, at half the price of a transaction.
async fn send(store: &Store, writes: &[Write]) -> Attempted<Transacted> {
    let [Write::Delete(delete)] = writes else { return store.try_transact(&Transaction::new(writes)).await };
    let Attempted { answer, maybe_applied, was_throttled } = store.try_delete(delete).await;
    let reason = CancellationReason { cause: CancellationCause::ConditionFailed, message: String::new() };
    let answer = answer.map(|written| match written {
        Written::Applied(_) => Transacted::Committed,
        Written::ConditionFailed(row) => Transacted::Cancelled(vec![Cancelled { reason, row }]),
    });
    Attempted { answer, maybe_applied, was_throttled }
}

async fn after(store: &Store, chunk: Chunk, mut reasons: Vec<Cancelled>) -> Result<ChunkStep, StoreError> {
    let Some(dimension) = chunk.leases().first().map(|lease| lease.dimension().clone()) else {
        return Ok(ChunkStep::Continue { chunks: Vec::new(), lost_races: 0 });
    };
    let mut row = None;
    if let Some(of_bucket) = reasons.get_mut(chunk.leases().len()) {
        row = of_bucket.row.take();
        if row.is_none() && of_bucket.reason.cause == CancellationCause::ConditionFailed {
            // A bucket counts as gone only if a read shows so: otherwise a row that is missing from a reply
            // would lose the bucket's slots.
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
