//! The history of a run, as its callers saw it, in the format of `sluice stress`; judged by the checker that
//! shares no code with the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sluice_core::{Limit, LimitType, USE_BY};
use sluice_history::{
    Checker, Ending, Event, Granted, Header, Kind, Paused, Refused, Released, Returned, Settled, Share,
    Writer, pico_per_sec,
};

use crate::callers::Need;
use crate::ledger::{COMMON, LineRow, LinesRow, SHARED, SlotLines};
use crate::row::{BucketRow, Micros};
use crate::scenario::{START, Scenario};

/// Where nothing goes wrong, a caller's tokens are taken or booked within this time, in microseconds: a round
/// tries for a second.
const REQUEST: i64 = 1_500_000;

/// A process goes by shares of slots that have changed for so long at most, in microseconds.
const KNOWN_FOR: i64 = 10_000_000;

/// What happened so far.
pub(crate) struct Record {
    clock_error: i64,
    events: Vec<Event>,
    concurrent: Vec<String>,
    edited: BTreeSet<String>,
    /// Since when some share of a bucket of slots is being made or removed.
    closed: BTreeMap<String, i64>,
    /// When tokens were sent back that have not arrived yet, by process and bucket.
    returns: BTreeMap<(String, String), Vec<Micros>>,
    slowest_return: i64,
    ids: u64,
    /// How long before a call its tokens may have been taken.
    stock_for: Micros,
}

/// How a grant came about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grip {
    pub(crate) asked_at: Micros,
    pub(crate) start_at: i64,
    /// By the clock of its client; the earliest that it can be.
    pub(crate) lease_ends: i64,
    /// Whether its caller was willing to wait.
    pub(crate) booked: bool,
    /// Whether its start travelled as a ticket.
    pub(crate) redeemed: bool,
    /// Whether it may have been a transaction, which tells no start of its own.
    pub(crate) transacted: bool,
}

impl Grip {
    /// The lease of a slot ends no earlier than this. It is renewed: whoever was frozen meanwhile may have
    /// lost it.
    pub(crate) fn slot_lease(asked_at: Micros, ttl: i64, clock_error: i64) -> i64 {
        micros(asked_at) + ttl - clock_error
    }
}

impl Record {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let events = scenario
            .buckets
            .iter()
            .map(|bucket| Event::Limit(limit(bucket.name(), &bucket.limit, START.micros())));
        let concurrent = scenario.buckets.iter().filter(|bucket| bucket.is_concurrent());
        Self {
            clock_error: scenario.clock_error,
            events: events.collect(),
            concurrent: concurrent.map(|bucket| bucket.name().to_owned()).collect(),
            edited: BTreeSet::new(),
            closed: BTreeMap::new(),
            returns: BTreeMap::new(),
            slowest_return: 0,
            ids: 0,
            stock_for: if scenario.prefetches { Micros::try_from(USE_BY.as_micros()).unwrap() } else { 0 },
        }
    }

    /// A caller has a grant in hand, at the true time `now`, of tokens that were taken at `taken_at` (before
    /// it asked, where it took over a start that another left). Returns its name.
    pub(crate) fn granted(
        &mut self,
        process: &str,
        need: &Need,
        now: Micros,
        grip: Grip,
        taken_at: Micros,
    ) -> String {
        self.ids += 1;
        let id = format!("{process}/{}", self.ids);
        for (dimension, cost) in &need.parts {
            let mut granted = Granted::at(&id, process, dimension, i64::from(*cost) * 1_000_000, micros(now));
            let is_slot = self.concurrent.contains(dimension);
            let taken_at = if is_slot { grip.asked_at } else { taken_at.min(grip.asked_at) };
            // Whoever booked before the limit changed keeps a start that the bucket's line knows nothing of
            // any more, and so does whoever takes it over; what was in stock by then was taken under the
            // limit before.
            let is_changed = self.changed_since(dimension, taken_at - self.stock_for);
            let asked_at = if is_changed { taken_at } else { grip.asked_at };
            granted.asked_at_micros = micros(asked_at);
            granted.start_at_micros = grip.start_at;
            granted.booked = grip.booked;
            granted.ends_at_micros = is_slot.then_some(grip.lease_ends);
            let inexact = grip.transacted || need.parts.len() > 1 || is_changed;
            granted.judged_from_micros =
                inexact.then_some(micros(asked_at - self.stock_for).min(grip.start_at));
            self.events.push(Event::Granted(granted));
        }
        id
    }

    /// The time that a request is on its way counts as an error of clocks; for takes it shows in their
    /// starts, for returns here.
    pub(crate) fn return_sent(&mut self, process: &str, dimension: &str, at: Micros) {
        self.returns.entry((process.to_owned(), dimension.to_owned())).or_default().push(at);
    }

    pub(crate) fn return_arrived(&mut self, process: &str, dimension: &str, at: Micros) {
        let sent = self.returns.entry((process.to_owned(), dimension.to_owned())).or_default();
        let earliest = sent.iter().copied().min().unwrap_or(at);
        sent.retain(|sent| *sent != earliest);
        self.slowest_return = self.slowest_return.max(micros(at - earliest));
    }

    fn changed_since(&self, dimension: &str, at: Micros) -> bool {
        let changed = |event: &Event| matches!(event, Event::Limit(limit) if limit.dimension == dimension && limit.by_micros >= Some(micros(at)));
        self.events.iter().any(changed)
    }

    /// A client in another language took one token.
    pub(crate) fn stranger_granted(&mut self, dimension: &str, at: i64) {
        self.ids += 1;
        let id = format!("stranger/{}", self.ids);
        let mut granted = Granted::at(id, "stranger", dimension, 1_000_000, at);
        granted.paid_from = dimension.starts_with(SHARED).then(|| COMMON.to_owned());
        self.events.push(Event::Granted(granted));
    }

    /// Callers of a share were granted something, from these lines of its buckets.
    pub(crate) fn paid<'a>(
        &mut self,
        id: &str,
        share: Option<&str>,
        lines: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        for (dimension, line) in lines {
            let is_it = |event: &&mut Event| matches!(event, Event::Granted(granted) if granted.id == id && granted.dimension == dimension);
            if let Some(Event::Granted(granted)) = self.events.iter_mut().rev().find(is_it) {
                (granted.share, granted.paid_from) = (share.map(str::to_owned), line.map(str::to_owned));
            }
        }
    }

    /// A caller of a share waited, and left without a grant.
    pub(crate) fn left_share(
        &mut self,
        process: &str,
        parts: &[(String, i32)],
        share: Option<&str>,
        asked_at: Micros,
        now: Micros,
    ) {
        self.events.push(Event::Refused(Refused {
            process: process.to_owned(),
            dimensions: parts.iter().map(|(name, _)| name.clone()).collect(),
            asked_at_micros: micros(asked_at),
            at_micros: micros(now),
            booked: true,
            share: share.map(str::to_owned),
            error: None,
        }));
    }

    /// In this run, nobody is promised a part of the bucket.
    pub(crate) fn guarantees_nothing(&mut self, dimension: &str) {
        self.pause(dimension, i64::MIN / 2, i64::MAX / 2);
    }

    /// A caller asked for a cool-down of the bucket.
    pub(crate) fn cools_down(&mut self, dimension: &str, from: Micros, to: Micros) {
        self.pause(dimension, micros(from), micros(to) + self.clock_error);
    }

    fn pause(&mut self, dimension: &str, from_micros: i64, to_micros: i64) {
        let dimension = dimension.to_owned();
        self.events.push(Event::Paused(Paused { dimension, from_micros, to_micros }));
    }

    /// A bucket has other lines, by a write that was applied at `now`.
    pub(crate) fn lines_changed(&mut self, dimension: &str, lines: &LinesRow, now: Micros) {
        let (planned, applied) = (micros(lines[COMMON].row.anchor), micros(now));
        let share = |(name, line): (&String, &LineRow)| {
            Share::new(name, micros(line.row.capacity), i64::try_from(line.row.rate).unwrap())
        };
        let shares: Vec<Share> = lines.iter().filter(|(name, _)| *name != COMMON).map(share).collect();
        let capacity = lines.values().map(|line| line.row.capacity).sum();
        let rate: i128 = lines.values().map(|line| line.row.rate).sum();
        let (from, rate) = (planned.min(applied), i64::try_from(rate).unwrap());
        let limit = sluice_history::Limit::new(dimension, Kind::Requests, micros(capacity), rate, from);
        self.events.push(Event::Limit(limit.by(applied.max(from)).with_shares(shares)));
        // What a share that was removed had booked delays the common line, and what any had booked under a
        // higher rate its own.
        let paid_at = lines.values().map(|line| micros(line.row.reaches_zero())).max().unwrap_or(applied);
        self.pause(dimension, from, paid_at.max(applied) + self.clock_error);
    }

    /// A bucket of slots has shares, which have rows of their own.
    pub(crate) fn has_slots(&mut self, dimension: &str) {
        self.concurrent.push(dimension.to_owned());
    }

    /// The rows of a bucket of slots have other capacities. While they change, what is held of a row that
    /// shrank counts for the whole. While a share is made or removed, its callers take from the common line.
    pub(crate) fn slot_lines_changed(&mut self, dimension: &str, lines: &SlotLines, now: Micros) {
        let is_granted =
            |event: &Event| matches!(event, Event::Granted(granted) if granted.dimension == dimension);
        if !self.events.iter().any(is_granted) {
            // Nobody has met the bucket as it was before.
            let is_limit =
                |event: &Event| matches!(event, Event::Limit(limit) if limit.dimension == dimension);
            self.events.retain(|event| !is_limit(event));
        }
        if lines.has_closed {
            self.closed.entry(dimension.to_owned()).or_insert(micros(now));
        } else if let Some(from) = self.closed.remove(dimension) {
            self.pause(dimension, from, micros(now) + KNOWN_FOR + REQUEST);
        }
        let share = |(name, (capacity, floor)): (&String, &(Micros, Option<Micros>))| {
            let share = Share::new(name, micros(*capacity), 0);
            floor.map_or(share.clone(), |floor| share.with_floor(micros(floor)))
        };
        let shares = lines.shares.iter().map(share);
        let limit =
            sluice_history::Limit::new(dimension, Kind::Concurrent, micros(lines.whole), 0, micros(now));
        self.events.push(Event::Limit(limit.with_shares(shares.collect())));
    }

    /// The call is over; its release is about to be sent.
    pub(crate) fn released(&mut self, id: &str, now: Micros) {
        let is_it = |event: &&Event| matches!(event, Event::Granted(granted) if granted.id == id);
        let parts: Vec<String> = self.events.iter().rev().filter(is_it).filter_map(dimension_of).collect();
        for dimension in parts.into_iter().filter(|dimension| self.concurrent.contains(dimension)) {
            let (id, at_micros) = (id.to_owned(), micros(now));
            self.events.push(Event::Released(Released { id, dimension, at_micros, how: Ending::Released }));
        }
    }

    /// A call used so many millionths of what it took.
    pub(crate) fn settled(&mut self, id: &str, dimension: &str, used: Micros, now: Micros) {
        let (id, dimension) = (id.to_owned(), dimension.to_owned());
        let (at_micros, used_micros) = (micros(now), micros(used));
        self.events.push(Event::Settled(Settled { id, dimension, at_micros, used_micros }));
    }

    /// Tokens went back into a bucket.
    pub(crate) fn returned(&mut self, dimension: &str, amount: Micros, now: Micros) {
        let (dimension, amount_micros, from_micros) = (dimension.to_owned(), micros(amount), micros(now));
        self.events.push(Event::Returned(Returned {
            dimension,
            amount_micros,
            from_micros,
            by_micros: None,
        }));
    }

    /// A caller that was willing to wait left, and may have left a start behind.
    pub(crate) fn left(&mut self, process: &str, need: &Need, asked_at: Micros, now: Micros) {
        self.events.push(Event::Refused(Refused {
            process: process.to_owned(),
            dimensions: need.parts.iter().map(|(name, _)| name.clone()).collect(),
            asked_at_micros: micros(asked_at),
            at_micros: micros(now),
            booked: true,
            share: None,
            error: None,
        }));
    }

    /// Someone edited the slots of a bucket by hand: no history can tell any more how many may be held.
    pub(crate) fn edited(&mut self, dimension: &str, now: Micros) {
        self.edited.insert(dimension.to_owned());
        let limit = sluice_history::Limit::new(dimension, Kind::Concurrent, i64::MAX / 2, 0, micros(now));
        self.events.push(Event::Limit(limit));
    }

    /// A bucket has other limits, by a write that was planned at its anchor and applied at the true time
    /// `now`.
    pub(crate) fn limit_changed(&mut self, dimension: &str, bucket: &BucketRow, now: Micros) {
        if self.edited.contains(dimension) {
            return;
        }
        let (planned, applied) = (micros(bucket.anchor), micros(now));
        let from = if bucket.concurrent { applied } else { planned.min(applied) };
        let kind = if bucket.concurrent { Kind::Concurrent } else { self.kind(dimension) };
        let (capacity, rate) = (micros(bucket.capacity), i64::try_from(bucket.rate).unwrap());
        let limit = sluice_history::Limit::new(dimension, kind, capacity, rate, from);
        self.events.push(Event::Limit(limit.by(applied.max(from))));
    }

    fn kind(&self, dimension: &str) -> Kind {
        let of = |event: &Event| match event {
            Event::Limit(limit) if limit.dimension == dimension => Some(limit.kind),
            _ => None,
        };
        self.events.iter().find_map(of).unwrap_or(Kind::Requests)
    }

    /// What the promises say to it.
    pub(crate) fn judged(&self) -> Result<(), String> {
        let mut checker = Checker::new();
        checker.feed(Event::History(self.header()));
        self.events.iter().cloned().for_each(|event| checker.feed(event));
        self.still_closed().for_each(|event| checker.feed(event));
        let violations: Vec<String> = checker.finish().violations.iter().map(ToString::to_string).collect();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(format!("the history: {}", violations.join("\nthe history: ")))
        }
    }

    /// Starts are whole microseconds, rounded up each by itself.
    fn header(&self) -> Header {
        let request_micros = REQUEST;
        Header { request_micros, ..Header::new(self.clock_error.max(1) + self.slowest_return) }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    fn still_closed(&self) -> impl Iterator<Item = Event> {
        let pause = |(dimension, from): (&String, &i64)| {
            let (dimension, to_micros) = (dimension.clone(), i64::MAX / 2);
            Event::Paused(Paused { dimension, from_micros: *from, to_micros })
        };
        self.closed.iter().map(pause)
    }

    pub(crate) fn save(&self, file: &Path) -> std::io::Result<()> {
        let mut writer = Writer::new(std::fs::File::create(file)?, self.header())?;
        self.events.iter().try_for_each(|event| writer.write(event))?;
        self.still_closed().try_for_each(|event| writer.write(&event))?;
        writer.finish().map(drop)
    }
}

fn dimension_of(event: &Event) -> Option<String> {
    match event {
        Event::Granted(granted) => Some(granted.dimension.clone()),
        _ => None,
    }
}

fn limit(dimension: &str, limit: &Limit, from: i64) -> sluice_history::Limit {
    let kind = match limit.limit_type() {
        LimitType::Requests => Kind::Requests,
        LimitType::Tokens => Kind::Tokens,
        LimitType::Concurrent => Kind::Concurrent,
    };
    let pico = pico_per_sec(&limit.refill_rate().to_string()).unwrap();
    sluice_history::Limit::new(dimension, kind, limit.capacity().micros(), pico, from)
}

fn micros(at: Micros) -> i64 {
    i64::try_from(at).unwrap()
}

/// Seeds 1002355 and 700292. One call in ten seconds; a second one is booked for the tenth, its caller
/// leaves, the limit is halved, and then another takes that start over. A caller that had booked it after the
/// change would be too early.
#[test]
fn a_start_that_is_taken_over_is_judged_by_the_limit_that_it_was_booked_under() {
    let mut scenario = Scenario::of(1, 1);
    let rate = |window| {
        sluice_core::Rate::per(sluice_core::Amount::from_tokens(1), std::time::Duration::from_secs(window))
    };
    let limit = Limit::rate(
        LimitType::Requests,
        sluice_core::Amount::from_tokens(1),
        rate(10).unwrap(),
        sluice_core::Cost::ONE,
    );
    scenario.buckets.truncate(1);
    (scenario.buckets[0].limit, scenario.clock_error, scenario.prefetches) = (limit.unwrap(), 0, false);
    let need = Need::of(scenario.buckets[0].name(), 1);
    let at = |seconds: f64| Micros::from(START.micros()) + (seconds * 1e6) as Micros;
    let judged = |taken_at: Micros| {
        let mut record = Record::new(&scenario);
        let grip = |asked_at, start| Grip {
            asked_at,
            start_at: micros(start),
            lease_ends: 0,
            booked: true,
            redeemed: false,
            transacted: false,
        };
        record.granted("a", &need, at(0.1), grip(at(0.0), at(0.0)), at(0.0));
        record.left("a", &need, at(0.5), at(1.0));
        let halved = BucketRow {
            capacity: 1_000_000,
            tokens: -800_000,
            rate: 50_000_000_000,
            anchor: at(2.0),
            version: 3,
            ..BucketRow::default()
        };
        record.limit_changed(scenario.buckets[0].name(), &halved, at(2.0));
        record.granted("a", &need, at(10.0), grip(at(3.0), at(10.0)), taken_at);
        record.judged()
    };
    assert_eq!(judged(at(0.5)), Ok(()));
    assert!(judged(at(3.0)).is_err());
}
