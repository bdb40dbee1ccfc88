//! Short histories, written as one reads them: whole tokens and milliseconds.

use sluice_history::{
    Checker, End, Ending, Event, Granted, Header, Kind, Limit, Paused, Refused, Released, Returned, Settled,
    Share, Verdict,
};

pub(crate) const TOKEN: i64 = 1_000_000;
pub(crate) const PER_SEC: i64 = 1_000_000_000_000;
pub(crate) const MS: i64 = 1_000;

/// Events that are told one after the other.
#[derive(Default)]
pub(crate) struct Story(pub(crate) Vec<Event>);

impl Story {
    pub(crate) fn errors(mut self, clock_ms: i64, stamp_ms: i64) -> Self {
        let header = Header { stamp_error_micros: stamp_ms * MS, ..Header::new(clock_ms * MS) };
        self.0.push(Event::History(header));
        self
    }

    /// So many tokens at once and a second, from `ms` on.
    pub(crate) fn rate(mut self, name: &str, capacity: i64, per_sec: i64, ms: i64) -> Self {
        self.0.push(Event::Limit(Limit::new(
            name,
            Kind::Requests,
            capacity * TOKEN,
            per_sec * PER_SEC,
            ms * MS,
        )));
        self
    }

    pub(crate) fn slots(mut self, name: &str, capacity: i64, ms: i64) -> Self {
        self.0.push(Event::Limit(Limit::new(name, Kind::Concurrent, capacity * TOKEN, 0, ms * MS)));
        self
    }

    /// A grant of one, asked for, answered and started at `ms`, by a process named after its first letter.
    pub(crate) fn grant(self, id: &str, name: &str, ms: i64) -> Self {
        self.granted(id, name, ms, |_| {})
    }

    pub(crate) fn granted(
        mut self,
        id: &str,
        name: &str,
        ms: i64,
        change: impl FnOnce(&mut Granted),
    ) -> Self {
        let mut granted = Granted::at(id, &id[..1], name, TOKEN, ms * MS);
        change(&mut granted);
        self.0.push(Event::Granted(granted));
        self
    }

    /// A grant that was booked at `ms` to start at `start_ms`.
    pub(crate) fn booked(self, id: &str, name: &str, ms: i64, start_ms: i64) -> Self {
        self.granted(id, name, ms, |granted| {
            (granted.start_at_micros, granted.booked) = (start_ms * MS, true)
        })
    }

    pub(crate) fn released(mut self, id: &str, name: &str, ms: i64, how: Ending) -> Self {
        let (id, dimension) = (id.to_owned(), name.to_owned());
        self.0.push(Event::Released(Released { id, dimension, at_micros: ms * MS, how }));
        self
    }

    /// A call used so many whole tokens.
    pub(crate) fn settled(mut self, id: &str, name: &str, ms: i64, used: i64) -> Self {
        let (id, dimension) = (id.to_owned(), name.to_owned());
        self.0.push(Event::Settled(Settled { id, dimension, at_micros: ms * MS, used_micros: used * TOKEN }));
        self
    }

    /// So many thousandths of a token went back, sent at `from_ms` and there by `by_ms`.
    pub(crate) fn returned(mut self, name: &str, thousandths: i64, from_ms: i64, by_ms: i64) -> Self {
        let (dimension, amount_micros) = (name.to_owned(), thousandths * 1_000);
        let (from_micros, by_micros) = (from_ms * MS, Some(by_ms * MS));
        self.0.push(Event::Returned(Returned { dimension, amount_micros, from_micros, by_micros }));
        self
    }

    /// A caller of `process` was willing to wait, and left without a grant.
    pub(crate) fn left(mut self, process: &str, names: &[&str], asked_ms: i64, ms: i64) -> Self {
        self.0.push(Event::Refused(Refused {
            process: process.to_owned(),
            dimensions: names.iter().map(ToString::to_string).collect(),
            asked_at_micros: asked_ms * MS,
            at_micros: ms * MS,
            booked: true,
            share: None,
            error: None,
        }));
        self
    }

    /// A bucket with so many tokens at once and a second, and shares with so many of both.
    pub(crate) fn shared(mut self, name: &str, per_sec: i64, shares: &[(&str, i64)], ms: i64) -> Self {
        let share = |(share, of): &(&str, i64)| Share::new(*share, of * TOKEN, of * PER_SEC);
        let limit = Limit::new(name, Kind::Requests, per_sec * TOKEN, per_sec * PER_SEC, ms * MS);
        self.0.push(Event::Limit(limit.with_shares(shares.iter().map(share).collect())));
        self
    }

    /// A concurrency bucket with so many slots, and shares with so many of them.
    pub(crate) fn shared_slots(mut self, name: &str, slots: i64, shares: &[(&str, i64)]) -> Self {
        let share = |(share, of): &(&str, i64)| Share::new(*share, of * TOKEN, 0);
        let limit = Limit::new(name, Kind::Concurrent, slots * TOKEN, 0, 0);
        self.0.push(Event::Limit(limit.with_shares(shares.iter().map(share).collect())));
        self
    }

    /// A caller of `share` asked at `asked_ms`, waited, and may start at `ms`, with a token of the line
    /// `line`.
    pub(crate) fn paid(self, id: &str, (share, line): (&str, &str), asked_ms: i64, ms: i64) -> Self {
        self.granted(id, "v#rpm", ms, |granted| {
            (granted.asked_at_micros, granted.booked) = (asked_ms * MS, true);
            granted.share = (share != "common").then(|| share.to_owned());
            granted.paid_from = Some(line.to_owned());
        })
    }

    pub(crate) fn paused(mut self, from_ms: i64, to_ms: i64) -> Self {
        let (from_micros, to_micros) = (from_ms * MS, to_ms * MS);
        self.0.push(Event::Paused(Paused { dimension: "v#rpm".to_owned(), from_micros, to_micros }));
        self
    }

    pub(crate) fn end(mut self, events: u64) -> Self {
        self.0.push(Event::End(End { events }));
        self
    }

    pub(crate) fn check(&self) -> Verdict {
        let mut checker = Checker::new();
        self.0.iter().cloned().for_each(|event| checker.feed(event));
        checker.finish()
    }

    /// That each grant must have been released.
    pub(crate) fn check_all_released(&self) -> Verdict {
        let mut checker = Checker::new().with_all_released();
        self.0.iter().cloned().for_each(|event| checker.feed(event));
        checker.finish()
    }

    /// That it passes.
    #[track_caller]
    pub(crate) fn holds(&self) -> Verdict {
        let verdict = self.check();
        assert!(verdict.holds(), "{}", verdict.violations[0]);
        verdict
    }

    /// That it breaks one promise, and how that is told.
    #[track_caller]
    pub(crate) fn told(&self) -> String {
        let verdict = self.check();
        assert_eq!(verdict.violations.len(), 1, "{:#?}", verdict.violations);
        verdict.violations[0].to_string()
    }
}
