//! The machine of a process: a clock, which may be wrong by hours and be set, and a steady clock, which
//! nobody sets. Both may stand while the machine does, as in a snapshot that is resumed later.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;

use crate::row::Micros;

/// From this on a clock is wrong by more than its process may err.
const WRONG_BY: i64 = 2_000_000;

/// A clock is off by so much at most.
const A_DAY: i64 = 24 * 3_600 * 1_000_000;

/// A clock is set by so much at a time, at least and at most.
const A_SECOND: i64 = 1_000_000;
const HOURS: i64 = 6 * 3_600 * 1_000_000;

/// A write that was planned before the first reply after a resume may be sent so much later: the time of a
/// request and its tries.
const UNNOTICED: i64 = 6_000_000;

/// A process does not notice that its two clocks moved apart by so little.
const UNSEEN: u64 = 250_000;

/// The clocks of a process. Clones are one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How far its clock is off, within what a process may err.
    error: i64,
    /// And how far beyond that.
    off: i64,
    /// For how long its steady clock stood still so far.
    stood: i64,
    /// Since when both clocks stand, in true time.
    stands_since: Option<i64>,
    /// How far its two clocks were apart when it last stopped.
    apart_before: i64,
    /// When one of them was set, or went on, for the last time, in true time.
    changed_at: Option<i64>,
    /// When its clock was set within what a process may err, for the last time, in true time.
    shifted_at: Option<i64>,
    /// The last time in which both stood, which nothing on the machine tells, and when it ended.
    behind: Option<(i64, i64)>,
}

/// What the clocks of a machine show after a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumed {
    /// The machine's clock was set; the steady one goes on from where it stood.
    Set,
    /// Both go on from where they stood: nothing tells that time went on.
    Unset,
    /// The steady one counts the time in which the machine stood; the other one goes on from where it stood.
    Counted,
}

impl State {
    /// How far its clock is ahead of the steady one, but for where that began.
    const fn apart(&self) -> i64 {
        self.error + self.off + self.stood
    }
}

impl Machine {
    /// Wrong by up to a day, as drawn: a fifth of the clocks are exact.
    pub(crate) fn is_wrong(&self, rng: &mut Rng) {
        if rng.u32(0..5) > 0 {
            self.state().off = signed(WRONG_BY, A_DAY, rng);
        }
    }

    /// Someone sets its clock, by seconds to hours; returns by how much.
    pub(crate) fn is_set(&self, now: i64, rng: &mut Rng) -> i64 {
        let by = signed(A_SECOND, HOURS, rng);
        let mut state = self.state();
        (state.off, state.changed_at) = (state.off + by, Some(now));
        by
    }

    /// Both clocks stand from now on.
    pub(crate) fn stop(&self, now: i64) {
        let mut state = self.state();
        if state.stands_since.is_none() {
            (state.stands_since, state.apart_before) = (Some(now), state.apart());
        }
    }

    /// The clocks go on.
    pub(crate) fn resume(&self, now: i64, resumed: Resumed) {
        let mut state = self.state();
        let Some(since) = state.stands_since.take() else { return };
        let time = now - since;
        if resumed != Resumed::Counted {
            state.stood += time;
        }
        if resumed != Resumed::Set {
            state.off -= time;
        }
        // Someone may have set its clock back, while it stood, by as much as it is set forward now.
        if resumed == Resumed::Unset || state.apart().abs_diff(state.apart_before) <= UNSEEN {
            state.behind = Some((time, now));
        }
        state.changed_at = Some(now);
    }

    /// Sets how far its clock is off within what a process may err, in microseconds, at a true time.
    pub(crate) fn set_error(&self, micros: i64, now: i64) {
        let mut state = self.state();
        (state.error, state.shifted_at) = (micros, Some(now));
    }

    pub(crate) fn error(&self) -> i64 {
        self.state().error
    }

    /// What its clock shows at a true time.
    pub(crate) fn shows(&self, now: i64) -> i64 {
        let state = self.state();
        state.stands_since.unwrap_or(now) + state.error + state.off
    }

    /// And its steady one.
    pub(crate) fn steady(&self, now: i64) -> Duration {
        let state = self.state();
        Duration::from_micros((state.stands_since.unwrap_or(now) - state.stood).unsigned_abs())
    }

    /// Whether a clock stood, was set, or went on, since `at`.
    pub(crate) fn changed_since(&self, at: Micros) -> bool {
        let state = self.state();
        state.stands_since.is_some() || state.changed_at.is_some_and(|changed| Micros::from(changed) >= at)
    }

    /// Whether its process may have seen the two clocks move apart since `at`: a smaller step than a jump of
    /// clocks is noticed, too.
    pub(crate) fn moved_apart_since(&self, at: Micros) -> bool {
        let shifted_at = self.state().shifted_at;
        self.changed_since(at) || shifted_at.is_some_and(|shifted| Micros::from(shifted) >= at)
    }

    /// By how much its process may be behind, in addition to its error, before a reply has told it that its
    /// machine had stood.
    pub(crate) fn behind(&self, now: Micros) -> Micros {
        let unnoticed = |(_, at): &(i64, i64)| now < Micros::from(*at + UNNOTICED);
        self.state().behind.filter(unnoticed).map_or(0, |(time, _)| time.into())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Between the two, forward or back; small ones are as likely as large ones.
fn signed(least: i64, most: i64, rng: &mut Rng) -> i64 {
    let by = (least as f64 * (most as f64 / least as f64).powf(rng.f64())) as i64;
    if rng.bool() { by } else { -by }
}
