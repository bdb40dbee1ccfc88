//! Lanes: group commit. Callers of one process stand in line before a bucket, and one write serves all that are there.
//!
//! At most one write of a lane is under way; who arrives meanwhile is in the next one. There is no timer: a caller that finds
//! nobody in line starts the one who serves it, on a task of its own, and is served at once. That task serves whoever comes
//! while it is there, and ends when nobody does. So a caller that is dropped never cuts a write off: its turn is passed over, and
//! what it was granted goes to the next in line or is given back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::outcome::RetryIn;

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
}

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

/// Waits for the answer to one turn. Dropped, it leaves the line.
#[derive(Debug)]
pub(crate) struct Ticket<A>(oneshot::Receiver<Reply<A>>);

/// Why a turn has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was sent for it: ask again.
    NotServed,
    /// Who served it has ended while a request for it was under way.
    Lost,
}

/// The place of who serves a lane. Dropped, those in line are told to ask again.
#[derive(Debug)]
pub(crate) struct Seat<Q, A> {
    lane: Arc<Lane<Q, A>>,
    is_left: bool,
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        let line = Line { waiting: VecDeque::new(), blocked: None, is_out: false };
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

impl<A> Ticket<A> {
    pub(crate) async fn answer(self) -> Result<A, NoAnswer> {
        match self.0.await {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(Reply::Again) => Err(NoAnswer::NotServed),
            Err(_) => Err(NoAnswer::Lost),
        }
    }
}

impl<Q, A> Lane<Q, A> {
    /// Joins the end of the line. The seat, where nobody serves the lane: whoever gets it must.
    pub(crate) fn join(self: &Arc<Self>, ask: Q) -> (Ticket<A>, Option<Seat<Q, A>>) {
        let (reply, ticket) = oneshot::channel();
        let mut line = self.line();
        line.waiting.push_back(Turn { ask, reply });
        let is_first = !self.is_served.swap(true, Ordering::AcqRel);
        drop(line);
        (Ticket(ticket), is_first.then(|| Seat { lane: Arc::clone(self), is_left: false }))
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
    /// Lets everyone run first whose turn on the thread it is: callers that the last write served come back for the next.
    pub(crate) async fn next(&mut self, most: usize) -> Option<Vec<Turn<Q, A>>> {
        tokio::task::yield_now().await;
        let mut line = self.lane.line();
        let count = line.waiting.len().min(most);
        let mut turns: Vec<_> = line.waiting.drain(..count).filter(|turn| !turn.is_left()).collect();
        while turns.is_empty() && !line.waiting.is_empty() {
            turns.extend(line.waiting.pop_front().filter(|turn| !turn.is_left()));
        }
        line.is_out = !turns.is_empty();
        if turns.is_empty() {
            self.is_left = true;
            self.lane.is_served.store(false, Ordering::Release);
            return None;
        }
        Some(turns)
    }

    /// All whom this batch had are answered: the head of the line is next, for what one of them left.
    pub(crate) fn batch_is_over(&self) {
        self.lane.line().is_out = false;
    }

    /// Puts callers that wait back to the head of the line, in their order, and pauses.
    pub(crate) async fn pause(&self, turns: Vec<Turn<Q, A>>, why: RetryIn, pause: Duration) {
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
        (line.blocked, line.is_out) = (None, false);
        self.lane.is_served.store(false, Ordering::Release);
        drop(line);
        for turn in waiting {
            let _ = turn.reply.send(Reply::Again);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Lane<u32, u32>;

    #[tokio::test]
    async fn who_arrives_while_the_lane_is_served_is_in_the_next_batch_in_order() {
        let lane = Arc::new(Numbers::default());
        let (first, seat) = lane.join(1);
        let mut seat = seat.unwrap();
        let batch = seat.next(10).await.unwrap();
        let later: Vec<_> = (2..5).map(|ask| lane.join(ask)).collect();
        assert!(later.iter().all(|(_, seat)| seat.is_none()), "one serves");
        batch.into_iter().for_each(|turn| turn.answer(0));
        assert_eq!(first.answer().await, Ok(0));
        let batch = seat.next(2).await.unwrap();
        assert_eq!(batch.iter().map(|turn| turn.ask).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(seat.next(10).await.unwrap()[0].ask, 4);
        assert!(seat.next(10).await.is_none() && lane.is_idle());
    }

    #[tokio::test]
    async fn who_left_is_passed_over_and_what_it_leaves_is_for_the_head() {
        let lane = Arc::new(Numbers::default());
        let (gone, seat) = lane.join(1);
        let (also_gone, _) = lane.join(2);
        let (stays, _) = lane.join(3);
        drop((gone, also_gone));
        assert!(lane.head_if(|ask| *ask == 4).is_none());
        lane.head_if(|ask| *ask == 3).unwrap().answer(30);
        assert_eq!(stays.answer().await, Ok(30));
        assert!(seat.unwrap().next(10).await.is_none());
    }

    /// As when the runtime is dropped in which it ran.
    #[tokio::test]
    async fn who_serves_and_ends_tells_those_in_line_to_ask_again() {
        let lane = Arc::new(Numbers::default());
        let (sent, seat) = lane.join(1);
        let mut seat = seat.unwrap();
        let batch = seat.next(1).await.unwrap();
        let (not_sent, _) = lane.join(2);
        drop((batch, seat));
        assert_eq!((sent.answer().await, not_sent.answer().await), (Err(NoAnswer::Lost), Err(NoAnswer::NotServed)));
        assert!(lane.is_idle() && lane.join(3).1.is_some());
    }
}
