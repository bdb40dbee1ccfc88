//! The same promises by brute force: every window, every instant, every pair.

use proptest::prelude::*;
use sluice_history::{Checker, Ending, Event, Granted, Header, Kind, Limit, Released, Verdict, Violation};

use crate::story::TOKEN;

const NAME: &str = "v#x";
/// One millionth, in 10^-18 tokens.
const UNITS: i128 = 1_000_000_000_000;
/// A token a microsecond, in 10^-12 tokens a second.
const FAST: i64 = 1_000_000_000_000_000_000;

#[derive(Clone, Debug)]
struct World {
    kind: Kind,
    error: i64,
    /// Capacity, rate, from, by: in the order of time.
    limits: Vec<(i64, i64, i64, i64)>,
    grants: Vec<Granted>,
    /// Of each grant: when and how it ended.
    ends: Vec<Option<(i64, Ending)>>,
}

fn limits(kind: Kind) -> impl Strategy<Value = Vec<(i64, i64, i64, i64)>> {
    let rate = if kind.is_concurrent() { 0_i64..1 } else { 1..8 };
    prop::collection::vec((1_i64..5, rate, 1_i64..60, 0_i64..20), 1..4).prop_map(|limits| {
        let (mut from, mut by) = (0, 0);
        let told = |(capacity, rate, gap, late)| {
            from += gap;
            by = by.max(from + late);
            (capacity * TOKEN, rate * (FAST / 16), from, by)
        };
        limits.into_iter().map(told).collect()
    })
}

fn grant() -> impl Strategy<Value = (Granted, Option<(i64, Ending)>)> {
    let times = (
        0_i64..150,
        0_i64..15,
        0_i64..40,
        prop_oneof![Just(None), (0_i64..10).prop_map(Some), (0_i64..80).prop_map(Some)],
    );
    let end = prop_oneof![
        1 => Just(None),
        4 => (0_i64..30).prop_map(|after| Some((after, Ending::Released))),
        1 => (0_i64..30).prop_map(|after| Some((after, Ending::GivenBackUnused))),
        1 => (0_i64..30).prop_map(|after| Some((after, Ending::Died))),
    ];
    (times, end, 1_i64..3, prop::option::of(5_i64..40)).prop_map(
        |((asked, way, wait, judged), end, cost, lease)| {
            let mut granted = Granted::at("", "p", NAME, cost * TOKEN / 2, asked);
            granted.granted_at_micros = asked + way;
            granted.start_at_micros = asked + wait;
            granted.judged_from_micros = judged.map(|earlier| granted.start_at_micros - earlier);
            granted.ends_at_micros = lease.map(|lease| asked + lease);
            (granted, end.map(|(after, how)| (asked + way + after, how)))
        },
    )
}

fn worlds(kind: Kind) -> impl Strategy<Value = World> {
    (prop_oneof![Just(0_i64), 0_i64..6], limits(kind), prop::collection::vec(grant(), 1..40)).prop_map(
        move |(error, limits, told)| {
            let (mut grants, ends): (Vec<_>, Vec<_>) = told.into_iter().unzip();
            grants.iter_mut().enumerate().for_each(|(n, granted)| granted.id = format!("g{n}"));
            World { kind, error, limits, grants, ends }
        },
    )
}

impl World {
    fn check(&self) -> Verdict {
        let mut checker = Checker::new();
        checker.feed(Event::History(Header::new(self.error)));
        for (capacity, rate, from, by) in &self.limits {
            checker.feed(Event::Limit(Limit::new(NAME, self.kind, *capacity, *rate, *from).by(*by)));
        }
        for (granted, end) in self.grants.iter().zip(&self.ends) {
            checker.feed(Event::Granted(granted.clone()));
            if let Some((at_micros, how)) = *end {
                let (id, dimension) = (granted.id.clone(), NAME.to_owned());
                checker.feed(Event::Released(Released { id, dimension, at_micros, how }));
            }
        }
        checker.finish()
    }

    fn used(&self) -> impl Iterator<Item = (&Granted, i64)> {
        let unused = |end: &Option<(i64, Ending)>| matches!(end, Some((_, Ending::GivenBackUnused)));
        let used = self.grants.iter().zip(&self.ends).filter(move |(_, end)| !unused(end));
        used.map(|(granted, _)| (granted, granted.judged_from_micros.unwrap_or(granted.start_at_micros)))
    }

    /// Whether the limit `n` may have a say at `t`.
    fn reigns(&self, n: usize, t: i64) -> bool {
        let e = self.error;
        let begun = |t: i64| n == 0 || self.limits[n].2 - e <= t;
        let ended = |t: i64| self.limits.get(n + 1).is_some_and(|next| next.3 + e < t);
        let by_a_booking = || {
            self.grants
                .iter()
                .any(|g| t <= g.start_at_micros && begun(g.granted_at_micros) && !ended(g.asked_at_micros))
        };
        begun(t) && (!ended(t) || by_a_booking())
    }

    fn most(&self, t: i64, of: fn(&(i64, i64, i64, i64)) -> i64) -> i128 {
        let reigning = (0..self.limits.len()).filter(|n| self.reigns(*n, t));
        reigning.map(|n| i128::from(of(&self.limits[n]))).max().unwrap()
    }

    /// Of all windows that hold something, by how much the worst passes what is allowed.
    fn worst_window(&self) -> Option<i128> {
        let rates: Vec<i128> = (-100..300).map(|t| self.most(t, |limit| limit.1)).collect();
        let capacities: Vec<i128> = (-100..300).map(|t| self.most(t, |limit| limit.0)).collect();
        let at = |t: i64| usize::try_from(t + 100).unwrap();
        let excess = |a: i64, b: i64| {
            let inside = self.used().filter(|(granted, from)| a <= *from && granted.start_at_micros <= b);
            let granted: i128 = inside.map(|(granted, _)| i128::from(granted.cost_micros)).sum();
            let flowed: i128 = rates[at(a - self.error)..at(b + self.error)].iter().sum();
            granted * UNITS - flowed - capacities[at(a)..=at(b)].iter().max().unwrap() * UNITS
        };
        let windows = self.used().flat_map(|(_, a)| {
            self.used().filter(move |(_, from)| a <= *from).map(move |(last, _)| (a, last.start_at_micros))
        });
        windows.map(|(a, b)| excess(a, b)).max()
    }

    /// At the answer of some grant: what is held, and what is allowed.
    fn instants(&self) -> Vec<(i128, i128)> {
        let end = |n: usize| {
            let sent = match self.ends[n] {
                Some((at, how)) if how != Ending::Died => at,
                _ => i64::MAX,
            };
            sent.min(self.grants[n].ends_at_micros.map_or(i64::MAX, |ends| ends - 2 * self.error))
        };
        let numbers = || 0..self.grants.len();
        let lives = |n: usize, t: i64| self.grants[n].granted_at_micros <= t && t < end(n);
        // Of those answered at one moment, the one that was told last finds the others there.
        let told_by = |m: usize, n: usize| {
            (self.grants[m].granted_at_micros, m) <= (self.grants[n].granted_at_micros, n)
        };
        let in_force = |n: usize, t: i64| {
            (n == 0 || self.limits[n].2 <= t) && self.limits.get(n + 1).is_none_or(|next| t <= next.3)
        };
        let at = |n: usize| {
            let Granted { asked_at_micros: asked, granted_at_micros: now, .. } = self.grants[n];
            let held = numbers().filter(|m| lives(*m, now) && told_by(*m, n));
            let allowed = (asked..=now).flat_map(|t| (0..self.limits.len()).filter(move |l| in_force(*l, t)));
            let held = held.map(|m| i128::from(self.grants[m].cost_micros)).sum();
            (held, allowed.map(|l| i128::from(self.limits[l].0)).max().unwrap())
        };
        numbers().filter(|n| lives(*n, self.grants[*n].granted_at_micros)).map(at).collect()
    }

    /// Whether some caller that asked after another's answer was given an earlier start.
    fn is_overtaken(&self) -> bool {
        let during_a_change = |from: i64, to: i64| {
            let mut changes = self.limits.iter().skip(1);
            changes.any(|limit| limit.2 - self.error <= to && from <= limit.3 + self.error)
        };
        let later_passes = |first: &Granted, later: &Granted| {
            first.granted_at_micros < later.asked_at_micros
                && first.start_at_micros > later.start_at_micros + 2 * self.error
                && first.start_at_micros > later.granted_at_micros + self.error
                && !during_a_change(first.asked_at_micros, later.granted_at_micros)
        };
        self.used().any(|(first, _)| self.used().any(|(later, _)| later_passes(first, later)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_rate_bucket_is_judged_as_if_every_window_was_counted(world in worlds(Kind::Tokens)) {
        let mut world = world;
        // A limit that is told again as it was is no change, for the oracle neither.
        world.limits.dedup_by_key(|limit| (limit.0, limit.1));
        let verdict = world.check();
        let rate = verdict.violations.iter().any(|v| matches!(v, Violation::RateExceeded { .. }));
        let worst = world.worst_window();
        prop_assert_eq!(rate, worst.is_some_and(|worst| worst > 0), "{:?} {:?}", worst, verdict);
        let busiest = verdict.buckets[0].busiest.as_ref().map(|window| window.allowed - window.granted);
        prop_assert_eq!(busiest, worst.map(|worst| (-worst).div_euclid(UNITS)));
    }

    #[test]
    fn an_order_is_judged_as_if_every_pair_was_compared(world in worlds(Kind::Requests)) {
        let mut world = world;
        world.limits.dedup_by_key(|limit| (limit.0, limit.1));
        let verdict = world.check();
        let overtaken = verdict.violations.iter().any(|v| matches!(v, Violation::Overtaken { .. }));
        prop_assert_eq!(overtaken, world.is_overtaken(), "{:?}", verdict);
    }

    #[test]
    fn a_concurrency_bucket_is_judged_as_if_every_instant_was_counted(world in worlds(Kind::Concurrent)) {
        let mut world = world;
        world.limits.dedup_by_key(|limit| limit.0);
        let verdict = world.check();
        let instants = world.instants();
        let exceeded = instants.iter().any(|(held, allowed)| held > allowed);
        prop_assert_eq!(!verdict.holds(), exceeded, "{:?}", verdict);
        let peak = verdict.buckets[0].peak.as_ref().map(|peak| peak.granted);
        prop_assert_eq!(peak, instants.iter().map(|(held, _)| *held).max());
    }
}
