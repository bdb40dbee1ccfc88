//! The guarantees of slots by brute force: every second, every pair.

use proptest::prelude::*;
use sluice_history::{
    Checker, Ending, Event, Granted, Header, Kind, Limit, Refused, Released, Share, Violation,
};

use crate::story::TOKEN;

const NAME: &str = "v#slots";
const SECOND: i64 = 1_000_000;
const SEARCH: i64 = 3;
const FLOOR: i64 = 1;
/// How long a slot may be left free, beside a request.
const LOOK: i64 = 4;

/// In whole seconds and slots.
#[derive(Clone, Debug)]
struct Call {
    asked: i64,
    granted: i64,
    /// `None`: never.
    released: Option<i64>,
    cost: i64,
    booked: bool,
    is_search: bool,
    of_search: bool,
}

#[derive(Clone, Debug)]
struct World {
    request: i64,
    calls: Vec<Call>,
    /// Callers of search that waited from the first to the second, and left.
    left: Vec<(i64, i64)>,
}

fn call() -> impl Strategy<Value = Call> {
    let release = prop_oneof![1 => Just(None), 6 => (1_i64..30).prop_map(Some)];
    let times = (0_i64..60, prop_oneof![0_i64..2, 0_i64..25], release);
    (times, 1_i64..3, any::<bool>(), any::<bool>(), prop::bool::weighted(0.7)).prop_map(
        |((asked, wait, held), cost, booked, is_search, of_search)| {
            let granted = asked + wait;
            let released = held.map(|held| granted + held);
            Call { asked, granted, released, cost, booked, is_search, of_search }
        },
    )
}

fn worlds() -> impl Strategy<Value = World> {
    let left = prop::collection::vec((0_i64..60, 1_i64..20), 0..2);
    (0_i64..3, prop::collection::vec(call(), 1..8), left).prop_map(|(request, calls, left)| World {
        request,
        calls,
        left: left.into_iter().map(|(from, time)| (from, from + time)).collect(),
    })
}

impl World {
    fn violations(&self) -> Vec<Violation> {
        let mut checker = Checker::new();
        checker.feed(Event::History(Header { request_micros: self.request * SECOND, ..Header::new(0) }));
        let share = Share::new("search", SEARCH * TOKEN, 0).with_floor(FLOOR * TOKEN);
        let limit = Limit::new(NAME, Kind::Concurrent, 1_000 * TOKEN, 0, 0);
        checker.feed(Event::Limit(limit.with_shares(vec![share])));
        for (n, call) in self.calls.iter().enumerate() {
            let mut granted = Granted::at(n.to_string(), "p", NAME, call.cost * TOKEN, call.granted * SECOND);
            granted.asked_at_micros = call.asked * SECOND;
            granted.booked = call.booked;
            granted.share = call.is_search.then(|| "search".into());
            granted.paid_from = Some(if call.of_search { "search" } else { "common" }.into());
            checker.feed(Event::Granted(granted));
            if let Some(released) = call.released {
                let (id, dimension, how) = (n.to_string(), NAME.to_owned(), Ending::Released);
                checker.feed(Event::Released(Released { id, dimension, at_micros: released * SECOND, how }));
            }
        }
        for (from, to) in &self.left {
            checker.feed(Event::Refused(Refused {
                process: "p".into(),
                dimensions: vec![NAME.into()],
                asked_at_micros: from * SECOND,
                at_micros: to * SECOND,
                booked: true,
                share: Some("search".into()),
                error: None,
            }));
        }
        checker.finish().violations
    }

    fn of_search(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.of_search)
    }

    fn taken(&self, call: &Call) -> i64 {
        call.asked.max(call.granted - self.request)
    }

    fn waits(&self) -> Vec<(i64, i64)> {
        let granted = self.calls.iter().filter(|call| call.booked && call.is_search);
        granted.map(|call| (call.asked, call.granted)).chain(self.left.iter().copied()).collect()
    }

    /// Whether the largest call has room for sure, in the second that begins at `at`.
    fn has_room(&self, at: i64) -> bool {
        let costs = |is_search: bool| {
            self.calls.iter().filter(move |call| call.is_search || !is_search).map(|call| call.cost)
        };
        let own = costs(true).max().unwrap_or(0);
        let any = costs(false).max().unwrap_or(1);
        let largest = if self.left.is_empty() { own } else { own.max(any.min(SEARCH)) };
        let is_held = |call: &&Call| {
            self.taken(call) <= at && call.released.is_none_or(|released| at < released + self.request)
        };
        let held: i64 = self.of_search().filter(is_held).map(|call| call.cost).sum();
        let is_leaving =
            |(from, to): &&(i64, i64)| *from.max(&(to - self.request)) <= at && at < to + self.request;
        let leaving = i64::try_from(self.left.iter().filter(is_leaving).count()).unwrap() * any;
        held + leaving + largest <= SEARCH
    }

    fn is_left_free(&self) -> bool {
        let longest = |(from, to): (i64, i64)| {
            let mut run = 0;
            (from..to)
                .map(|at| {
                    run = if self.has_room(at) { run + 1 } else { 0 };
                    run
                })
                .max()
                .unwrap_or(0)
        };
        self.waits().into_iter().map(longest).max().unwrap_or(0) > LOOK + self.request
    }

    fn lent_while_waited(&self) -> usize {
        let is_waited_for = |call: &&Call| {
            let known = self.taken(call) - LOOK - self.request;
            self.waits().iter().any(|(from, to)| *from <= known && *to >= call.granted + self.request)
        };
        self.of_search().filter(|call| !call.is_search).filter(is_waited_for).count()
    }

    fn floors_lent(&self) -> usize {
        let left = |call: &Call| {
            let covers = |other: &&Call| {
                other.granted < call.asked && other.released.is_none_or(|released| released > call.granted)
            };
            SEARCH - call.cost - self.of_search().filter(covers).map(|other| other.cost).sum::<i64>()
        };
        self.of_search().filter(|call| !call.is_search && left(call) < FLOOR).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn guarantees_of_slots_are_judged_as_if_every_second_was_looked_at(world in worlds()) {
        let violations = world.violations();
        let of_search = |violation: &&Violation| match violation {
            Violation::SlotLeftFree { share, .. } => share == "search",
            _ => true,
        };
        let count = |is_it: fn(&Violation) -> bool| violations.iter().filter(|v| is_it(v)).count();
        let left_free = violations.iter().filter(of_search);
        let left_free = left_free.filter(|v| matches!(v, Violation::SlotLeftFree { .. })).count() > 0;
        prop_assert_eq!(left_free, world.is_left_free(), "{:?}", violations);
        let lent = violations.iter().filter(|v| matches!(v, Violation::LentWhileWaited { share, .. } if share == "search"));
        prop_assert_eq!(lent.count(), world.lent_while_waited(), "{:?}", violations);
        prop_assert_eq!(count(|v| matches!(v, Violation::FloorLent { .. })), world.floors_lent(), "{:?}", violations);
    }
}
