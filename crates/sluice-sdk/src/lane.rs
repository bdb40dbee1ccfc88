//! Lanes: group commit. Callers of one process stand in line before a bucket, and one write serves all that are there.
//!
//! At most one write of a lane is under way; who arrives meanwhile is in the next one. There is no timer: a caller that finds
//! nobody in line serves the lane, and is served at once. As long as it is alone it does so within its own task, since a hop to
//! another would cost a tenth of a write; with the second caller the service moves to a task of its own, so that a caller that is
//! not polled holds nobody up. It serves whoever comes while it is there, and ends when nobody does. A caller that is dropped
//! never cuts a write off: its turn is passed over, and what it was granted goes to the next in line or is given back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::outcome::RetryIn;
use crate::retry::Poll;

/// Passes over the tasks of the thread before a batch is taken, while callers keep coming: a bound, and no more.
const MOST_YIELDS: u32 = 8;

/// A line of callers, each of whom asks `Q` and is answered `A`.
#[derive(Debug)]
pub(crate) struct Lane<Q, A> {
    line: Mutex<Line<Q, A>>,
    is_served: AtomicBool,
    /// Tells who serves the lane that those who wait may look again.
    wake: Notify,
}

#[derive(Debug)]
struct Line<Q, A> {
    waiting: VecDeque<Turn<Q, A>>,
    /// Why the head of the line waits, while it does.
    blocked: Option<RetryIn>,
    /// Whether callers who came before those in line are being served.
    is_out: bool,
    /// The service, while the only caller runs it.
    alone: Option<Arc<Alone>>,
    /// Whether the last batch had several callers, who may be about to come back.
    was_busy: bool,
}

/// A service that its only caller runs, until a second one comes.
struct Alone {
    service: Mutex<Option<Service>>,
    /// Where it began, for a caller that is dropped outside of any runtime.
    runtime: Option<Handle>,
}

/// Serves a lane until nobody is left.
pub(crate) type Service = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One caller in line.
#[derive(Debug)]
pub(crate) struct Turn<Q, A> {
    pub(crate) ask: Q,
    reply: oneshot::Sender<Reply<A>>,
}

#[derive(Debug)]
enum Reply<A> {
    Answer(A),
    /// Who served the lane has ended, as with its runtime, before the turn came: nothing was sent for it.
    Again,
}

/// A caller's place in line: waits for the answer to its turn. Dropped, it leaves the line.
#[derive(Debug)]
pub(crate) struct Place<A> {
    reply: oneshot::Receiver<Reply<A>>,
    alone: Option<Arc<Alone>>,
}

/// Why a turn has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was sent for it: ask again.
    NotServed,
    /// Who served it has ended while a request for it was under way.
    Lost,
}

/// Callers of a batch who would rather wait than be refused, and what for.
pub(crate) type Waiting<Q, A> = Option<(Vec<Turn<Q, A>>, RetryIn)>;

/// The seat of who serves a lane. Dropped, those in line are told to ask again.
#[derive(Debug)]
pub(crate) struct Seat<Q, A> {
    lane: Arc<Lane<Q, A>>,
    has_served: bool,
    is_left: bool,
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        let line = Line { waiting: VecDeque::new(), blocked: None, is_out: false, alone: None, was_busy: false };
        Self { line: Mutex::new(line), is_served: AtomicBool::new(false), wake: Notify::new() }
    }
}

impl<Q, A> Turn<Q, A> {
    /// Answers it. What its caller is not there to take is dropped.
    pub(crate) fn answer(self, answer: A) {
        let _ = self.reply.send(Reply::Answer(answer));
    }

    /// Whether its caller has gone away.
    pub(crate) fn is_left(&self) -> bool {
        self.reply.is_closed()
    }
}

impl<A> Place<A> {
    pub(crate) async fn answer(mut self) -> Result<A, NoAnswer> {
        let answer = std::future::poll_fn(|context| {
            if let Some(alone) = &self.alone
                && alone.is_over(context)
            {
                self.alone = None;
            }
            Pin::new(&mut self.reply).poll(context)
        });
        match answer.await {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(Reply::Again) => Err(NoAnswer::NotServed),
            Err(_) => Err(NoAnswer::Lost),
        }
    }
}

/// What is under way goes on.
impl<A> Drop for Place<A> {
    fn drop(&mut self) {
        self.alone.take().into_iter().for_each(|alone| alone.move_out());
    }
}

impl Alone {
    /// Runs the service on; whether there is nothing to run any more.
    fn is_over(&self, context: &mut Context<'_>) -> bool {
        let mut service = self.service();
        let is_over = service.as_mut().is_none_or(|service| service.as_mut().poll(context).is_ready());
        if is_over {
            *service = None;
        }
        is_over
    }

    /// Moves the service to a task of its own. Without a runtime it ends here, and tells so those in line.
    fn move_out(&self) {
        let service = self.service().take();
        let runtime = Handle::try_current().ok().or_else(|| self.runtime.clone());
        if let (Some(service), Some(runtime)) = (service, runtime) {
            runtime.spawn(service);
        }
    }

    fn service(&self) -> MutexGuard<'_, Option<Service>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Alone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alone")
    }
}

impl<Q, A> Lane<Q, A> {
    /// Joins the end of the line. Where nobody serves the lane, `serve` makes who does.
    pub(crate) fn join(self: &Arc<Self>, ask: Q, serve: impl FnOnce(Seat<Q, A>) -> Service) -> Place<A> {
        let (turn, reply) = oneshot::channel();
        let mut line = self.line();
        line.waiting.push_back(Turn { ask, reply: turn });
        if self.is_served.swap(true, Ordering::AcqRel) {
            let alone = line.alone.take();
            drop(line);
            // Not alone any more. Whoever ran the service may not be polled for long.
            alone.into_iter().for_each(|alone| alone.move_out());
            return Place { reply, alone: None };
        }
        let service = serve(Seat { lane: Arc::clone(self), has_served: false, is_left: false });
        let alone = Arc::new(Alone { service: Mutex::new(Some(service)), runtime: Handle::try_current().ok() });
        line.alone = Some(Arc::clone(&alone));
        Place { reply, alone: Some(alone) }
    }

    /// Whether nobody is in line or being served.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_served.load(Ordering::Acquire)
    }

    /// Why the head of the line waits, while it does: who does not want to wait need not join.
    pub(crate) fn blocked(&self) -> Option<RetryIn> {
        self.line().blocked.clone()
    }

    /// Those who wait may look again.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The head of the line, if it is such a one: for what another caller was granted and left. Nobody, while others are served
    /// who came before.
    pub(crate) fn head_if(&self, fits: impl FnOnce(&Q) -> bool) -> Option<Turn<Q, A>> {
        let mut line = self.line();
        if line.is_out {
            return None;
        }
        line.forget_the_gone();
        match line.waiting.front() {
            Some(head) if fits(&head.ask) => line.waiting.pop_front(),
            _ => None,
        }
    }

    /// No panic while it is locked leaves it half done.
    fn line(&self) -> MutexGuard<'_, Line<Q, A>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Line<Q, A> {
    fn forget_the_gone(&mut self) {
        while self.waiting.front().is_some_and(Turn::is_left) {
            self.waiting.pop_front();
        }
    }
}

impl<Q, A> Seat<Q, A> {
    /// The next callers in line, `most` at most; `None` when nobody is left, and the seat is too.
    ///
    /// Where the last batch had several, lets everyone run first whose turn on the thread it is, as long as more come: callers
    /// that were just served come back for the next. A lone caller waits for nobody.
    pub(crate) async fn next(&mut self, most: usize) -> Option<Vec<Turn<Q, A>>> {
        self.next_of(most, |turn| !turn.is_left()).await
    }

    /// The same with those who have gone away: for what is to be done whether somebody hears of it or not.
    pub(crate) async fn next_with_the_gone(&mut self, most: usize) -> Option<Vec<Turn<Q, A>>> {
        self.next_of(most, |_| true).await
    }

    async fn next_of(&mut self, most: usize, counts: impl Fn(&Turn<Q, A>) -> bool) -> Option<Vec<Turn<Q, A>>> {
        let (mut here, was_busy) = {
            let line = self.lane.line();
            (line.waiting.len(), line.was_busy)
        };
        let is_over = self.has_served && here == 0;
        for _ in 0..if was_busy && !is_over { MOST_YIELDS } else { 0 } {
            tokio::task::yield_now().await;
            let now = self.lane.line().waiting.len();
            if now <= here {
                break;
            }
            here = now;
        }
        self.has_served = true;
        let mut line = self.lane.line();
        let count = line.waiting.len().min(most);
        let mut turns: Vec<_> = line.waiting.drain(..count).filter(&counts).collect();
        while turns.is_empty() && !line.waiting.is_empty() {
            turns.extend(line.waiting.pop_front().filter(&counts));
        }
        line.is_out = !turns.is_empty();
        if !turns.is_empty() {
            line.was_busy = turns.len() > 1;
        }
        if turns.is_empty() {
            self.is_left = true;
            // A client may know very many buckets.
            line.waiting = VecDeque::new();
            line.alone = None;
            self.lane.is_served.store(false, Ordering::Release);
            return None;
        }
        Some(turns)
    }

    /// All whom this batch had are answered: the head of the line is next, for what one of them left.
    pub(crate) fn batch_is_over(&self) {
        self.lane.line().is_out = false;
    }

    /// After a batch of `served` callers of which some may wait, for what is told with them. Drops what nobody took: it goes to the
    /// next in line, if that asks for as much, or back. Pauses where someone waits, and says so.
    pub(crate) async fn after<T>(
        &self,
        served: usize,
        (waiting, untaken): (Waiting<Q, A>, T),
        poll: &mut Poll,
    ) -> bool {
        let Some((waiting, why)) = waiting else {
            *poll = Poll::default();
            self.batch_is_over();
            drop(untaken);
            return false;
        };
        drop(untaken);
        if waiting.len() < served {
            *poll = Poll::default();
        }
        let pause = poll.next(&why);
        self.pause(waiting, why, pause).await;
        true
    }

    /// Puts callers that wait back to the head of the line, in their order, and pauses.
    async fn pause(&self, turns: Vec<Turn<Q, A>>, why: RetryIn, pause: Duration) {
        {
            let mut line = self.lane.line();
            turns.into_iter().rev().for_each(|turn| line.waiting.push_front(turn));
            line.blocked = Some(why);
            line.is_out = false;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = self.lane.wake.notified() => {}
        }
        self.lane.line().blocked = None;
    }
}

impl<Q, A> Drop for Seat<Q, A> {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let mut line = self.lane.line();
        let waiting = std::mem::take(&mut line.waiting);
        (line.blocked, line.is_out, line.alone) = (None, false, None);
        self.lane.is_served.store(false, Ordering::Release);
        drop(line);
        for turn in waiting {
            let _ = turn.reply.send(Reply::Again);
        }
    }
}

#[cfg(test)]
mod tests;
