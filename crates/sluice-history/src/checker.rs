//! The checker: takes events in, and decides at the end.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::{
    Ending, Event, FORMAT_VERSION, Granted, Header, Limit, Paused, Refused, Released, Returned, Settled,
};
use crate::extent::Extent;
use crate::fault::{FaultKind, HistoryFault};
use crate::log::{BucketLog, Entry, Errors, Left, LimitEntry, NEVER, Place, Return, Starts, Waited};
use crate::verdict::{Verdict, Violation};
use crate::{decide, lines, outstanding};

/// Decides whether the promises were kept, from the events that it is fed.
///
/// Events may come in any order, but a release comes after its grant. Memory and time grow with the number of
/// events: a few words for each event, sorts of nearly sorted data, and one pass for each promise.
#[derive(Debug, Default)]
pub struct Checker {
    errors: Errors,
    events: u64,
    line: u64,
    file: Option<Arc<str>>,
    extent: Extent,
    is_release_due: bool,
    grants: u64,
    ids: HashMap<Arc<str>, Place>,
    processes: HashMap<String, u32>,
    names: HashMap<String, usize>,
    buckets: Vec<BucketLog>,
    faults: Vec<HistoryFault>,
}

impl Checker {
    /// Returns a checker without events. It assumes that clocks are exact until a header says otherwise.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Assumes a clock error of at least `micros`, whatever the headers say: for files of several machines.
    #[must_use]
    pub fn with_error(mut self, micros: i64) -> Self {
        self.errors = Errors { clock: micros.max(0), stamp: micros.max(0), ..self.errors };
        self
    }

    /// Assumes that a caller's request may take so long, whatever the headers say: see
    /// [`Header::request_micros`](crate::Header).
    #[must_use]
    pub fn with_request_time(mut self, micros: i64) -> Self {
        self.errors.request = micros.max(0);
        self
    }

    /// Demands a release of each grant: for a run that ended in order.
    #[must_use]
    pub const fn with_all_released(mut self) -> Self {
        self.is_release_due = true;
        self
    }

    /// Takes in one event. Events from memory need no [`End`](crate::End).
    pub fn feed(&mut self, event: Event) {
        self.line += 1;
        self.events += 1;
        if let Some(kind) = self.extent.take(&event) {
            self.fault(kind);
        }
        match event {
            Event::History(header) => self.header(header),
            Event::Limit(limit) => self.limit(&limit),
            Event::Granted(granted) => self.granted(granted),
            Event::Released(released) => self.released(released),
            Event::Settled(settled) => self.settled(settled),
            Event::Returned(returned) => self.returned(&returned),
            Event::Refused(refused) => self.refused(&refused),
            Event::Paused(paused) => self.paused(&paused),
            Event::End(_) => {}
        }
    }

    /// Restarts the count of lines, for `file`.
    pub(crate) fn begin_file(&mut self, file: &str) {
        self.line = 0;
        self.file = Some(file.into());
    }

    /// Demands that the file had an end.
    pub(crate) fn end_file(&mut self) {
        if !self.extent.close() {
            self.fault(FaultKind::NoEnd);
        }
    }

    /// Counts a line that is not an event.
    pub(crate) const fn skip_line(&mut self) {
        self.line += 1;
    }

    /// Decides.
    #[must_use]
    pub fn finish(mut self) -> Verdict {
        let mut verdict = Verdict { events: self.events, grants: self.grants, ..Verdict::default() };
        let mut names: Vec<_> = self.names.drain().collect();
        names.sort_unstable();
        for (name, at) in names {
            let log = &mut self.buckets[at];
            let Some(kind) = log.kind() else {
                if !log.grants.is_empty() {
                    let kind = FaultKind::UnknownDimension { dimension: name };
                    let file = log.first_file.as_deref().map(str::to_owned);
                    self.faults.push(HistoryFault { file, line: log.first_line, kind });
                }
                continue;
            };
            // First, because a release that is missing makes one violation of every later grant.
            if self.is_release_due {
                verdict.violations.extend(outstanding::check(&name, &log.grants));
            }
            let (figures, violations) = decide::bucket(&name, kind, log, self.errors);
            verdict.violations.extend(violations);
            verdict.buckets.push(figures);
        }
        // First, because what a history with faults says otherwise may follow from them.
        let faults = self.faults.into_iter().map(Violation::History);
        verdict.violations = faults.chain(verdict.violations).collect();
        verdict
    }

    fn header(&mut self, header: Header) {
        if header.version != FORMAT_VERSION {
            self.fault(FaultKind::Version { version: header.version });
        }
        self.errors.clock = self.errors.clock.max(header.clock_error_micros);
        self.errors.stamp = self.errors.stamp.max(header.stamp_error_micros);
        self.errors.request = self.errors.request.max(header.request_micros);
    }

    fn limit(&mut self, limit: &Limit) {
        let by = limit.by_micros.unwrap_or(limit.from_micros);
        let name = &limit.dimension;
        if limit.capacity_micros <= 0 {
            self.amount(name, "capacity_micros", limit.capacity_micros);
        }
        if (limit.refill_pico_per_sec <= 0) != limit.kind.is_concurrent() || limit.refill_pico_per_sec < 0 {
            self.amount(name, "refill_pico_per_sec", limit.refill_pico_per_sec);
        }
        self.in_order(name, ("from_micros", limit.from_micros), ("by_micros", by));
        let at = self.bucket(name);
        if self.buckets[at].kind().is_some_and(|kind| kind.is_concurrent() != limit.kind.is_concurrent()) {
            self.fault(FaultKind::KindChange { dimension: name.clone() });
            return;
        }
        self.buckets[at].limits.push(LimitEntry {
            kind: limit.kind,
            capacity: limit.capacity_micros.max(0),
            rate: limit.refill_pico_per_sec.max(0),
            from: limit.from_micros,
            by: by.max(limit.from_micros),
        });
        match lines::split(limit) {
            Ok(split) => self.buckets[at].splits.push(split),
            Err((field, value)) => self.amount(name, field, value),
        }
    }

    fn granted(&mut self, granted: Granted) {
        let id = granted.id.as_str();
        if granted.cost_micros <= 0 {
            self.amount(id, "cost_micros", granted.cost_micros);
            return;
        }
        let judged_from = granted.judged_from_micros.unwrap_or(granted.start_at_micros);
        self.in_order(
            id,
            ("asked_at_micros", granted.asked_at_micros),
            ("granted_at_micros", granted.granted_at_micros),
        );
        self.in_order(id, ("judged_from_micros", judged_from), ("start_at_micros", granted.start_at_micros));
        let earliest = granted.asked_at_micros.saturating_sub(self.errors.both());
        self.in_order(id, ("asked_at_micros", earliest), ("start_at_micros", granted.start_at_micros));
        let bucket = self.bucket(&granted.dimension);
        let before = self.ids.get(id).copied();
        if self.part(before, bucket).is_some() {
            self.fault(FaultKind::GrantedTwice { id: granted.id, dimension: granted.dimension });
            return;
        }
        let id: Arc<str> =
            before.map_or_else(|| granted.id.into(), |place| Arc::clone(&self.entry(place).id));
        match before {
            None => self.grants += 1,
            Some(place) => self.entry(place).several = true,
        }
        let process = self.process(granted.process);
        let (line, file) = (self.line, self.file.clone());
        let log = &mut self.buckets[bucket];
        if log.grants.is_empty() {
            (log.first_line, log.first_file) = (line, file);
        }
        log.grants.push(Entry {
            id: Arc::clone(&id),
            process,
            cost: granted.cost_micros,
            used: granted.cost_micros,
            asked_at: granted.asked_at_micros,
            granted_at: granted.granted_at_micros,
            judged_from: judged_from.min(granted.start_at_micros),
            start_at: granted.start_at_micros,
            ends_at: granted.ends_at_micros.unwrap_or(NEVER),
            released_at: NEVER,
            unused: false,
            died: false,
            booked: granted.booked,
            share: granted.share.map(Arc::from),
            paid_from: granted.paid_from.map(Arc::from),
            several: before.is_some(),
            before,
        });
        self.ids.insert(id, (bucket, log.grants.len() - 1));
    }

    fn released(&mut self, released: Released) {
        let Released { id, dimension, at_micros: at, how } = released;
        let bucket = self.bucket(&dimension);
        let Some(place) = self.part(self.ids.get(id.as_str()).copied(), bucket) else {
            self.fault(FaultKind::ReleaseWithoutGrant { id, dimension });
            return;
        };
        let entry = self.entry(place);
        if entry.released_at != NEVER || entry.died {
            self.fault(FaultKind::ReleasedTwice { id, dimension });
            return;
        }
        let granted_at = entry.granted_at;
        match how {
            Ending::Died => entry.died = true,
            Ending::GivenBackUnused => (entry.released_at, entry.unused) = (at, true),
            Ending::Released | Ending::LeaseGone => entry.released_at = at,
        }
        self.in_order(&id, ("granted_at_micros", granted_at), ("at_micros", at));
    }

    fn settled(&mut self, settled: Settled) {
        let Settled { id, dimension, used_micros: used, .. } = settled;
        let bucket = self.bucket(&dimension);
        let Some(place) = self.part(self.ids.get(id.as_str()).copied(), bucket) else {
            self.fault(FaultKind::SettledWithoutGrant { id, dimension });
            return;
        };
        if used < 0 {
            self.amount(&id, "used_micros", used);
            return;
        }
        let entry = self.entry(place);
        entry.used = used.min(entry.cost);
    }

    fn returned(&mut self, returned: &Returned) {
        let (amount, from) = (returned.amount_micros, returned.from_micros);
        let by = returned.by_micros.unwrap_or(from);
        if amount <= 0 {
            self.amount(&returned.dimension, "amount_micros", amount);
            return;
        }
        self.in_order(&returned.dimension, ("from_micros", from), ("by_micros", by));
        let bucket = self.bucket(&returned.dimension);
        self.buckets[bucket].returns.push(Return { amount, from, by });
    }

    fn refused(&mut self, refused: &Refused) {
        self.in_order(
            &refused.process,
            ("asked_at_micros", refused.asked_at_micros),
            ("at_micros", refused.at_micros),
        );
        if !refused.booked {
            return;
        }
        let process = self.process(refused.process.clone());
        let (at, starts) = match refused.dimensions.len() {
            1 => (refused.at_micros, Starts::One),
            // The caller may have left what it took from one bucket when it reached the other bucket.
            _ => (refused.asked_at_micros, Starts::Any),
        };
        for dimension in &refused.dimensions {
            let bucket = self.bucket(dimension);
            self.buckets[bucket].left.push(Left { process, at, starts });
            let share = refused.share.as_deref().map(Arc::from);
            let (from, to) = (refused.asked_at_micros, refused.at_micros);
            self.buckets[bucket].waited.push(Waited {
                share,
                from,
                to,
                several: refused.dimensions.len() > 1,
            });
        }
    }

    fn paused(&mut self, paused: &Paused) {
        let Paused { dimension, from_micros: from, to_micros: to } = paused;
        self.in_order(dimension, ("from_micros", *from), ("to_micros", *to));
        let bucket = self.bucket(dimension);
        self.buckets[bucket].pauses.push((*from, *to));
    }

    fn bucket(&mut self, dimension: &str) -> usize {
        if let Some(at) = self.names.get(dimension) {
            return *at;
        }
        self.buckets.push(BucketLog::default());
        self.names.insert(dimension.to_owned(), self.buckets.len() - 1);
        self.buckets.len() - 1
    }

    fn process(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        *self.processes.entry(name).or_insert(next)
    }

    fn entry(&mut self, (bucket, at): Place) -> &mut Entry {
        &mut self.buckets[bucket].grants[at]
    }

    /// The part in `bucket` among the parts of one id; `last` is the part that was recorded last.
    fn part(&self, last: Option<Place>, bucket: usize) -> Option<Place> {
        let mut next = last;
        while let Some((of, at)) = next {
            if of == bucket {
                return next;
            }
            next = self.buckets[of].grants[at].before;
        }
        None
    }

    fn in_order(
        &mut self,
        id: &str,
        (begin, begin_micros): (&'static str, i64),
        (end, end_micros): (&'static str, i64),
    ) {
        if end_micros < begin_micros {
            self.fault(FaultKind::EndsBeforeItBegins {
                id: id.to_owned(),
                end,
                end_micros,
                begin,
                begin_micros,
            });
        }
    }

    fn amount(&mut self, of: &str, field: &'static str, value: i64) {
        self.fault(FaultKind::Amount { of: of.to_owned(), field, value });
    }

    fn fault(&mut self, kind: FaultKind) {
        let file = self.file.as_deref().map(str::to_owned);
        self.faults.push(HistoryFault { file, line: self.line, kind });
    }
}
