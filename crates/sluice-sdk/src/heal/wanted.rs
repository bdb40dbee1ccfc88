//! Whether callers want slots, and when this process last looked for slots.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::Timestamp;
use tokio::sync::Notify;

use crate::heal::due::PendingHeal;
use crate::heal::{COMES_BACK, LONGEST_RETURN, healing};
use crate::lane::inner::Inner;

/// Whether callers want slots: of one bucket, or of any bucket.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    state: Mutex<WantedState>,
    /// Wakes the task for a try that is due.
    pub(super) woken: Notify,
}

#[derive(Debug, Default)]
pub(super) struct WantedState {
    /// Whether a caller asked since the last note.
    pub(super) is_asked: bool,
    /// Refusals that are not reported yet.
    pub(super) refusals: u32,
    /// Until when callers want slots, as far as is known.
    pub(super) until: Timestamp,
    /// When this process last tried, and for how long it need not try again.
    tried: Option<(Timestamp, Duration)>,
    pub(super) is_tended: bool,
    /// Set while a try is due or under way.
    pub(super) due: Option<PendingHeal>,
}

/// What the task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nobody wants slots any more.
    Leave,
    Wait(Duration),
    Try,
}

impl WantedState {
    /// How long until the next try. A last try in the future, after the clock was set back, counts as none.
    pub(super) fn left(&self, now: Timestamp) -> Duration {
        let tried = self.tried.filter(|(at, _)| *at <= now);
        tried.map_or(Duration::ZERO, |(at, quiet)| quiet.saturating_sub(now.since(at)))
    }
}

impl Wanted {
    /// What the task does next. After the clock was set back, nobody wants slots for longer than a caller can
    /// have been told to wait.
    pub(super) fn next(&self, inner: &Inner) -> Next {
        let now = inner.now();
        let mut state = self.state();
        if state.until > now.after(LONGEST_RETURN + COMES_BACK) {
            state.until = now.after(COMES_BACK);
        }
        if state.until < now {
            // Under the lock, so that a caller that wants slots from now on creates another task.
            state.is_tended = false;
            state.due = None;
            return Next::Leave;
        }
        let left = state.left(now);
        if left.is_zero() {
            state.due.get_or_insert_with(|| healing(inner).dues.one());
            return Next::Try;
        }
        state.due = None;
        Next::Wait(left)
    }

    pub(super) fn tried(&self, at: Timestamp, quiet: Duration) {
        self.state().tried = Some((at, quiet));
    }

    /// The refusals to report, if a caller asked since the last note.
    pub(super) fn take_asked(&self) -> Option<u32> {
        let mut state = self.state();
        std::mem::take(&mut state.is_asked).then(|| std::mem::take(&mut state.refusals))
    }

    pub(super) fn put_back(&self, refusals: u32) {
        let mut state = self.state();
        state.refusals = state.refusals.saturating_add(refusals);
        state.is_asked = true;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WantedState> {
        self.state.lock()
    }
}
