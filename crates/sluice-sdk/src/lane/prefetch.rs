//! Prefetch: a process keeps some tokens in stock, so that most grants take no request and no line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{Amount, Bucket, Cost, Demand, Lot, RateReceipt, Timestamp, USE_BY};
use sluice_table::{Attributes, IfAmbiguous, Written};

use crate::bucket::known::Reading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::Part;

/// Tokens of one bucket that were taken ahead.
#[derive(Debug, Default)]
pub(crate) struct Stock(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// The oldest first.
    lots: VecDeque<Lot>,
    demand: Demand,
}

impl Stock {
    /// Takes `cost`, or one call's worth, out of the oldest lot that has it.
    pub(crate) fn take(&self, cost: Option<Cost>, now: Timestamp) -> Option<RateReceipt> {
        let mut shelf = self.shelf();
        while shelf.lots.front().is_some_and(Lot::is_empty) {
            shelf.lots.pop_front();
        }
        let receipt = shelf.lots.iter_mut().find_map(|lot| lot.take(cost, now))?;
        shelf.demand.granted(receipt.cost());
        Some(receipt)
    }

    /// Counts a grant that a write was for.
    pub(crate) fn granted(&self, cost: Cost) {
        self.shelf().demand.granted(cost);
    }

    /// What the next write should take beyond those who ask.
    pub(crate) fn next_lot(&self, bucket: &Bucket, asked: Amount, now: Timestamp) -> Amount {
        self.shelf().demand.next_lot(bucket, asked, now)
    }

    /// Nothing in it may be used any more.
    pub(crate) fn clear(&self) {
        self.shelf().lots.clear();
    }

    fn add(&self, lot: Lot) {
        self.shelf().lots.push_back(lot);
    }

    /// Takes out the lots that are over by `now`, or lie in the future of a clock that went back.
    fn take_out_over(&self, now: Timestamp) -> Vec<Lot> {
        let mut shelf = self.shelf();
        let (over, kept) = std::mem::take(&mut shelf.lots).into_iter().partition(|lot| lot.is_over(now));
        shelf.lots = kept;
        Vec::from(over)
    }

    /// No panic while it is locked leaves it half done.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock()
    }
}

/// What a grant of `cost`, or of one call's worth, is made of, out of stock: without a request and without a wait. `None` where it is not there, and
/// where others are in line for it.
pub(crate) fn take(inner: &Inner, entry: &Arc<Entry>, cost: Option<Cost>) -> Option<Part> {
    let stock = entry.stock.as_ref().filter(|_| entry.tokens.is_idle())?;
    // By a clock that was set, tokens that have run over would still be there.
    let now = inner.store.clock().known()?;
    let receipt = stock.take(cost, now)?;
    Some(Part::from_stock(Arc::clone(entry), receipt, now))
}

/// Puts a lot into stock, and gives back at its end what was not used.
pub(crate) fn add(inner: &Arc<Inner>, entry: &Arc<Entry>, after: Arc<Bucket>, amount: Amount, now: Timestamp) {
    let Some(stock) = &entry.stock else { return };
    // Another reply may have come first: of a cool-down, or that the bucket is gone.
    let is_usable = |known: Reading| known.bucket.blocked_until().is_none_or(|until| until <= now);
    if !entry.reading().is_some_and(is_usable) {
        return;
    }
    stock.add(Lot::new(after, amount, now));
    let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
    tokio::spawn(async move {
        let mut now = now;
        // By the client's clock, which is not the runtime's.
        let end = now.after(USE_BY);
        while now <= end {
            tokio::time::sleep(end.since(now) + Duration::from_millis(1)).await;
            let then = inner.now();
            if then <= now {
                // A clock that stands still or goes back: the runtime's time will do.
                break;
            }
            now = then;
        }
        give_back(&inner, &entry).await;
    });
}

async fn give_back(inner: &Inner, entry: &Entry) {
    let Some(stock) = &entry.stock else { return };
    let Ok(now) = inner.time().await else { return stock.clear() };
    let known = entry.reading();
    // What is known to be refused is not sent.
    let may_go_back = |lot: &&Lot| known.as_ref().is_some_and(|known| lot.may_go_back(&known.bucket));
    for update in stock.take_out_over(now).iter().filter(may_go_back).filter_map(|lot| lot.give_back(now)) {
        // Twice would be too much: after a lost reply the tokens are left to refill.
        match inner.store.update(&update, IfAmbiguous::Stop).await {
            Ok(Written::Applied(row)) => {
                let bucket = Bucket::read(&entry.dimension, &Attributes(&row));
                bucket.into_iter().for_each(|bucket| entry.apply_write(Arc::new(bucket), inner.now()));
            }
            Ok(Written::ConditionFailed(_)) => {}
            Err(error) => tracing::debug!(event = "prefetch.lost", dimension = %entry.dimension, %error),
        }
    }
}
