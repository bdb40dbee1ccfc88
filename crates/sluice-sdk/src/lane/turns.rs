//! When the callers of this process have their turn at the slots of a bucket, among those of all processes.
//!
//! A caller that has to wait draws a number ([`sluice_core::draw`]). The row counts the numbers that were
//! served, so a process knows how many stand before its callers: they take no slot before their turn, and the
//! process looks at the row often only when its turn is near. Callers that never come (they gave up, or their
//! process ended) hold their numbers for a moment: a slot that nobody takes is for twice as many numbers
//! after each [`GRACE`], and the count follows the numbers of those who take slots ([`Turns::serves`]).
//!
//! Pure, except for the random part of a pause and of a count; drawing and marking are in
//! [`slot_wait`](crate::lane::slot_wait).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Serves, Timestamp};
use sluice_table::{StoreError, random_up_to, random_wait_up_to};
use tokio::time::Instant;

/// How long a slot is left to the callers whose turn it is. Longer keeps the order when a process is slow;
/// shorter loses less time to callers that never come.
const GRACE: Duration = Duration::from_millis(60);
/// The greatest power of two by which turns are widened.
const MOST_WIDENED: u32 = 20;

/// A caller whose number is further from the count than this moves the count by one more, or by one less.
/// Less follows faster; more changes the order less where the count is right.
const OFF_BY: u64 = 32;
/// The same for each free slot: the callers that take them in one moment all read one count.
const OFF_BY_FOR_EACH_ROOM: u64 = 4;

/// How long the count is below what it was before its row is taken for another. An old reading is not that
/// old, and numbers that nobody uses have been passed over by then.
const FALLEN_FOR: Duration = Duration::from_secs(5);
/// If a process did not look for this long, it forgets the numbers that were passed over meanwhile: their
/// callers have most likely left. Callers that still wait, as in a process that was frozen or had no
/// DynamoDB, draw again.
const AWAY: Duration = Duration::from_secs(10);

/// The pause between two looks of a process whose turn is next: a hundredth of the time for which a slot is
/// held, within these bounds. A slot that is held for half a second or longer is then free for about a
/// hundredth of that time before it is taken.
const SHORTEST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_NEXT_LOOK: Duration = Duration::from_millis(50);
/// The longest pause of a process whose turn is far, for each that stands before it, and the bounds of that:
/// the pace may rise. So 500 processes look about 450 times a second together while nobody is served.
const FOR_EACH_AHEAD: Duration = Duration::from_millis(8);
const LONGEST_LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// The pace is measured over at least this time, and at most the other. It is unknown once it is older.
const SHORTEST_PACE: Duration = Duration::from_millis(20);
const LONGEST_PACE: Duration = Duration::from_secs(4);
/// A look that comes this much later than it was meant to ends a lull: nobody waited here, nobody could be
/// served in a cool-down, or the process was frozen or had no DynamoDB. Such time says nothing of the pace.
const SHORTEST_LULL: Duration = Duration::from_millis(100);

/// How long this process waits without numbers after it could not draw one, for want of a right or in
/// [`MOST_FAILED`] tries.
const WITHOUT_NUMBERS: Duration = Duration::from_secs(60);
const MOST_FAILED: u32 = 5;
/// The pause before it tries to draw again.
const DRAW_AGAIN: Duration = Duration::from_millis(50);

/// When a process looked at a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// When it began to. Until its round is over, it may look at several readings.
    pub(crate) began: Instant,
    /// How old the reading is that it looks at.
    pub(crate) age: Duration,
}

/// The turns of this process at one bucket.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The numbers of callers that wait here, in their order. Where callers left, there are more numbers than
    /// callers. Those that come have the numbers that are left over, until a grant counts these as served.
    numbers: VecDeque<i64>,
    /// How many wait here, and what the first of them wants.
    waiting: usize,
    cost: Amount,
    is_drawing: bool,
    is_marking: bool,
    draw_after: Option<Instant>,
    failed: u32,
    without_until: Option<Instant>,
    /// The highest count of served numbers that was read, and since when readings are below it.
    highest: i64,
    fell: Option<Instant>,
    /// Slots that have been free since then, as looks showed, while nobody was granted any.
    idle: Option<Idle>,
    last_look: Option<Instant>,
    /// When the next look is due.
    due: Option<Instant>,
    /// The end of the last lull.
    lull_ended: Option<Instant>,
    /// A reading since then, the first or one [`LONGEST_PACE`] ago: how many were served by then.
    pace_from: Option<(i64, Instant)>,
    /// Numbers served a second, and when that was measured.
    pace: Option<(f64, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    admitted: Option<Amount>,
    since: Instant,
    last: Instant,
}

/// How many calls of `cost` have room.
fn rooms(free: Amount, cost: Amount) -> i64 {
    free.max(Amount::ZERO).micros() / cost.micros().max(1)
}

/// What is free, with what ended leases hold: a take may take it over.
fn free(bucket: &Bucket, now: Timestamp) -> Amount {
    let ended =
        bucket.inline().into_iter().flat_map(|leases| leases.ended(now.before(sluice_core::CLOCK_ERROR)));
    ended
        .fold(bucket.tokens(), |free, (_, lease)| free.plus(lease.cost.amount()))
        .min(bucket.limit().capacity())
}

impl State {
    /// Whether callers of other processes are known to wait, so that one without a number comes after them.
    fn is_ordered(&self, bucket: &Bucket, now: Timestamp) -> bool {
        let may_draw = self.without_until.is_none_or(|until| until <= Instant::now());
        may_draw && bucket.is_waited_for(now)
    }

    fn look(&mut self, bucket: &Bucket, look: Look, is_free: bool) {
        let (served, now) = (bucket.served(), Instant::now());
        let (admitted, still) = (bucket.admitted(), self.idle.filter(|idle| now - idle.last <= LONGEST_PACE));
        let still = still.filter(|idle| idle.admitted == admitted);
        let since = still.map_or(now, |idle| idle.since);
        self.idle = is_free.then_some(Idle { admitted, since, last: now });
        let last = self.last_look.replace(now);
        self.forget(served, now, last);
        let due = self.due.take().or(last);
        if due.is_none_or(|due| look.began.saturating_duration_since(due) >= SHORTEST_LULL) {
            (self.lull_ended, self.pace_from) = (Some(look.began), None);
        }
        if let Some(read_at) = now.checked_sub(look.age) {
            self.measure(served, read_at);
        }
        self.pace = self.pace.filter(|(_, measured)| now - *measured < LONGEST_PACE);
    }

    /// Measures the pace by readings from after the last lull.
    fn measure(&mut self, served: i64, read_at: Instant) {
        let is_old = self.lull_ended.is_some_and(|ended| read_at < ended);
        let Some((then, from)) = self.pace_from.filter(|_| !is_old) else {
            if !is_old {
                self.pace_from = Some((served, read_at));
            }
            return;
        };
        let (count, time) = (served.saturating_sub(then), read_at.saturating_duration_since(from));
        if count < 0 {
            // The row was recreated.
            (self.pace_from, self.pace) = (Some((served, read_at)), None);
        } else if count > 0 && time >= SHORTEST_PACE {
            #[allow(clippy::cast_precision_loss)]
            let pace = count as f64 / time.as_secs_f64();
            self.pace = Some((pace, read_at));
            if time >= LONGEST_PACE {
                self.pace_from = Some((served, read_at));
            }
        }
    }

    /// Forgets numbers that say nothing of the order any more.
    fn forget(&mut self, served: i64, now: Instant, last: Option<Instant>) {
        if last.is_some_and(|last| now - last >= AWAY) {
            self.numbers.retain(|number| *number >= served);
        }
        if served >= self.highest {
            (self.highest, self.fell) = (served, None);
        } else if now - *self.fell.get_or_insert(now) >= FALLEN_FOR {
            // The row was recreated, and the load row too: otherwise all these numbers would have been served
            // or passed over by now. Callers that come from now on draw numbers far below these.
            self.numbers.clear();
            (self.highest, self.fell) = (served, None);
        }
    }

    /// How many numbers that nobody here uses are not below `count`. Others have passed over those that are.
    fn left_over(&self, count: i64) -> u32 {
        let left_over = self.numbers.iter().skip(self.waiting).filter(|number| **number >= count);
        u32::try_from(left_over.count()).unwrap_or(u32::MAX)
    }

    /// The first number that is not served next, of calls that have `rooms`.
    fn reach(&self, bucket: &Bucket, rooms: i64) -> i64 {
        let waited = self.idle.map_or(Duration::ZERO, |idle| idle.last - idle.since);
        let widened =
            u32::try_from(waited.as_micros() / GRACE.as_micros()).unwrap_or(u32::MAX).min(MOST_WIDENED);
        match widened < MOST_WIDENED {
            true => bucket.served().saturating_add(rooms.saturating_mul(1 << widened)),
            // The counts are far apart: the row or the load row was made anew.
            false => i64::MAX,
        }
    }
}

impl Turns {
    /// How many of the `waiting` callers of this process may take a slot now, the first of which wants
    /// `cost`.
    pub(crate) fn are_next(
        &self,
        bucket: &Bucket,
        look: Look,
        waiting: usize,
        cost: Amount,
        now: Timestamp,
    ) -> usize {
        let mut state = self.0.lock();
        let rooms = rooms(free(bucket, now), cost);
        state.look(bucket, look, rooms > 0);
        (state.waiting, state.cost) = (waiting, cost);
        let reach = state.reach(bucket, rooms);
        let numbered = state.numbers.len().min(waiting);
        let next = state.numbers.iter().take(numbered).take_while(|number| **number < reach).count();
        let all_next = next == numbered;
        match all_next && !state.is_ordered(bucket, now) {
            true => waiting,
            false => next,
        }
    }

    /// Notes that nobody has a turn: a vendor asked for a pause. That time says nothing of the pace, nor of
    /// slots that nobody takes.
    pub(crate) fn rest(&self) {
        let mut state = self.0.lock();
        (state.lull_ended, state.pace_from, state.due) = (Some(Instant::now()), None, None);
        state.idle = None;
    }

    /// By how much the grant of the `at`th of these callers moves the count: by its own number, and by those
    /// of callers that left or never came.
    ///
    /// The count follows the numbers of those who are granted. In the right order a caller's number is as
    /// often above the count as below it. Numbers that nobody uses would keep slots free for as long as a
    /// crowd stays: callers are then served at numbers above the count, and move it by one more. Numbers that
    /// were passed over although their callers came later would be counted twice, and more callers would go
    /// for a slot than there are: they are then served below the count, and do not move it.
    pub(crate) fn serves(&self, bucket: &Bucket, at: usize, cost: Amount, now: Timestamp) -> Serves {
        let state = self.0.lock();
        let (Some(first), Some(number)) = (state.numbers.front(), state.numbers.get(at)) else {
            return Serves::default();
        };
        let (before_first, rooms) = (first.saturating_sub(bucket.served()), rooms(free(bucket, now), cost));
        let passes_over = before_first >= rooms;
        if passes_over && at == 0 {
            // It is not its turn by the counts: all before it are passed over.
            let own = u32::try_from(before_first.saturating_add(1)).unwrap_or(u32::MAX);
            return Serves { numbers: own.saturating_add(state.left_over(*first)), passes_over };
        }
        // In the same write the first has passed over what is before it.
        let count = if passes_over { *first } else { bucket.served() };
        let before = number.saturating_sub(count).saturating_sub(i64::try_from(at).unwrap_or(i64::MAX));
        let off_by = rooms.unsigned_abs().saturating_mul(OFF_BY_FOR_EACH_ROOM).max(OFF_BY);
        let own: u32 = match random_up_to(off_by) < before.unsigned_abs() {
            true if before < 0 => 0,
            true => 2,
            false => 1,
        };
        let left_over = if at == 0 { state.left_over(bucket.served()) } else { 0 };
        Serves { numbers: own.saturating_add(left_over), passes_over: false }
    }

    /// Notes that the first `count` callers have their slots.
    pub(crate) fn were_served(&self, count: usize) {
        let mut state = self.0.lock();
        if count > 0 {
            let used = state.waiting;
            state.numbers.truncate(used);
        }
        let count = count.min(state.numbers.len());
        state.numbers.drain(..count);
        state.waiting = state.waiting.saturating_sub(count);
    }

    /// How long until this process should look again; `None` if it cannot know. It is expected to look then.
    pub(crate) fn next_look(&self, bucket: &Bucket, now: Timestamp) -> Option<Duration> {
        let mut state = self.0.lock();
        let cost = state.cost;
        let number = *state.numbers.front()?;
        let pace = match state.pace {
            Some((pace, _)) => pace,
            // Nobody was served since: at most one is, in as much time again.
            None => {
                let from = state.pace_from.map(|(_, from)| from).or(state.lull_ended)?;
                1.0 / from.elapsed().as_secs_f64().max(0.001)
            }
        };
        let ahead = number.saturating_sub(bucket.served()).saturating_sub(rooms(free(bucket, now), cost));
        #[allow(clippy::cast_precision_loss)]
        let (at_once, ahead) =
            (rooms(bucket.limit().capacity(), cost) as f64, ahead.saturating_sub(1) as f64);
        let next = seconds(at_once / pace / 100.0).clamp(SHORTEST_LOOK, LONGEST_NEXT_LOOK);
        let far = seconds(ahead.max(0.0) / pace / 3.0);
        // From four fifths to six fifths of it.
        let many = u32::try_from(number.saturating_sub(bucket.served())).unwrap_or(0);
        let pause =
            far.clamp(next, FOR_EACH_AHEAD.saturating_mul(many).clamp(LONGEST_LOOK.0, LONGEST_LOOK.1));
        let pause = pause * 4 / 5 + random_wait_up_to(pause * 2 / 5);
        state.due = Some(Instant::now() + pause);
        Some(pause)
    }

    /// How many numbers `waiting` callers lack, if this process may draw them now.
    pub(crate) fn begin_to_draw(&self, waiting: usize) -> Option<u32> {
        let mut state = self.0.lock();
        let lacking = waiting.saturating_sub(state.numbers.len());
        let now = Instant::now();
        let is_early = [state.without_until, state.draw_after].into_iter().flatten().any(|until| until > now);
        if lacking == 0 || state.is_drawing || is_early {
            return None;
        }
        state.is_drawing = true;
        u32::try_from(lacking).ok()
    }

    /// Ends a draw whose task ended without an answer.
    fn end_draw(&self) {
        self.0.lock().is_drawing = false;
    }

    /// Whether this process may say in the row that callers wait: it is not saying so already.
    pub(crate) fn begin_to_mark(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_marking, true)
    }

    pub(crate) fn have_marked(&self) {
        self.0.lock().is_marking = false;
    }

    /// Notes what a draw of `count` numbers returned: the number after the last, if there is a count.
    pub(crate) fn have_drawn(&self, drawn: Result<Option<i64>, StoreError>, count: u32) {
        let mut state = self.0.lock();
        state.is_drawing = false;
        let now = Instant::now();
        match drawn {
            Ok(Some(after)) => {
                state.failed = 0;
                let first = after.saturating_sub(i64::from(count));
                if state.numbers.back().is_some_and(|last| *last >= first) {
                    // The load row was made again: those that come draw numbers far below the old ones.
                    state.numbers.clear();
                }
                state.numbers.extend(after.saturating_sub(i64::from(count))..after);
            }
            Err(error) if error.is_unavailable() || matches!(error, StoreError::Contended { .. }) => {
                state.failed += 1;
                state.draw_after = Some(now + DRAW_AGAIN);
                if state.failed >= MOST_FAILED {
                    (state.failed, state.without_until) = (0, Some(now + WITHOUT_NUMBERS));
                }
            }
            Ok(None) | Err(_) => state.without_until = Some(now + WITHOUT_NUMBERS),
        }
    }
}

/// A draw, or a mark, that a task makes. If the task ends early, as with its runtime, another may be made.
pub(crate) struct Underway(Arc<Turns>, fn(&Turns));

impl Underway {
    pub(crate) fn draw(turns: &Arc<Turns>) -> Self {
        Self(Arc::clone(turns), Turns::end_draw)
    }

    pub(crate) fn mark(turns: &Arc<Turns>) -> Self {
        Self(Arc::clone(turns), Turns::have_marked)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.1(&self.0);
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_LOOK.1)
}

#[cfg(test)]
mod tests;
