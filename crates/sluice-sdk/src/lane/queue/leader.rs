//! The leader of a lane: it serves the callers in the queue.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lane::poll::{Others, Poll, WaitContext};
use crate::lane::queue::{Lane, NoAnswer, QueueAsk, Waiter, Waiting};
use crate::lane::setback::Setback;
use crate::lane::sync::{Arc, Instant, Ordering, sleep, yield_now};

/// How often the leader yields before it takes a batch, as long as callers keep coming. Only a bound.
const MOST_YIELDS: u32 = 8;

/// Serves a lane. When the leader is dropped, the callers in the queue are told to ask again.
#[derive(Debug)]
pub(crate) struct Leader<Q, A> {
    lane: Arc<Lane<Q, A>>,
    has_served: bool,
    is_left: bool,
}

impl<Q, A> Leader<Q, A> {
    pub(super) fn new(lane: &Arc<Lane<Q, A>>) -> Self {
        Self { lane: Arc::clone(lane), has_served: false, is_left: false }
    }

    /// Returns the next callers, at most `most`. Returns `None` if no caller is left; the leader then no
    /// longer serves the lane. After a batch of several callers, first yields to other tasks while more
    /// callers come, because the callers just served often ask again. After a batch of one, does not yield.
    pub(crate) async fn next(&mut self, most: usize) -> Option<Vec<Waiter<Q, A>>> {
        self.next_of(most, |waiter| !waiter.is_left()).await
    }

    /// As `next`, with the callers that have left: for work that is done even so.
    pub(crate) async fn next_with_left(&mut self, most: usize) -> Option<Vec<Waiter<Q, A>>> {
        self.next_of(most, |_| true).await
    }

    async fn next_of(
        &mut self,
        most: usize,
        counts: impl Fn(&Waiter<Q, A>) -> bool,
    ) -> Option<Vec<Waiter<Q, A>>> {
        let (mut here, was_busy) = {
            let queue = self.lane.queue();
            (queue.waiting.len(), queue.was_busy)
        };
        let is_over = self.has_served && here == 0;
        for _ in 0..if was_busy && !is_over { MOST_YIELDS } else { 0 } {
            yield_now().await;
            let now = self.lane.queue().waiting.len();
            if now <= here {
                break;
            }
            here = now;
        }
        self.has_served = true;
        let mut queue = self.lane.queue();
        let count = queue.waiting.len().min(most);
        let mut waiters: Vec<_> = queue.waiting.drain(..count).filter(&counts).collect();
        while waiters.is_empty() && !queue.waiting.is_empty() {
            waiters.extend(queue.waiting.pop_front().filter(&counts));
        }
        queue.is_serving = !waiters.is_empty();
        if !waiters.is_empty() {
            queue.was_busy = waiters.len() > 1;
        }
        if waiters.is_empty() {
            self.is_left = true;
            // A client may know very many buckets.
            queue.waiting = VecDeque::new();
            (queue.solo, queue.why, queue.looks_since) = (None, None, None);
            self.lane.is_served.store(false, Ordering::Release);
            return None;
        }
        Some(waiters)
    }

    /// Ends a pause: the callers that stay look again.
    pub(crate) fn wake(&self) {
        self.lane.wake();
    }

    /// Notes that the batch is answered. What one of its callers left is now for the head of the queue.
    pub(crate) fn batch_is_over(&self) {
        let mut queue = self.lane.queue();
        (queue.is_serving, queue.why, queue.looks_since) = (false, None, None);
    }
}

impl<Q: QueueAsk, A> Leader<Q, A> {
    /// Ends a batch of `served` callers. `waiting` contains the callers that stay, and their setback.
    /// `unclaimed` contains the grants whose callers left. Each goes to the next caller in the queue if that
    /// caller asks for the same, and otherwise back to the bucket. If callers stay, pauses and returns true.
    /// The pause follows from what is known of the `others`, the processes that wait.
    pub(crate) async fn after<T>(
        &self,
        served: usize,
        (waiting, unclaimed): (Waiting<Q, A>, T),
        poll: &mut Poll,
        others: impl FnOnce() -> Others,
    ) -> bool {
        let Some((waiting, why)) = waiting else {
            poll.succeeded();
            self.batch_is_over();
            drop(unclaimed);
            return false;
        };
        drop(unclaimed);
        if waiting.len() < served {
            poll.succeeded();
        }
        self.pause(waiting, why, |why, until, gives_back| {
            let Others { crowd, next_look } = others();
            poll.next(why, WaitContext { crowd, until, gives_back, next_look })
        })
        .await;
        true
    }

    /// Puts the callers that stay back at the head of the queue, in their order, and pauses. A caller that
    /// came during the batch and does not wait receives the setback, because callers before it wait. If no
    /// caller before it takes anything, the pause ends at once and the caller is served.
    async fn pause(
        &self,
        waiters: Vec<Waiter<Q, A>>,
        why: Setback,
        length: impl FnOnce(&Setback, Option<Instant>, bool) -> Duration,
    ) {
        let pause = {
            let mut queue = self.lane.queue();
            let came: Vec<_> = queue.waiting.drain(..).collect();
            queue.waiting.extend(waiters);
            let why = why.following(queue.why.as_ref());
            let is_blocked = queue.has_takers();
            if !is_blocked && !came.is_empty() {
                self.lane.wake.notify_one();
            }
            for waiter in came {
                match is_blocked && waiter.ask.stays_until().is_none() {
                    true => drop(waiter.reply.send(Err(NoAnswer::Behind(why.clone().unsent())))),
                    false => queue.waiting.push_back(waiter),
                }
            }
            // Callers that came from another queue keep the order that they had there.
            queue.waiting.make_contiguous().sort_by_key(|waiter| waiter.ask.came());
            let until = queue.waiting.iter().filter_map(|waiter| waiter.ask.stays_until()).min();
            let pause = length(&why, until, queue.waiting.iter().any(|waiter| !waiter.ask.takes()));
            queue.why = Some(why);
            (queue.is_paused, queue.is_serving) = (true, false);
            pause
        };
        tokio::select! {
            biased;
            () = sleep(pause) => {}
            () = self.lane.wake.notified() => {}
        }
        let mut queue = self.lane.queue();
        (queue.is_paused, queue.looks_since) = (false, Some(Instant::now()));
    }
}

impl<Q, A> Drop for Leader<Q, A> {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let mut queue = self.lane.queue();
        let waiting = std::mem::take(&mut queue.waiting);
        (queue.why, queue.is_paused, queue.is_serving, queue.solo) = (None, false, false, None);
        self.lane.is_served.store(false, Ordering::Release);
        drop(queue);
        for waiter in waiting {
            let _ = waiter.reply.send(Err(NoAnswer::NotServed));
        }
    }
}
