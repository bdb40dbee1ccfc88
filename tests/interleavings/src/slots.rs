//! A lane before a bucket of slots, as small as it can be: the service grants what is free and lets the
//! others wait.

use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use std::sync::PoisonError;

use crate::lane::poll::{Others, Poll};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, NoAnswer, QueueAsk, Service, WaitHandle, Waiter};
use crate::lane::setback::Setback;
use crate::lane::sync::{self, Instant};

/// What a caller asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One slot, waiting for it.
    Take(usize),
    /// One slot, now or not at all.
    Try,
    /// One slot back.
    Give,
}

impl QueueAsk for Ask {
    fn stays_until(&self) -> Option<Instant> {
        (*self != Self::Try).then_some(Instant)
    }

    fn takes(&self) -> bool {
        *self != Self::Give
    }
}

/// What the callers of a lane and its service share.
#[derive(Debug)]
pub struct Bucket {
    lane: Arc<Lane<Ask, Granted>>,
    free: AtomicUsize,
    is_served: AtomicBool,
    /// In what order takers were granted their slots.
    order: Mutex<Vec<usize>>,
}

/// A slot on its way to its caller: dropped, it is free again, as a grant that nobody took.
#[derive(Debug)]
pub struct Granted(Option<Arc<Bucket>>);

impl Granted {
    fn none() -> Self {
        Self(None)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(bucket) = self.0.take() {
            bucket.free.fetch_add(1, Ordering::SeqCst);
            bucket.lane.wake();
        }
    }
}

/// A place in the queue.
#[derive(Debug)]
pub struct Waits(WaitHandle<Granted>);

impl Waits {
    /// The answer; `None` if the service ended before the turn came: ask again.
    pub async fn answer(self) -> Option<Granted> {
        self.0.answer().await.ok()
    }
}

impl Bucket {
    /// With so many free slots.
    #[must_use]
    pub fn new(free: usize) -> Arc<Self> {
        sync::begin();
        Arc::new(Self {
            lane: Arc::default(),
            free: AtomicUsize::new(free),
            is_served: AtomicBool::new(false),
            order: Mutex::new(Vec::new()),
        })
    }

    /// Stands in the queue.
    #[must_use]
    pub fn join(self: &Arc<Self>, ask: Ask) -> Waits {
        let bucket = Arc::clone(self);
        let handle = self.lane.join(ask, move |leader| -> Service { Box::pin(serve(bucket, leader)) });
        if ask == Ask::Give {
            self.lane.wake();
        }
        Waits(handle)
    }

    /// Takes a slot if one is free now and nobody waits for one.
    pub async fn try_take(self: &Arc<Self>) -> Option<Granted> {
        loop {
            let bucket = Arc::clone(self);
            let service = move |leader| -> Service { Box::pin(serve(bucket, leader)) };
            match self.lane.join_if(Ask::Try, |_| false, service).ok()?.answer().await {
                Ok(granted) => return granted.0.is_some().then_some(granted),
                Err(NoAnswer::Behind(_)) => return None,
                Err(NoAnswer::NotServed | NoAnswer::Lost) => {}
            }
        }
    }

    /// Takes a slot, asking again if nobody serves.
    pub async fn take(self: &Arc<Self>, who: usize) -> Granted {
        loop {
            if let Some(granted) = self.join(Ask::Take(who)).answer().await {
                return granted;
            }
        }
    }

    /// Gives a slot back through the lane.
    pub async fn give(self: &Arc<Self>, mut granted: Granted) {
        drop(granted.0.take());
        while self.join(Ask::Give).answer().await.is_none() {}
    }

    /// Free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.load(Ordering::SeqCst)
    }

    /// Whether nobody is in the queue or being served.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lane.is_idle()
    }

    /// Takers in the order of their grants.
    ///
    /// # Panics
    /// If a task panicked while it held the list.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on no task can be spawned, as in a runtime that was shut down.
    pub fn runtime_ends() {
        sync::runtime_ends();
    }

    /// From now on wake-ups are lost that nobody waits for yet: a bug, to see that it is found.
    pub fn lose_wake_ups() {
        sync::lose_wake_ups();
    }
}

/// The one who serves. A service that is dropped half way serves no more.
struct Serving<'a>(&'a AtomicBool);

impl<'a> Serving<'a> {
    fn begin(is_served: &'a AtomicBool) -> Self {
        assert!(!is_served.swap(true, Ordering::SeqCst), "two serve one lane");
        Self(is_served)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn serve(bucket: Arc<Bucket>, mut leader: Leader<Ask, Granted>) {
    let mut poll = Poll;
    while let Some(waiters) = leader.next(usize::MAX).await {
        let serving = Serving::begin(&bucket.is_served);
        // A request under way.
        sync::yield_now().await;
        let served = waiters.len();
        let waiting = answer(&bucket, waiters);
        drop(serving);
        let waiting = (!waiting.is_empty()).then_some((waiting, Setback));
        let nobody = || Others { crowd: None, next_look: None };
        leader.after(served, (waiting, ()), &mut poll, nobody).await;
    }
}

/// Those who wait, in their order. What some give back is there for the others.
fn answer(bucket: &Arc<Bucket>, waiters: Vec<Waiter<Ask, Granted>>) -> Vec<Waiter<Ask, Granted>> {
    let (givers, takers): (Vec<_>, Vec<_>) = waiters.into_iter().partition(|waiter| waiter.ask == Ask::Give);
    for giver in givers {
        bucket.free.fetch_add(1, Ordering::SeqCst);
        giver.answer(Granted::none());
    }
    let mut waiting = Vec::new();
    for waiter in takers {
        match waiter.ask {
            Ask::Take(who) if waiting.is_empty() && bucket.free() > 0 => {
                bucket.free.fetch_sub(1, Ordering::SeqCst);
                bucket.order.lock().unwrap_or_else(PoisonError::into_inner).push(who);
                waiter.answer(Granted(Some(Arc::clone(bucket))));
            }
            Ask::Try if waiting.is_empty() && bucket.free() > 0 => {
                bucket.free.fetch_sub(1, Ordering::SeqCst);
                waiter.answer(Granted(Some(Arc::clone(bucket))));
            }
            Ask::Try => waiter.answer(Granted::none()),
            _ => waiting.push(waiter),
        }
    }
    waiting
}
