//! The time of the table, as DynamoDB's replies show it: all decisions use it, so that the processes of a
//! fleet agree.
//!
//! Each reply gives a bracket: the least and the most that DynamoDB's clock may differ from this process's
//! steady clock, which nobody sets. The time is the reading of this machine's clock, moved into that bracket:
//! a clock that may be exact is left alone, and a wrong clock is corrected.
//!
//! The bracket no longer counts if the machine's two clocks moved apart (its clock was set, or it resumed
//! from a snapshot, its steady clock having stood still), or if the last reply is too long ago. Then nothing
//! that contains an instant is written before the next reply.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{ClockOffset, FutureAnchor, OffsetEstimate, Timestamp};
use tokio::time::Instant;

use crate::clock::{Clock, whole_micros};
use crate::requests;

/// If the machine's two clocks move apart by more than this, one of them jumped. With a smaller value, a busy
/// machine's pause between two readings counts as a jump, which costs a read of the table. With a larger one,
/// a longer stop of the steady clock goes unnoticed, and counts as an error of the time until two replies
/// contradict each other.
const JUMP: Duration = Duration::from_millis(250);

/// How long the time learned from a reply counts. NTP slews a clock by 500 ppm at most, which is 0.3 s in
/// this time. With a smaller value an idle process reads the table more often.
const GOOD_FOR: Duration = Duration::from_secs(600);

/// A larger offset is logged as a warning: Sluice corrects the clock, other programs on the machine do not.
const WARN_ABOVE: Duration = Duration::from_secs(1);

/// The shortest time between two updates of the gauge: replies are many, and the offset rarely changes.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// No reply has come yet.
const NEVER: i64 = i64::MIN;

/// This machine's clock, corrected by what the replies say.
#[derive(Debug)]
pub struct TableClock {
    local: Clock,
    replies: Mutex<Replies>,
    /// The bracket: DynamoDB's time minus the steady clock, at least and at most, in microseconds.
    lowest: AtomicI64,
    highest: AtomicI64,
    /// The local clock minus the steady clock, when the last reply that counts came, or [`NEVER`].
    local_minus_steady: AtomicI64,
    /// When that reply came, by the steady clock.
    replied_at: AtomicI64,
    /// How many requests there were so far during which the two clocks moved apart.
    moved_apart: AtomicU32,
}

#[derive(Debug, Default)]
struct Replies {
    estimate: OffsetEstimate,
    /// Whether any reply had a `Date`. From then on, a reply without one does not mean that this machine's
    /// clock is DynamoDB's.
    has_date: bool,
    /// Whether the clocks moved apart during the request of the last reply.
    is_doubted: bool,
    warned_at: Option<Instant>,
    published_at: Option<Timestamp>,
}

/// When a request was sent, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    local: Timestamp,
    steady: i64,
    /// How often the clocks had moved apart when the request was sent.
    moved_apart: u32,
}

impl TableClock {
    pub(crate) fn new(local: Clock) -> Self {
        Self {
            local,
            replies: Mutex::default(),
            lowest: AtomicI64::new(i64::MIN),
            highest: AtomicI64::new(i64::MAX),
            local_minus_steady: AtomicI64::new(NEVER),
            replied_at: AtomicI64::new(NEVER),
            moved_apart: AtomicU32::new(0),
        }
    }

    /// The best estimate of DynamoDB's time, for what is refused, measured or shown. Writes use
    /// [`known`](Self::known).
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.bracketed(self.local.now(), self.local.steady_micros())
    }

    /// DynamoDB's time, exact to [`CLOCK_ERROR`](sluice_core::CLOCK_ERROR). `None` before the first reply,
    /// after a jump of this machine's clock, and if the last reply is too long ago.
    #[must_use]
    pub fn known(&self) -> Option<Timestamp> {
        // What replies showed is read before the clock: a reply that comes in between must not seem older.
        let (local_minus_steady, replied_at) =
            (self.local_minus_steady.load(Ordering::Acquire), self.replied_at.load(Ordering::Acquire));
        if local_minus_steady == NEVER {
            return None;
        }
        // If the first reading seems to show a jump, the clocks are read again: this thread may have been
        // suspended between the reading of the one clock and of the other.
        (0..2).find_map(|_| {
            let (local, steady) = (self.local.now(), self.local.steady_micros());
            let is_same =
                local.micros().saturating_sub(steady).abs_diff(local_minus_steady) <= whole_micros(JUMP);
            let is_young = steady.saturating_sub(replied_at).unsigned_abs() <= whole_micros(GOOD_FOR);
            (is_same && is_young).then(|| self.bracketed(local, steady))
        })
    }

    /// What a writer that uses this time does with an anchor in the future. If the endpoint sends no `Date`,
    /// the time is this machine's, which may itself be wrong, so the writer moves no anchor back.
    #[must_use]
    pub fn future_anchor(&self) -> FutureAnchor {
        let is_dynamodbs = self.known().is_some() && self.offset().is_some();
        if is_dynamodbs { FutureAnchor::Repair } else { FutureAnchor::Keep }
    }

    /// The steady clock, which nobody sets.
    #[must_use]
    pub fn steady_micros(&self) -> i64 {
        self.local.steady_micros()
    }

    /// The time by the steady clock alone, if a reply has come since it showed `asked_at`: for a caller that
    /// found this machine's clock set after each of several replies. (A stopped machine looks the same after
    /// one reply, not after several.) The reading is moved into the bracket, which is around the steady
    /// clock.
    pub(crate) fn known_since(&self, asked_at: i64) -> Option<Timestamp> {
        let has_replied = self.local_minus_steady.load(Ordering::Acquire) != NEVER
            && self.replied_at.load(Ordering::Acquire) >= asked_at;
        has_replied.then(|| self.now())
    }

    /// The offset of this machine's clock now, as the replies show it; `None` before the first reply.
    #[must_use]
    pub fn offset(&self) -> Option<ClockOffset> {
        let local_minus_steady = self.local.now().micros().saturating_sub(self.local.steady_micros());
        self.replies().estimate.offset().map(|offset| offset.of_clock_ahead_by(local_minus_steady))
    }

    /// The readings of both clocks. The caller takes them right before it sends a request.
    pub(crate) fn sent(&self) -> SentAt {
        let moved_apart = self.moved_apart.load(Ordering::Acquire);
        SentAt { local: self.local.now(), steady: self.local.steady_micros(), moved_apart }
    }

    /// Learns from the `Date` of a reply that has just come. An endpoint that never sends a readable `Date`
    /// is assumed to agree with this machine's clock.
    pub(crate) fn replied(&self, date: Option<Timestamp>, sent: SentAt) {
        let (received, steady) = (self.local.now(), self.local.steady_micros());
        let mut replies = self.replies();
        let local_minus_steady = received.micros().saturating_sub(steady);
        let before = self.local_minus_steady.load(Ordering::Acquire);
        if before != NEVER && local_minus_steady.abs_diff(before) > whole_micros(JUMP) {
            // What the replies showed is about the clock before it jumped.
            replies.estimate = OffsetEstimate::default();
        }
        match date {
            Some(date) => {
                if self.doubts(&mut replies, sent, (received, steady)) {
                    return;
                }
                // The clock that shows the longer round trip counts: one clock may have been set, the other
                // may have stood still while the process was frozen.
                let way = steady.saturating_sub(sent.steady).max(received.micros_since(sent.local)).max(0);
                let (sent, received) = (steady.saturating_sub(way), Timestamp::from_micros(steady));
                let is_late = sent < self.replied_at.load(Ordering::Acquire);
                let Some(reply) = ClockOffset::of_reply(date, Timestamp::from_micros(sent), received) else {
                    return;
                };
                // This request was sent before the last reply came, and answered later. If the machine was
                // stopped in between, and neither clock shows it, this date is from before the stop.
                if is_late && replies.estimate.is_contradicted_by(reply) {
                    return;
                }
                replies.has_date = true;
                replies.estimate.note(reply, received);
            }
            None if replies.has_date => return,
            None => {}
        }
        let anything = Some((i64::MIN, i64::MAX));
        let Some((lowest, highest)) = replies.estimate.offset().map_or(anything, ClockOffset::usable_micros)
        else {
            return;
        };
        self.lowest.store(lowest, Ordering::Release);
        self.highest.store(highest, Ordering::Release);
        self.replied_at.store(steady, Ordering::Release);
        self.local_minus_steady.store(local_minus_steady, Ordering::Release);
        self.publish(replies, received, local_minus_steady);
    }

    /// Whether a reply must be ignored because the clocks moved apart during its request: the machine may
    /// have been stopped, its steady clock too, and its other clock set to any time. The next reply counts
    /// even so: a clock that is set during each request must not hide the time for ever.
    fn doubts(&self, replies: &mut Replies, sent: SentAt, (received, steady): (Timestamp, i64)) -> bool {
        let (local_way, steady_way) = (received.micros_since(sent.local), steady.saturating_sub(sent.steady));
        let was_doubted =
            std::mem::replace(&mut replies.is_doubted, local_way.abs_diff(steady_way) > whole_micros(JUMP));
        if !replies.is_doubted {
            return false;
        }
        let so_far = self.moved_apart.fetch_add(1, Ordering::AcqRel);
        !was_doubted || sent.moved_apart < so_far
    }

    /// The reading of the local clock, moved into the bracket around the steady clock.
    fn bracketed(&self, local: Timestamp, steady: i64) -> Timestamp {
        let lowest = steady.saturating_add(self.lowest.load(Ordering::Acquire));
        let highest = steady.saturating_add(self.highest.load(Ordering::Acquire));
        Timestamp::from_micros(local.micros().max(lowest).min(highest))
    }

    fn publish(&self, mut replies: MutexGuard<'_, Replies>, received: Timestamp, local_minus_steady: i64) {
        let Some(offset) =
            replies.estimate.offset().map(|offset| offset.of_clock_ahead_by(local_minus_steady))
        else {
            return;
        };
        // If the clock was set back, the gauge is updated as if a second had passed.
        let publishes =
            replies.published_at.is_none_or(|at| at > received || received.since(at) >= PUBLISH_EVERY);
        if publishes {
            replies.published_at = Some(received);
        }
        let warns =
            offset.exceeds(WARN_ABOVE) && replies.warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if warns {
            replies.warned_at = Some(Instant::now());
        }
        drop(replies);
        if publishes {
            requests::clock_offset(offset);
        }
        if warns {
            let offset_ms = offset.millis();
            tracing::warn!(
                event = "clock.offset",
                offset_ms,
                "this machine's clock is off: set it by NTP (chrony); Sluice corrects its own time by DynamoDB's clock, other programs do not"
            );
        }
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock()
    }
}

#[cfg(test)]
mod tests;
