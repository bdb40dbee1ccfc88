use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::*;

const START: i64 = 1_709_550_000_000_000;
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// The error after one reply: `Date` is cut to seconds, the trip takes 2 ms, hosts are off by up to 10 ms.
const FIRST: i64 = SECOND + 12_000;

/// A machine, and the true time.
#[derive(Clone, Default)]
struct Machine {
    time: Arc<AtomicI64>,
    /// How far the machine's clock is ahead.
    off: Arc<AtomicI64>,
    /// For how long the machine's steady clock stood still.
    stood: Arc<AtomicI64>,
}

impl Machine {
    fn off_by(micros: i64) -> (Self, TableClock) {
        let machine = Self::default();
        machine.off.store(micros, Ordering::SeqCst);
        let (wall, steady) = (machine.clone(), machine.clone());
        let clock = Clock::from_fn(move || {
            Timestamp::from_micros(START + wall.time.load(Ordering::SeqCst) + wall.off.load(Ordering::SeqCst))
        });
        let clock = clock.steady_by(move || {
            let micros = steady.time.load(Ordering::SeqCst) - steady.stood.load(Ordering::SeqCst);
            Duration::from_micros(u64::try_from(micros).unwrap())
        });
        (machine, TableClock::new(clock))
    }

    fn pass(&self, micros: i64) {
        self.time.fetch_add(micros, Ordering::SeqCst);
    }

    fn set_clock_by(&self, micros: i64) {
        self.off.fetch_add(micros, Ordering::SeqCst);
    }

    fn time(&self) -> i64 {
        START + self.time.load(Ordering::SeqCst)
    }

    /// A request and its reply, a millisecond each way.
    fn ask(&self, clock: &TableClock) {
        let sent = clock.sent();
        self.pass(1_000);
        let date = self.time() - self.time().rem_euclid(SECOND);
        self.pass(1_000);
        clock.replied(Some(Timestamp::from_micros(date)), sent);
    }

    fn error(&self, clock: &TableClock) -> Option<i64> {
        clock.known().map(|known| (known.micros() - self.time()).abs())
    }
}

#[test]
fn one_reply_tells_the_time_to_a_second_and_twenty_to_a_tenth_whatever_the_machine_believes() {
    for off in [0, 100_000, -2 * SECOND, 240 * SECOND, -24 * HOUR, 24 * HOUR] {
        let (machine, clock) = Machine::off_by(off);
        assert_eq!(clock.known(), None, "before the first reply");
        machine.ask(&clock);
        assert!(machine.error(&clock).unwrap() <= FIRST, "off by {off}: {:?}", machine.error(&clock));
        for _ in 0..19 {
            machine.pass(370_000);
            machine.ask(&clock);
        }
        assert!(machine.error(&clock).unwrap() <= 100_000, "off by {off}: {:?}", machine.error(&clock));
    }
}

#[test]
fn a_clock_that_was_set_tells_nothing_before_the_next_reply() {
    for jump in [HOUR, -HOUR, 3 * SECOND, -300_000] {
        let (machine, clock) = Machine::off_by(0);
        machine.ask(&clock);
        machine.pass(5 * SECOND);
        assert!(clock.known().is_some());
        machine.set_clock_by(jump);
        assert_eq!(clock.known(), None, "set by {jump}");
        machine.ask(&clock);
        assert!(machine.error(&clock).unwrap() <= FIRST, "set by {jump}");
    }
}

#[test]
fn a_machine_that_resumes_from_a_snapshot_knows_nothing_before_the_next_reply() {
    let (machine, clock) = Machine::off_by(0);
    machine.ask(&clock);
    // The steady clock stands still while the machine does. The host sets the other clock.
    machine.pass(600 * SECOND);
    machine.stood.store(600 * SECOND, Ordering::SeqCst);
    assert_eq!(clock.known(), None);
    machine.ask(&clock);
    assert!(machine.error(&clock).unwrap() <= FIRST);
}

#[test]
fn a_reply_to_a_request_from_before_a_freeze_tells_nothing() {
    let (machine, clock) = Machine::off_by(0);
    let sent = clock.sent();
    let date = Timestamp::from_micros(machine.time());
    machine.pass(600 * SECOND);
    machine.stood.store(600 * SECOND, Ordering::SeqCst);
    clock.replied(Some(date), sent);
    assert_eq!(clock.known(), None);
    machine.ask(&clock);
    assert!(machine.error(&clock).unwrap() <= FIRST);
}

#[test]
fn a_long_silence_is_ended_by_a_reply() {
    let (machine, clock) = Machine::off_by(0);
    machine.ask(&clock);
    machine.pass(600 * SECOND);
    assert!(clock.known().is_some());
    machine.pass(2 * SECOND);
    assert_eq!(clock.known(), None);
    machine.ask(&clock);
    assert!(clock.known().is_some());
}

#[test]
fn an_endpoint_that_tells_no_date_is_taken_to_agree_with_the_machine() {
    let (machine, clock) = Machine::off_by(5 * SECOND);
    clock.replied(None, clock.sent());
    assert_eq!(machine.error(&clock), Some(5 * SECOND));
    machine.set_clock_by(HOUR);
    assert_eq!(clock.known(), None);
    clock.replied(None, clock.sent());
    assert_eq!(machine.error(&clock), Some(5 * SECOND + HOUR));
    // The first reply with a `Date` counts at once. A later one without, as from a proxy, changes nothing.
    machine.ask(&clock);
    let error = machine.error(&clock).unwrap();
    assert!(error <= FIRST);
    clock.replied(None, clock.sent());
    assert_eq!(machine.error(&clock), Some(error));
}

/// The machine is stopped for ten minutes, and neither of its clocks shows it.
#[test]
fn a_reply_from_before_a_stop_does_not_turn_the_time_back() {
    let (machine, clock) = Machine::off_by(0);
    let sent = clock.sent();
    let date = Timestamp::from_micros(machine.time());
    machine.pass(600 * SECOND);
    machine.set_clock_by(-600 * SECOND);
    machine.stood.store(600 * SECOND, Ordering::SeqCst);
    machine.ask(&clock);
    assert!(machine.error(&clock).unwrap() <= FIRST);
    clock.replied(Some(date), sent);
    assert!(machine.error(&clock).unwrap() <= FIRST);
}

/// The machine is stopped for ten seconds. Its steady clock does not count them. When the machine goes on,
/// its other clock is set back, or forward by less than the time of the stop.
#[test]
fn a_reply_from_before_a_stop_tells_nothing_however_the_clock_was_set() {
    for net in [-78 * SECOND, -400_000, 400_000, 2 * SECOND] {
        let (machine, clock) = Machine::off_by(0);
        machine.ask(&clock);
        let (before, also_before) = (clock.sent(), clock.sent());
        let date = Timestamp::from_micros(machine.time());
        machine.pass(10 * SECOND);
        machine.stood.store(10 * SECOND, Ordering::SeqCst);
        machine.set_clock_by(net - 10 * SECOND);
        for sent in [before, also_before] {
            clock.replied(Some(date), sent);
            assert_eq!(clock.known(), None, "set by {net}");
        }
        machine.ask(&clock);
        assert!(machine.error(&clock).unwrap() <= FIRST, "set by {net}");
    }
}

/// A stop does not explain such a clock: two stops would have to fall into two successive requests.
#[test]
fn a_clock_that_is_set_during_each_request_is_told_by_the_second() {
    let (machine, clock) = Machine::off_by(0);
    for asked in 1..=6 {
        let sent = clock.sent();
        machine.pass(1_000);
        let date = machine.time() - machine.time().rem_euclid(SECOND);
        machine.set_clock_by(-3 * SECOND);
        machine.pass(1_000);
        clock.replied(Some(Timestamp::from_micros(date)), sent);
        let error = machine.error(&clock);
        assert!(if asked == 1 { error.is_none() } else { error.unwrap() <= FIRST }, "{asked}: {error:?}");
        machine.pass(370_000);
    }
}

#[test]
fn a_reply_without_a_date_after_a_jump_tells_nothing_where_others_tell_it() {
    let (machine, clock) = Machine::off_by(0);
    machine.ask(&clock);
    machine.set_clock_by(HOUR);
    clock.replied(None, clock.sent());
    assert_eq!(clock.known(), None);
}

#[test]
fn a_reply_that_took_about_three_seconds_tells_nothing() {
    let (machine, clock) = Machine::off_by(HOUR);
    let sent = clock.sent();
    let date = Timestamp::from_micros(machine.time());
    machine.pass(3 * SECOND - 20_000 + 1);
    clock.replied(Some(date), sent);
    assert_eq!(clock.known(), None);
}
