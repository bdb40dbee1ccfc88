//! Who serves a lane.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lane::poll::{Company, Poll};
use crate::lane::queue::{Lane, Patient, Reply, Waiter, Waiting};
use crate::lane::setback::Setback;
use crate::lane::sync::{Arc, Instant, Ordering, sleep, yield_now};

/// Passes over the tasks of the thread before a batch is taken, while callers keep coming: a bound, and no more.
const MOST_YIELDS: u32 = 8;

/// The seat of who serves a lane. Dropped, those in line are told to ask again.
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

    /// The next callers in line, `most` at most; `None` when nobody is left, and the seat is too.
    ///
    /// Where the last batch had several, lets everyone run first whose turn on the thread it is, as long as more come: callers
    /// that were just served come back for the next. A lone caller waits for nobody.
    pub(crate) async fn next(&mut self, most: usize) -> Option<Vec<Waiter<Q, A>>> {
        self.next_of(most, |waiter| !waiter.is_left()).await
    }

    /// The same with those who have gone away: for what is to be done whether somebody hears of it or not.
    pub(crate) async fn next_with_the_gone(&mut self, most: usize) -> Option<Vec<Waiter<Q, A>>> {
        self.next_of(most, |_| true).await
    }

    async fn next_of(&mut self, most: usize, counts: impl Fn(&Waiter<Q, A>) -> bool) -> Option<Vec<Waiter<Q, A>>> {
        let (mut here, was_busy) = {
            let line = self.lane.line();
            (line.waiting.len(), line.was_busy)
        };
        let is_over = self.has_served && here == 0;
        for _ in 0..if was_busy && !is_over { MOST_YIELDS } else { 0 } {
            yield_now().await;
            let now = self.lane.line().waiting.len();
            if now <= here {
                break;
            }
            here = now;
        }
        self.has_served = true;
        let mut line = self.lane.line();
        let count = line.waiting.len().min(most);
        let mut waiters: Vec<_> = line.waiting.drain(..count).filter(&counts).collect();
        while waiters.is_empty() && !line.waiting.is_empty() {
            waiters.extend(line.waiting.pop_front().filter(&counts));
        }
        line.is_out = !waiters.is_empty();
        if !waiters.is_empty() {
            line.was_busy = waiters.len() > 1;
        }
        if waiters.is_empty() {
            self.is_left = true;
            // A client may know very many buckets.
            line.waiting = VecDeque::new();
            (line.solo, line.why, line.looks_since) = (None, None, None);
            self.lane.is_served.store(false, Ordering::Release);
            return None;
        }
        Some(waiters)
    }

    /// All whom this batch had are answered: the head of the line is next, for what one of them left.
    pub(crate) fn batch_is_over(&self) {
        let mut line = self.lane.line();
        (line.is_out, line.why, line.looks_since) = (false, None, None);
    }
}

impl<Q: Patient, A> Leader<Q, A> {
    /// After a batch of `served` callers of which some may wait, for what is told with them. Drops what nobody took: it goes to the
    /// next in line, if that asks for as much, or back. Pauses where someone waits, and says so: for longer where a `crowd` of
    /// processes does.
    pub(crate) async fn after<T>(
        &self,
        served: usize,
        (waiting, untaken): (Waiting<Q, A>, T),
        poll: &mut Poll,
        crowd: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let Some((waiting, why)) = waiting else {
            poll.succeeded();
            self.batch_is_over();
            drop(untaken);
            return false;
        };
        drop(untaken);
        if waiting.len() < served {
            poll.succeeded();
        }
        self.pause(waiting, why, |why, until, gives_back| {
            poll.next(why, Company { crowd: crowd(), until, gives_back })
        })
        .await;
        true
    }

    /// Puts callers that wait back to the head of the line, in their order, and pauses. Who came since the batch was taken and does not
    /// wait hears why, as if it had come now; where nobody is left whom it would pass, it is served at once.
    async fn pause(
        &self,
        waiters: Vec<Waiter<Q, A>>,
        why: Setback,
        length: impl FnOnce(&Setback, Option<Instant>, bool) -> Duration,
    ) {
        let pause = {
            let mut line = self.lane.line();
            let came: Vec<_> = line.waiting.drain(..).collect();
            line.waiting.extend(waiters);
            let why = why.following(line.why.as_ref());
            let is_blocked = line.has_takers();
            if !is_blocked && !came.is_empty() {
                self.lane.wake.notify_one();
            }
            for waiter in came {
                match is_blocked && waiter.ask.stays_until().is_none() {
                    true => drop(waiter.reply.send(Reply::Behind(why.clone().unsent()))),
                    false => line.waiting.push_back(waiter),
                }
            }
            let until = line.waiting.iter().filter_map(|waiter| waiter.ask.stays_until()).min();
            let pause = length(&why, until, line.waiting.iter().any(|waiter| !waiter.ask.takes()));
            line.why = Some(why);
            (line.is_paused, line.is_out) = (true, false);
            pause
        };
        tokio::select! {
            biased;
            () = sleep(pause) => {}
            () = self.lane.wake.notified() => {}
        }
        let mut line = self.lane.line();
        (line.is_paused, line.looks_since) = (false, Some(Instant::now()));
    }
}

impl<Q, A> Drop for Leader<Q, A> {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let mut line = self.lane.line();
        let waiting = std::mem::take(&mut line.waiting);
        (line.why, line.is_paused, line.is_out, line.solo) = (None, false, false, None);
        self.lane.is_served.store(false, Ordering::Release);
        drop(line);
        for waiter in waiting {
            let _ = waiter.reply.send(Reply::Again);
        }
    }
}
