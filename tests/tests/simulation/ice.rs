//! A process that stands still while others go on: its callers are not polled, what it sends leaves it only
//! when it goes on, and what is answered meanwhile it finds then. Its clock goes on.
//!
//! Tasks that the SDK spawns itself stand still where they send their next request, and only until its
//! attempts end by their timeouts: to them it is as if the network were cut.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluice_testkit::Gate;
use tokio::time::Instant;

use crate::row::Micros;

/// Whether a process stands still. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ice(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_frozen: bool,
    /// Since when it does, and how long it did before.
    since: Option<Instant>,
    before: Duration,
    /// When it last began or ended, in true time.
    changed_at: Option<Micros>,
    waiting: Vec<Waker>,
    held: Vec<Gate>,
}

impl Ice {
    pub(crate) fn freeze(&self, now: Micros) {
        let mut state = self.state();
        (state.is_frozen, state.changed_at, state.since) = (true, Some(now), Some(Instant::now()));
    }

    pub(crate) fn thaw(&self, now: Micros) {
        let mut state = self.state();
        if !std::mem::take(&mut state.is_frozen) {
            return;
        }
        state.changed_at = Some(now);
        let since = state.since.take();
        state.before += since.map_or(Duration::ZERO, |since| since.elapsed());
        let (waiting, held) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.held));
        drop(state);
        held.iter().for_each(Gate::open);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Where a request waits that is sent while the process stands still.
    pub(crate) fn gate(&self) -> Option<Gate> {
        let mut state = self.state();
        state.is_frozen.then(|| {
            let gate = Gate::default();
            state.held.push(gate.clone());
            gate
        })
    }

    /// Whether the process stood still at some moment since `at`.
    pub(crate) fn was_frozen_since(&self, at: Micros) -> bool {
        let state = self.state();
        state.is_frozen || state.changed_at.is_some_and(|changed| changed >= at)
    }

    /// How long it stood still so far.
    pub(crate) fn stood_still(&self) -> Duration {
        let state = self.state();
        state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// A future of the process.
    pub(crate) fn on<F: Future>(&self, future: F) -> Frozen<F> {
        Frozen { ice: self.clone(), future: Box::pin(future) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// A future of a process that may stand still.
pub(crate) struct Frozen<F> {
    ice: Ice,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Frozen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut state = self.ice.state();
            if state.is_frozen {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(context)
    }
}
