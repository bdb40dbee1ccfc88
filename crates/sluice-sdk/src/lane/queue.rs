//! Lanes: group commit. Callers of one process stand in line before a bucket, and one write serves all that are there.
//!
//! At most one write of a lane is under way; who arrives meanwhile is in the next one. There is no timer: a caller that finds
//! nobody in line serves the lane, and is served at once. As long as it is alone it does so within its own task, since a hop to
//! another would cost a tenth of a write; with the second caller the service moves to a task of its own, so that a caller that is
//! not polled holds nobody up. It serves whoever comes while it is there, and ends when nobody does. A caller that is dropped
//! never cuts a write off: its turn is passed over, and what it was granted goes to the next in line or is given back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use crate::lane::queue::leader::Leader;
use crate::lane::setback::Setback;
use crate::lane::sync::{Arc, AtomicBool, Instant, Mutex, MutexGuard, Notify, Ordering, oneshot, timeout_at};

pub(crate) mod leader;
mod solo;

use crate::lane::queue::solo::SoloLeader;

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
    waiting: VecDeque<Waiter<Q, A>>,
    /// Why the head of the line waits, until nobody does.
    why: Option<Setback>,
    /// Since when the head of the line looks again, after a pause.
    looks_since: Option<Instant>,
    /// Whether all in line wait, and nobody is being served.
    is_paused: bool,
    /// Whether callers who came before those in line are being served.
    is_out: bool,
    /// The service, while the only caller runs it.
    solo: Option<Arc<SoloLeader>>,
    /// Whether the last batch had several callers, who may be about to come back.
    was_busy: bool,
}

/// Serves a lane until nobody is left.
pub(crate) type Service = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One caller in line.
#[derive(Debug)]
pub(crate) struct Waiter<Q, A> {
    pub(crate) ask: Q,
    reply: oneshot::Sender<Reply<A>>,
}

#[derive(Debug)]
enum Reply<A> {
    Answer(A),
    /// The line stands still for this, and its caller does not wait.
    Behind(Setback),
    /// Who served the lane has ended, as with its runtime, before the turn came: nothing was sent for it.
    Again,
}

/// A caller's place in line: waits for the answer to its turn. Dropped, it leaves the line.
#[derive(Debug)]
pub(crate) struct WaitHandle<A> {
    reply: oneshot::Receiver<Reply<A>>,
    solo: Option<Arc<SoloLeader>>,
}

/// Why a turn has no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// Nothing was sent for it: ask again.
    NotServed,
    /// Who served it has ended while a request for it was under way.
    Lost,
    /// Nothing was sent for it: its caller does not wait, and would stand behind those who wait for this.
    Behind(Setback),
}

/// What callers ask whose line may stand still.
pub(crate) trait Patient {
    /// Until when its caller stays in line; `None` for one that does not wait.
    fn stays_until(&self) -> Option<Instant>;

    /// Whether it takes, so that nobody may pass it; false if it gives back.
    fn takes(&self) -> bool {
        true
    }
}

/// Callers of a batch who stay in line, and what for.
pub(crate) type Waiting<Q, A> = Option<(Vec<Waiter<Q, A>>, Setback)>;

/// Notes that a caller stays. What keeps the first is what keeps the line.
pub(crate) fn stay<Q, A>(waiting: &mut Waiting<Q, A>, waiter: Waiter<Q, A>, why: &Setback) {
    waiting.get_or_insert_with(|| (Vec::new(), why.clone())).0.push(waiter);
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        let line = Line {
            waiting: VecDeque::new(),
            why: None,
            looks_since: None,
            is_paused: false,
            is_out: false,
            solo: None,
            was_busy: false,
        };
        Self { line: Mutex::new(line), is_served: AtomicBool::new(false), wake: Notify::new() }
    }
}

impl<Q, A> Waiter<Q, A> {
    /// Answers it. What its caller is not there to take is dropped.
    pub(crate) fn answer(self, answer: A) {
        let _ = self.reply.send(Reply::Answer(answer));
    }

    /// Whether its caller has gone away.
    pub(crate) fn is_left(&self) -> bool {
        self.reply.is_closed()
    }
}

impl<A> WaitHandle<A> {
    /// The answer, by the deadline of a caller that has one; `None` after it, and its turn is passed over.
    pub(crate) async fn answer_until(self, until: Option<Instant>) -> Option<Result<A, NoAnswer>> {
        match until {
            Some(until) => timeout_at(until, self.answer()).await.ok(),
            None => Some(self.answer().await),
        }
    }

    pub(crate) async fn answer(mut self) -> Result<A, NoAnswer> {
        let answer = std::future::poll_fn(|context| {
            if let Some(solo) = &self.solo
                && solo.is_over(context)
            {
                self.solo = None;
            }
            Pin::new(&mut self.reply).poll(context)
        });
        match answer.await {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(Reply::Again) => Err(NoAnswer::NotServed),
            Ok(Reply::Behind(why)) => Err(NoAnswer::Behind(why)),
            Err(_) => Err(NoAnswer::Lost),
        }
    }
}

/// What is under way goes on.
impl<A> Drop for WaitHandle<A> {
    fn drop(&mut self) {
        self.solo.take().into_iter().for_each(|solo| solo.move_out());
    }
}

impl<Q, A> Lane<Q, A> {
    /// Joins the end of the line. Where nobody serves the lane, `serve` makes who does.
    pub(crate) fn join(self: &Arc<Self>, ask: Q, serve: impl FnOnce(Leader<Q, A>) -> Service) -> WaitHandle<A> {
        self.enter(self.line(), ask, serve)
    }

    fn enter(
        self: &Arc<Self>,
        mut line: MutexGuard<'_, Line<Q, A>>,
        ask: Q,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> WaitHandle<A> {
        let (waiter, reply) = oneshot::channel();
        line.waiting.push_back(Waiter { ask, reply: waiter });
        if self.is_served.swap(true, Ordering::AcqRel) {
            let solo = line.solo.take();
            drop(line);
            // Not alone any more. Whoever ran the service may not be polled for long.
            solo.into_iter().for_each(|solo| solo.move_out());
            return WaitHandle { reply, solo: None };
        }
        let solo = Arc::new(SoloLeader::new(serve(Leader::new(self))));
        line.solo = Some(Arc::clone(&solo));
        WaitHandle { reply, solo: Some(solo) }
    }

    /// Whether nobody is in line or being served.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_served.load(Ordering::Acquire)
    }

    /// Why the head of the line waits, or did when it looked last; `None` where nobody does.
    pub(crate) fn why(&self) -> Option<Setback> {
        self.line().why.clone()
    }

    /// For how long those who wait have looked again without an answer; `None` while they pause, or look for the first time.
    pub(crate) fn looks_for(&self) -> Option<Duration> {
        let line = self.line();
        line.looks_since.filter(|_| line.is_out).map(|since| since.elapsed())
    }

    /// Those who wait may look again.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The head of the line, if it is such a one: for what another caller was granted and left. Nobody, while others are served
    /// who came before.
    pub(crate) fn head_if(&self, fits: impl FnOnce(&Q) -> bool) -> Option<Waiter<Q, A>> {
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
        self.line.lock()
    }
}

impl<Q: Patient, A> Lane<Q, A> {
    /// As [`join`](Self::join), unless the line stands still for something that the caller does not `stay` for, which is returned. Only
    /// who takes is not to be passed: behind those who give back alone, and those who have left, the caller is served at once.
    pub(crate) fn join_if(
        self: &Arc<Self>,
        ask: Q,
        stays: impl FnOnce(&Setback) -> bool,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> Result<WaitHandle<A>, Setback> {
        let line = self.line();
        if line.is_paused {
            if !line.has_takers() {
                self.wake.notify_one();
            } else if let Some(why) = line.why.as_ref().filter(|why| !stays(why)) {
                return Err(why.clone().unsent());
            }
        }
        Ok(self.enter(line, ask, serve))
    }
}

impl<Q: Patient, A> Line<Q, A> {
    /// Whether somebody is in line who must not be passed. One that does not wait has just come, and is being served: nobody hears from
    /// it what those who give back wait for.
    fn has_takers(&self) -> bool {
        let waits = |waiter: &Waiter<Q, A>| waiter.ask.takes() && waiter.ask.stays_until().is_some();
        self.waiting.iter().any(|waiter| !waiter.is_left() && waits(waiter))
    }
}

impl<Q, A> Line<Q, A> {
    fn forget_the_gone(&mut self) {
        while self.waiting.front().is_some_and(Waiter::is_left) {
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
