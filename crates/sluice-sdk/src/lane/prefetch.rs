//! Prefetch: a process keeps some tokens in stock, so that most grants need no request and no queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{Amount, Bucket, Cost, Demand, Lot, RateReceipt, Timestamp, USE_BY};
use sluice_table::{Resend, Written};

use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::Part;
use crate::lane::reading::parse;
use crate::lane::task::boxed;

/// Tokens of one bucket that were taken ahead.
#[derive(Debug, Default)]
pub(crate) struct Stock(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// The oldest lot first.
    lots: VecDeque<Lot>,
    demand: Demand,
}

impl Stock {
    /// Takes `cost`, or the cost of one call, out of the oldest lot that has enough.
    pub(crate) fn take(&self, cost: Option<Cost>, now: Timestamp) -> Option<RateReceipt> {
        let mut shelf = self.shelf();
        while shelf.lots.front().is_some_and(Lot::is_empty) {
            shelf.lots.pop_front();
        }
        let receipt = shelf.lots.iter_mut().find_map(|lot| lot.take(cost, now))?;
        shelf.demand.granted(receipt.cost());
        Some(receipt)
    }

    /// Counts a grant that came from a write.
    pub(crate) fn granted(&self, cost: Cost) {
        self.shelf().demand.granted(cost);
    }

    /// Returns what the next write should take in addition to what the callers ask for.
    pub(crate) fn next_lot(&self, bucket: &Bucket, asked: Amount, now: Timestamp) -> Amount {
        self.shelf().demand.next_lot(bucket, asked, now)
    }

    pub(crate) fn clear(&self) {
        self.shelf().lots.clear();
    }

    fn add(&self, lot: Lot) {
        self.shelf().lots.push_back(lot);
    }

    /// Removes and returns the lots that are over by `now`, or in the future after a clock went back.
    fn take_out_over(&self, now: Timestamp) -> Vec<Lot> {
        let mut shelf = self.shelf();
        let (over, kept) = std::mem::take(&mut shelf.lots).into_iter().partition(|lot| lot.is_over(now));
        shelf.lots = kept;
        Vec::from(over)
    }

    fn take_out_all(&self) -> Vec<Lot> {
        Vec::from(std::mem::take(&mut self.shelf().lots))
    }

    /// A panic while the lock is held leaves nothing half done.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock()
    }
}

/// Takes `cost`, or the cost of one call, out of stock for a grant, without a request and without a wait.
/// `None` if the stock does not have it, or if other callers are in the queue for it.
pub(crate) fn take(inner: &Inner, entry: &Arc<Entry>, cost: Option<Cost>) -> Option<Part> {
    let stock = entry.stock.as_ref().filter(|_| entry.tokens.is_idle())?;
    // By a clock that was set, overflowed tokens would still seem available.
    let now = inner.store.clock().known()?;
    let receipt = stock.take(cost, now)?;
    Some(Part::from_stock(Arc::clone(entry), receipt, now))
}

/// Puts a lot into stock. At the end of the lot, gives back what was not used.
pub(crate) fn add(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    after: Arc<Bucket>,
    amount: Amount,
    now: Timestamp,
) {
    let Some(stock) = &entry.stock else { return };
    // Another reply may have come first, and shown a cool-down or that the bucket is gone.
    let is_usable = |known: BucketReading| known.bucket.blocked_until().is_none_or(|until| until <= now);
    if !entry.reading().is_some_and(is_usable) {
        return;
    }
    stock.add(Lot::new(after, amount, now));
    let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
    tokio::spawn(boxed(async move {
        let mut now = now;
        // By the client's clock, which is not the runtime's.
        let end = now.after(USE_BY);
        while now <= end {
            tokio::time::sleep(end.since(now) + Duration::from_millis(1)).await;
            let then = inner.now();
            if then <= now {
                // The clock stands still or went back, so the loop would not end: the runtime's time decides.
                break;
            }
            now = then;
        }
        give_back(&inner, &entry).await;
    }));
}

/// Gives back lots that are over.
async fn give_back(inner: &Inner, entry: &Entry) {
    let Some(stock) = &entry.stock else { return };
    let Ok(now) = inner.patient.time().await else { return stock.clear() };
    return_lots(inner, entry, &stock.take_out_over(now), now).await;
}

/// Gives back all that is in stock.
pub(crate) async fn flush(inner: &Inner, entry: &Entry) {
    let Some(stock) = &entry.stock else { return };
    let Ok(now) = inner.patient.time().await else { return stock.clear() };
    return_lots(inner, entry, &stock.take_out_all(), now).await;
}

async fn return_lots(inner: &Inner, entry: &Entry, lots: &[Lot], now: Timestamp) {
    let known = entry.reading();
    // A write that is known to be rejected is not sent.
    let may_go_back = |lot: &&Lot| known.as_ref().is_some_and(|known| lot.may_go_back(&known.bucket));
    for update in lots.iter().filter(may_go_back).filter_map(|lot| lot.give_back(now)) {
        // Not idempotent: never sent again after an ambiguous reply. The tokens then refill.
        match inner.patient.update(&update, Resend::UnlessAmbiguous).await {
            Ok(Written::Applied(row)) => {
                let bucket = parse(entry, &row);
                bucket.into_iter().for_each(|bucket| entry.apply_write(Arc::new(bucket), inner.now()));
            }
            Ok(Written::ConditionFailed(_)) => {}
            Err(error) => tracing::debug!(event = "prefetch.lost", dimension = %entry.dimension, %error),
        }
    }
}
