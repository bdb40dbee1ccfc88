//! The time of the table: DynamoDB's, as far as its replies tell it. All decisions go by it, so that a fleet agrees on the time
//! whatever its machines believe.
//!
//! Each reply brackets how far DynamoDB's clock is from this process's steady clock, which nobody sets. The time is what this machine's
//! clock shows, moved into that bracket: a clock that may be exact is left alone, one that is wrong is corrected. What the replies said
//! counts no more when the two clocks of the machine moved apart (its clock was set, or it resumed from a snapshot and the steady clock
//! had stood still), and when the last reply is long past: then nothing that carries an instant is written before the next reply.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{ClockOffset, FutureAnchor, OffsetEstimate, Timestamp};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::requests;

/// If this machine's clock and its steady clock move apart by more than this, one of them jumped. Smaller takes the pause between
/// two readings of a busy machine for a jump, which costs a read of the table; larger leaves a longer stop of the steady clock
/// unnoticed, which then counts as an error of the time until two replies contradict each other.
const JUMP: Duration = Duration::from_millis(250);

/// For so long a reply tells the time. NTP slews a clock by 500 ppm at most, which is 0.3 s in this time; a smaller value costs an
/// idle process a read more often.
const GOOD_FOR: Duration = Duration::from_secs(600);

/// A clock that is further off than this is warned of: it is corrected, and other programs on the machine do not do so.
const WARN_ABOVE: Duration = Duration::from_secs(1);

/// The gauge is set no more often: replies come by the thousand, and it rarely moves.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Nothing was heard yet.
const NEVER: i64 = i64::MIN;

/// This machine's clock, corrected by what the replies say.
#[derive(Debug)]
pub struct TableClock {
    local: Clock,
    heard: Mutex<Heard>,
    /// The bracket: DynamoDB's time less the steady one, at least and at most, in microseconds.
    lowest: AtomicI64,
    highest: AtomicI64,
    /// The local clock less the steady one when the last reply that tells the time came, or [`NEVER`].
    apart: AtomicI64,
    /// When that was, by the steady clock.
    heard_at: AtomicI64,
    /// During how many requests the two clocks moved apart so far.
    moved_apart: AtomicU32,
}

#[derive(Debug, Default)]
struct Heard {
    estimate: OffsetEstimate,
    /// Whether a reply ever told its `Date`. From then on one without does not make this machine's clock DynamoDB's.
    has_told: bool,
    /// Whether the clocks moved apart during the request of the last reply.
    is_doubted: bool,
    warned_at: Option<Instant>,
    told_at: Option<Timestamp>,
}

/// When a request was sent, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    local: Timestamp,
    steady: i64,
    /// How often the clocks had moved apart by then.
    moved_apart: u32,
}

impl TableClock {
    pub(crate) fn new(local: Clock) -> Self {
        Self {
            local,
            heard: Mutex::default(),
            lowest: AtomicI64::new(i64::MIN),
            highest: AtomicI64::new(i64::MAX),
            apart: AtomicI64::new(NEVER),
            heard_at: AtomicI64::new(NEVER),
            moved_apart: AtomicU32::new(0),
        }
    }

    /// DynamoDB's time, to the best of this process's knowledge: for what is refused, measured or shown. What is written goes by
    /// [`known`](Self::known).
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.bracketed(self.local.now(), self.local.steady_micros())
    }

    /// DynamoDB's time to within [`CLOCK_ERROR`](sluice_core::CLOCK_ERROR); `None` before the first reply, after a jump of this
    /// machine's clock, and after a long silence.
    #[must_use]
    pub fn known(&self) -> Option<Timestamp> {
        // What the replies said is read before the clock: a reply in between makes it no older.
        let (apart, heard_at) = (self.apart.load(Ordering::Acquire), self.heard_at.load(Ordering::Acquire));
        if apart == NEVER {
            return None;
        }
        // Two readings, if the first one seems to have jumped: this thread may have been put aside between its two clocks.
        (0..2).find_map(|_| {
            let (local, steady) = (self.local.now(), self.local.steady_micros());
            let is_same = local.micros().saturating_sub(steady).abs_diff(apart) <= micros(JUMP);
            let is_young = steady.saturating_sub(heard_at).unsigned_abs() <= micros(GOOD_FOR);
            (is_same && is_young).then(|| self.bracketed(local, steady))
        })
    }

    /// What a writer that goes by this time does to an anchor of the future. The time of an endpoint that sends no `Date` is this machine's,
    /// which may be wrong itself: it moves nobody's anchor back.
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

    /// The time by the steady clock alone, if a reply has come since that showed `asked_at`. For a caller that found this machine's clock set
    /// right after each of several replies: a clock that is set all the time. (A machine that was stopped looks the same once, and not
    /// after each of them.) What is shown is moved into the bracket, which is around the steady clock.
    pub(crate) fn known_since(&self, asked_at: i64) -> Option<Timestamp> {
        let is_heard = self.apart.load(Ordering::Acquire) != NEVER && self.heard_at.load(Ordering::Acquire) >= asked_at;
        is_heard.then(|| self.now())
    }

    /// What the replies say of this machine's clock, as it is now; `None` before the first.
    #[must_use]
    pub fn offset(&self) -> Option<ClockOffset> {
        let apart = self.local.now().micros().saturating_sub(self.local.steady_micros());
        self.heard().estimate.offset().map(|offset| offset.of_clock_ahead_by(apart))
    }

    /// To be asked right before a request is sent.
    pub(crate) fn sent(&self) -> SentAt {
        let moved_apart = self.moved_apart.load(Ordering::Acquire);
        SentAt { local: self.local.now(), steady: self.local.steady_micros(), moved_apart }
    }

    /// Takes in the `Date` of a reply that has just come; `None` where it has none that can be read.
    ///
    /// An endpoint that never tells its `Date` is taken to agree with this machine's clock.
    pub(crate) fn replied(&self, date: Option<Timestamp>, sent: SentAt) {
        let (received, steady) = (self.local.now(), self.local.steady_micros());
        let mut heard = self.heard();
        let apart = received.micros().saturating_sub(steady);
        let before = self.apart.load(Ordering::Acquire);
        if before != NEVER && apart.abs_diff(before) > micros(JUMP) {
            // Whatever was known is of the clock as it was.
            heard.estimate = OffsetEstimate::default();
        }
        match date {
            Some(date) => {
                if self.doubts(&mut heard, sent, (received, steady)) {
                    return;
                }
                // By the clock that makes the way longer: one may have been set, the other stood still while the process was frozen.
                let way = steady.saturating_sub(sent.steady).max(received.micros_since(sent.local)).max(0);
                let (sent, received) = (steady.saturating_sub(way), Timestamp::from_micros(steady));
                let is_late = sent < self.heard_at.load(Ordering::Acquire);
                let Some(reply) = ClockOffset::of_reply(date, Timestamp::from_micros(sent), received) else { return };
                // A request from before the last reply, whose own reply comes after it: if the machine was stopped in between, and
                // neither clock shows it, its date is of the time before.
                if is_late && heard.estimate.is_contradicted_by(reply) {
                    return;
                }
                heard.has_told = true;
                heard.estimate.note(reply, received);
            }
            None if heard.has_told => return,
            None => {}
        }
        let anything = Some((i64::MIN, i64::MAX));
        let Some((lowest, highest)) = heard.estimate.offset().map_or(anything, ClockOffset::usable_micros) else {
            return;
        };
        self.lowest.store(lowest, Ordering::Release);
        self.highest.store(highest, Ordering::Release);
        self.heard_at.store(steady, Ordering::Release);
        self.apart.store(apart, Ordering::Release);
        self.tell(heard, received, apart);
    }

    /// Whether a reply tells nothing, since the two clocks moved apart during its request: perhaps the machine was stopped, uncounted by
    /// the steady clock, and its clock was set, to whatever time. The reply to the next request is believed though they moved apart
    /// again: a clock that is set during each request must not hide the time for ever.
    fn doubts(&self, heard: &mut Heard, sent: SentAt, (received, steady): (Timestamp, i64)) -> bool {
        let (local_way, steady_way) = (received.micros_since(sent.local), steady.saturating_sub(sent.steady));
        let was_doubted = std::mem::replace(&mut heard.is_doubted, local_way.abs_diff(steady_way) > micros(JUMP));
        if !heard.is_doubted {
            return false;
        }
        let so_far = self.moved_apart.fetch_add(1, Ordering::AcqRel);
        !was_doubted || sent.moved_apart < so_far
    }

    /// What the local clock shows, moved into the bracket around the steady one.
    fn bracketed(&self, local: Timestamp, steady: i64) -> Timestamp {
        let lowest = steady.saturating_add(self.lowest.load(Ordering::Acquire));
        let highest = steady.saturating_add(self.highest.load(Ordering::Acquire));
        Timestamp::from_micros(local.micros().max(lowest).min(highest))
    }

    fn tell(&self, mut heard: MutexGuard<'_, Heard>, received: Timestamp, apart: i64) {
        let Some(offset) = heard.estimate.offset().map(|offset| offset.of_clock_ahead_by(apart)) else { return };
        // A clock that was set back counts as a second that passed.
        let tells = heard.told_at.is_none_or(|at| at > received || received.since(at) >= TELL_EVERY);
        if tells {
            heard.told_at = Some(received);
        }
        let warns = offset.exceeds(WARN_ABOVE) && heard.warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if warns {
            heard.warned_at = Some(Instant::now());
        }
        drop(heard);
        if tells {
            requests::clock_offset(offset);
        }
        if warns {
            let offset_ms = offset.millis();
            tracing::warn!(
                event = "clock.offset",
                offset_ms,
                "this machine's clock is off: set it (chrony, NTP); Sluice corrects it by DynamoDB's, other programs do not"
            );
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock()
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
