//! Lanes: group commit. Callers of one process stand in a queue before a bucket, and one write serves them
//! all.
//!
//! At most one write of a lane is under way. Callers that arrive during the write are in the next one. There
//! is no timer: a caller that finds the queue empty serves the lane at once. While it is the only caller, it
//! does so in its own task, because a hop to another task costs a tenth of a write. When a second caller
//! comes, the service moves to a task of its own, so that a caller that is not polled delays nobody. The
//! service ends when no caller is left. A dropped caller does not interrupt the write: the caller is skipped,
//! and its grant goes to the next caller in the queue, or back to the bucket.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::lane::queue::leader::Leader;
use crate::lane::setback::Setback;
use crate::lane::sync::{Arc, AtomicBool, Instant, Mutex, MutexGuard, Notify, Ordering, oneshot, timeout_at};

pub(crate) mod leader;
mod solo;

use crate::lane::queue::solo::SoloLeader;

/// A queue of callers. Each caller asks `Q` and is answered `A`.
#[derive(Debug)]
pub(crate) struct Lane<Q, A> {
    queue: Mutex<Queue<Q, A>>,
    is_served: AtomicBool,
    /// Tells the leader of the lane that the callers that wait may look again.
    wake: Notify,
}

#[derive(Debug)]
struct Queue<Q, A> {
    waiting: VecDeque<Waiter<Q, A>>,
    /// Why the head of the queue waits; `None` once nobody waits.
    why: Option<Setback>,
    /// Since when the head of the queue looks again, after a pause.
    looks_since: Option<Instant>,
    /// Whether all callers in the queue wait, and nobody is being served.
    is_paused: bool,
    /// Whether callers that came before those in the queue are being served.
    is_serving: bool,
    /// The service, while the only caller runs it.
    solo: Option<Arc<SoloLeader>>,
    /// Whether the last batch had several callers, which may be about to come back.
    was_busy: bool,
}

/// Serves a lane until no caller is left.
pub(crate) type Service = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One caller in the queue.
#[derive(Debug)]
pub(crate) struct Waiter<Q, A> {
    pub(crate) ask: Q,
    reply: oneshot::Sender<Result<A, NoAnswer>>,
}

/// A caller's place in the queue: waits for the answer. A caller whose handle is dropped leaves the queue.
#[derive(Debug)]
pub(crate) struct WaitHandle<A> {
    reply: oneshot::Receiver<Result<A, NoAnswer>>,
    solo: Option<Arc<SoloLeader>>,
}

/// Why a caller has no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// The leader ended, for example with its runtime, before it reached the caller: nothing was sent, and
    /// the caller asks again.
    NotServed,
    /// The leader ended while a request for the caller was under way.
    Lost,
    /// Nothing was sent: the caller does not wait, and would stand behind callers that wait for this.
    Behind(Setback),
}

/// How a caller that takes leaves the queue.
#[derive(Debug)]
pub(crate) enum QueueResult<A> {
    Answered(A),
    /// The deadline of the caller passed.
    Late,
    /// Nothing was sent: the caller does not wait, and would stand behind callers that wait for this.
    Behind(Setback),
    /// The leader ended while a request for the caller was under way.
    Lost,
}

/// What callers ask in a queue that may pause.
pub(crate) trait QueueAsk {
    /// Until when the caller stays in the queue; `None` if it does not wait.
    fn stays_until(&self) -> Option<Instant>;

    /// Whether the caller takes, so that nobody may pass it; false if it gives back.
    fn takes(&self) -> bool {
        true
    }

    /// The caller's place among those that came from another queue, if that matters.
    fn came(&self) -> u64 {
        0
    }
}

/// The callers of a batch that stay in the queue, and the setback they wait for.
pub(crate) type Waiting<Q, A> = Option<(Vec<Waiter<Q, A>>, Setback)>;

/// Notes that a caller stays in the queue. The setback of the first such caller is the setback of the queue.
pub(crate) fn stay<Q, A>(waiting: &mut Waiting<Q, A>, waiter: Waiter<Q, A>, why: &Setback) {
    waiting.get_or_insert_with(|| (Vec::new(), why.clone())).0.push(waiter);
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        let queue = Queue {
            waiting: VecDeque::new(),
            why: None,
            looks_since: None,
            is_paused: false,
            is_serving: false,
            solo: None,
            was_busy: false,
        };
        Self { queue: Mutex::new(queue), is_served: AtomicBool::new(false), wake: Notify::new() }
    }
}

impl<Q, A> Waiter<Q, A> {
    pub(crate) fn answer(self, answer: A) {
        let _ = self.reply.send(Ok(answer));
    }

    pub(crate) fn is_left(&self) -> bool {
        self.reply.is_closed()
    }
}

impl<A> WaitHandle<A> {
    /// Returns the answer if it comes by the deadline, if any. After it, `None`: the caller is passed over.
    pub(crate) async fn answer_until(self, until: Option<Instant>) -> Option<Result<A, NoAnswer>> {
        match until {
            Some(until) => timeout_at(until, self.answer()).await.ok(),
            None => Some(self.answer().await),
        }
    }

    pub(crate) async fn answer(mut self) -> Result<A, NoAnswer> {
        std::future::poll_fn(|context| {
            if let Some(solo) = &self.solo
                && !solo.is_over(context)
            {
                // This caller has just run the service. Either the service has answered, or it wakes this
                // caller again. If the answer woke the caller too, the runtime would poll this task once more
                // than needed, often on another thread.
                return match self.reply.try_recv() {
                    Ok(answer) => Poll::Ready(answer),
                    Err(oneshot::error::TryRecvError::Empty) => Poll::Pending,
                    Err(oneshot::error::TryRecvError::Closed) => Poll::Ready(Err(NoAnswer::Lost)),
                };
            }
            self.solo = None;
            Pin::new(&mut self.reply).poll(context).map(|answer| answer.unwrap_or(Err(NoAnswer::Lost)))
        })
        .await
    }
}

/// A service that is under way goes on.
impl<A> Drop for WaitHandle<A> {
    fn drop(&mut self) {
        self.solo.take().into_iter().for_each(|solo| drop(solo.move_out()));
    }
}

impl<Q, A> Lane<Q, A> {
    /// Stands in the queue until the answer comes, whatever the queue waits for: for a caller that gives
    /// back. `None` if the leader ended with a request for the caller under way. `ask` and `serve` are called
    /// again if a leader ends before it.
    pub(crate) async fn give(
        self: &Arc<Self>,
        mut ask: impl FnMut() -> Q,
        mut serve: impl FnMut(Leader<Q, A>) -> Service,
    ) -> Option<A> {
        loop {
            let handle = self.join(ask(), &mut serve);
            // What comes back may be what the others wait for.
            self.wake();
            match handle.answer().await {
                Ok(answer) => return Some(answer),
                Err(NoAnswer::NotServed | NoAnswer::Behind(_)) => {}
                Err(NoAnswer::Lost) => return None,
            }
        }
    }

    /// Joins the end of the queue. If nobody serves the lane, `serve` creates the service.
    pub(crate) fn join(
        self: &Arc<Self>,
        ask: Q,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> WaitHandle<A> {
        self.enter(self.queue(), ask, serve)
    }

    fn enter(
        self: &Arc<Self>,
        queue: MutexGuard<'_, Queue<Q, A>>,
        ask: Q,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> WaitHandle<A> {
        self.enter_before(queue, ask, VecDeque::new(), serve)
    }

    /// As `enter`, before the callers `later`, which were taken out of the queue.
    fn enter_before(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue<Q, A>>,
        ask: Q,
        later: VecDeque<Waiter<Q, A>>,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> WaitHandle<A> {
        let (waiter, reply) = oneshot::channel();
        queue.waiting.push_back(Waiter { ask, reply: waiter });
        queue.waiting.extend(later);
        if self.is_served.swap(true, Ordering::AcqRel) {
            let solo = queue.solo.take();
            drop(queue);
            // The first caller is no longer alone, and may not be polled: the service moves to a task.
            solo.and_then(|solo| solo.move_out()).into_iter().for_each(Waker::wake);
            return WaitHandle { reply, solo: None };
        }
        let solo = Arc::new(SoloLeader::new(serve(Leader::new(self))));
        queue.solo = Some(Arc::clone(&solo));
        WaitHandle { reply, solo: Some(solo) }
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_served.load(Ordering::Acquire)
    }

    /// Why the head of the queue waits, or waited when it last looked; `None` if nobody waits.
    pub(crate) fn why(&self) -> Option<Setback> {
        self.queue().why.clone()
    }

    /// For how long the callers that wait have looked again, unanswered; `None` in a pause or a first look.
    pub(crate) fn looks_for(&self) -> Option<Duration> {
        let queue = self.queue();
        queue.looks_since.filter(|_| queue.is_serving).map(|since| since.elapsed())
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes the head of the queue, if it `fits` what another caller was granted and left. `None` while
    /// callers that came before the head are being served.
    pub(crate) fn head_if(&self, fits: impl FnOnce(&Q) -> bool) -> Option<Waiter<Q, A>> {
        let mut queue = self.queue();
        if queue.is_serving {
            return None;
        }
        queue.forget_left();
        match queue.waiting.front() {
            Some(head) if fits(&head.ask) => {
                // A lone caller learns of its answer only when it runs the service again.
                if queue.solo.is_some() {
                    self.wake();
                }
                queue.waiting.pop_front()
            }
            _ => None,
        }
    }

    /// A panic while the lock is held leaves nothing half done.
    fn queue(&self) -> MutexGuard<'_, Queue<Q, A>> {
        self.queue.lock()
    }
}

impl<Q: QueueAsk, A> Lane<Q, A> {
    /// Stands in the queue until the answer or the caller's own deadline: for a caller that takes. `stays`
    /// says for which setbacks. `ask` and `serve` are called again if a leader ends before it.
    pub(crate) async fn take(
        self: &Arc<Self>,
        mut ask: impl FnMut() -> Q,
        stays: impl Fn(&Setback) -> bool,
        mut serve: impl FnMut(Leader<Q, A>) -> Service,
    ) -> QueueResult<A> {
        loop {
            let ask = ask();
            let until = ask.stays_until();
            let handle = match self.join_if(ask, &stays, &mut serve) {
                Ok(handle) => handle,
                Err(setback) => return QueueResult::Behind(setback),
            };
            match handle.answer_until(until).await {
                Some(Ok(answer)) => return QueueResult::Answered(answer),
                Some(Err(NoAnswer::NotServed)) => {}
                Some(Err(NoAnswer::Behind(setback))) => return QueueResult::Behind(setback),
                Some(Err(NoAnswer::Lost)) => return QueueResult::Lost,
                None => return QueueResult::Late,
            }
        }
    }

    /// As [`join`](Self::join). If the queue is paused and the caller does not stay for its setback, returns
    /// the setback. If only callers that give back are in the queue, ends the pause instead: a new caller may
    /// pass them.
    pub(crate) fn join_if(
        self: &Arc<Self>,
        ask: Q,
        stays: impl FnOnce(&Setback) -> bool,
        serve: impl FnOnce(Leader<Q, A>) -> Service,
    ) -> Result<WaitHandle<A>, Setback> {
        let mut queue = self.queue();
        if queue.is_paused {
            if !queue.has_takers() {
                self.wake.notify_one();
            } else if let Some(why) = queue.why.as_ref().filter(|why| !stays(why)) {
                return Err(why.clone().unsent());
            }
        }
        let came = ask.came();
        let later = queue.waiting.iter().rev().take_while(|waiter| waiter.ask.came() > came).count();
        let first_later = queue.waiting.len() - later;
        let later = queue.waiting.split_off(first_later);
        Ok(self.enter_before(queue, ask, later, serve))
    }
}

impl<Q: QueueAsk, A> Queue<Q, A> {
    /// Whether the queue contains a caller that must not be passed: one that takes and waits. A caller that
    /// takes and does not wait does not count. It has just come and is served next, and the setback in the
    /// queue is that of releases, which is no reason to refuse anybody.
    fn has_takers(&self) -> bool {
        let waits = |waiter: &Waiter<Q, A>| waiter.ask.takes() && waiter.ask.stays_until().is_some();
        self.waiting.iter().any(|waiter| !waiter.is_left() && waits(waiter))
    }
}

impl<Q, A> Queue<Q, A> {
    fn forget_left(&mut self) {
        while self.waiting.front().is_some_and(Waiter::is_left) {
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
