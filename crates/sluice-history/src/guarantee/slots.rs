//! Guarantees of slots. A share has its slots as soon as what it lent comes back:
//!
//! - While a caller of the share waits, a slot of the share is not free for longer than it takes to see it.
//! - From then on, nobody else borrows a slot of the share.
//! - Who borrows leaves the floor free, whether or not somebody waits.
//!
//! What was lent before somebody waited may be held for as long as its call lasts. So nothing is said of how
//! many slots a share has at a time.
//!
//! A slot that may be in use counts as in use: from the earliest moment at which it may have been taken until
//! its release was certainly applied. One that its holder never gave back counts until later grants show that
//! it came back: a grant finds all slots before it within the line.

use std::sync::Arc;

use crate::guarantee::{joined, line_of, totals, without};
use crate::lines::times_between_changes;
use crate::live;
use crate::log::{BucketLog, Entry, Errors, LineLimit, NEVER, SplitEntry};
use crate::verdict::{FreeSlot, ShareFigures, Violation};

mod covering;

/// How long a caller that waits may leave a free slot of its share unseen, and how long it may take until
/// borrowers see that it waits, each beside a request: a process looks again after four seconds at most.
const LOOK: i64 = 4_000_000;

/// How long a process may go by shares that have changed, and by those that a bucket did not have before.
const KNOWN_FOR: i64 = 10_000_000;
const UNKNOWN_FOR: i64 = 60_000_000;

const A_SLOT: i128 = 1_000_000;

pub(crate) fn check(dimension: &str, log: &BucketLog, errors: Errors) -> (Vec<ShareFigures>, Vec<Violation>) {
    let is_judged = log.grants.iter().all(|grant| grant.paid_from.is_some());
    let times = if is_judged { times(log, errors) } else { Vec::new() };
    let (mut figures, mut violations) = (Vec::new(), Vec::new());
    for name in log.line_names() {
        let mut of_share = totals(log, &name);
        for (split, from, to) in &times {
            let Some(limit) = split.lines.get(&name).copied() else { continue };
            let line = Line { dimension, log, errors, name: &name, split, limit, from: *from, to: *to };
            let grants = line.grants();
            let through = covering::amounts(&grants, errors);
            let waits = Waits::new(line.waits());
            violations.extend(line.left_free(&grants, &through, &waits, &mut of_share.left_free));
            violations.extend(line.lent(&grants, &through, &waits));
        }
        figures.push(of_share);
    }
    (figures, violations)
}

/// The times in which all processes know the shares, with these.
fn times(log: &BucketLog, errors: Errors) -> Vec<(SplitEntry, i64, i64)> {
    let mut had_shares = true;
    let mut times = times_between_changes(&log.splits, errors);
    for (split, since, _) in &mut times {
        *since = since.saturating_add(match (*since, had_shares) {
            (i64::MIN, _) => 0,
            (_, true) => KNOWN_FOR,
            (_, false) => UNKNOWN_FOR,
        });
        had_shares = split.lines.len() > 1;
    }
    times.retain(|(split, since, until)| split.lines.len() > 1 && since < until);
    times
}

/// One line in a time in which the shares stay.
struct Line<'a> {
    dimension: &'a str,
    log: &'a BucketLog,
    errors: Errors,
    name: &'a Arc<str>,
    split: &'a SplitEntry,
    limit: LineLimit,
    from: i64,
    to: i64,
}

/// A change of what may be in use.
enum Step {
    /// Slots are held for sure from here on, or to here.
    Held(i128),
    /// Nobody gave them back: they may be free from here on, or not. With the moment of their grant.
    Doubted(i128, i64),
    /// A caller that asked then was granted a slot: so much at most can be held of what is in doubt.
    Proof(i128, i64),
}

impl<'a> Line<'a> {
    /// Grants that its slots paid for.
    fn grants(&self) -> Vec<&'a Entry> {
        let is_of = |grant: &&Entry| grant.paid_from.as_ref() == Some(self.name);
        self.log.grants.iter().filter(is_of).collect()
    }

    fn is_mine(&self, share: Option<&Arc<str>>) -> bool {
        line_of(self.split, share) == &**self.name
    }

    /// The cost of its largest call: one that needs less may stand behind one that needs so much. What a
    /// caller wanted that left is not known: as much as any call of the bucket, if the line has that.
    fn largest(&self) -> i128 {
        let mine = self.log.grants.iter().filter(|grant| self.is_mine(grant.share.as_ref()));
        let own = mine.map(|grant| grant.cost.into()).max().unwrap_or(0);
        match self.log.waited.iter().any(|left| self.is_mine(left.share.as_ref())) {
            true => own.max(self.largest_of_all().min(self.limit.capacity.into())),
            false => own,
        }
    }

    fn largest_of_all(&self) -> i128 {
        self.log.grants.iter().map(|grant| grant.cost.into()).max().unwrap_or(A_SLOT)
    }

    /// When a caller of the share waited, for a slot of this bucket alone. One that also waits for other
    /// buckets may have to leave a slot.
    fn waits(&self) -> Vec<(i64, i64)> {
        let granted = self.log.grants.iter().filter(|grant| grant.booked && !grant.several);
        let granted = granted.filter(|grant| self.is_mine(grant.share.as_ref()));
        let granted = granted.map(|grant| (grant.asked_at, grant.granted_at));
        let left = self.log.waited.iter().filter(|left| !left.several && self.is_mine(left.share.as_ref()));
        let waits = granted.chain(left.map(|left| (left.from, left.to)));
        let pauses = self.pauses();
        waits.flat_map(|wait| without(&[wait], &pauses)).filter_map(|wait| self.clipped(wait)).collect()
    }

    fn clipped(&self, (from, to): (i64, i64)) -> Option<(i64, i64)> {
        let clipped = (from.max(self.from), to.min(self.to));
        Some(clipped).filter(|(from, to)| from < to)
    }

    fn pauses(&self) -> Vec<(i64, i64)> {
        let slack = self.errors.both();
        let pauses = self.log.pauses.iter();
        joined(pauses.map(|(from, to)| (from.saturating_sub(slack), to.saturating_add(slack))).collect())
    }

    /// The earliest moment at which a slot may have been taken. Of several buckets, the slot may have been
    /// taken long before the other parts.
    const fn earliest(&self, grant: &Entry) -> i64 {
        let answered = grant.granted_at.saturating_sub(self.errors.request);
        if grant.several || answered < grant.asked_at { grant.asked_at } else { answered }
    }

    /// The slots of the line that may be in use, in the order of time.
    fn steps(&self, grants: &[&Entry], through: &[i128]) -> Vec<(i64, Step)> {
        let Errors { stamp, request, .. } = self.errors;
        let mut steps = Vec::new();
        for (grant, through) in grants.iter().zip(through) {
            let cost = i128::from(grant.cost);
            steps.push((self.earliest(grant).saturating_sub(stamp), Step::Held(cost)));
            let rest = i128::from(self.limit.capacity) - through - cost;
            if self.from <= grant.asked_at && grant.granted_at <= self.to {
                steps.push((grant.granted_at, Step::Proof(rest.max(0), grant.asked_at)));
            }
            let end = live::end(grant, self.errors).max(grant.granted_at);
            if grant.released_at != NEVER {
                let free = grant.released_at.saturating_add(request).saturating_add(stamp);
                steps.push((free, Step::Held(-cost)));
            } else if end != NEVER {
                steps.push((end, Step::Held(-cost)));
                steps.push((end, Step::Doubted(cost, grant.granted_at)));
            }
        }
        // Whoever left may have held a slot of any line for a moment.
        let largest = self.largest_of_all();
        for left in &self.log.waited {
            let from = if left.several { left.from } else { left.from.max(left.to.saturating_sub(request)) };
            steps.push((from.saturating_sub(stamp), Step::Held(largest)));
            steps.push((left.to.saturating_add(request).saturating_add(stamp), Step::Held(-largest)));
        }
        // What comes free at a moment is free before anybody takes it. So a slot that changes hands does
        // not end a time in which another is free.
        steps.sort_by_key(|(at, step)| (*at, matches!(step, Step::Held(by) if *by > 0)));
        steps
    }

    /// When the line had room for its largest call for sure.
    fn room(&self, grants: &[&Entry], through: &[i128]) -> Vec<(i64, i64)> {
        let least = i128::from(self.limit.capacity) - self.largest();
        let (mut held, mut doubt, mut doubted_last) = (0_i128, 0_i128, i64::MIN);
        let (mut since, mut room) = ((least >= 0).then_some(i64::MIN), Vec::new());
        for (at, step) in self.steps(grants, through) {
            match step {
                Step::Held(by) => held += by,
                Step::Doubted(cost, granted_at) => {
                    (doubt, doubted_last) = (doubt + cost, doubted_last.max(granted_at));
                }
                Step::Proof(rest, asked_at) if doubted_last <= asked_at => doubt = doubt.min(rest),
                Step::Proof(..) => {}
            }
            match (held + doubt <= least, since) {
                (true, None) => since = Some(at),
                (false, Some(from)) => {
                    room.push((from, at));
                    since = None;
                }
                _ => {}
            }
        }
        room.extend(since.map(|from| (from, i64::MAX)));
        room.retain(|(from, to)| from < to);
        room
    }

    /// A slot is not free for long while a caller of the share waits.
    fn left_free(
        &self,
        grants: &[&Entry],
        through: &[i128],
        waits: &Waits,
        longest: &mut Option<FreeSlot>,
    ) -> Vec<Violation> {
        let allowed_micros = self.allowed();
        let mut room = self.room(grants, through);
        room.sort_by_key(|(from, to)| std::cmp::Reverse(to.saturating_sub(*from)));
        let mut violations = Vec::new();
        for within in room {
            let known = longest.map_or(0, |window| window.to_micros - window.from_micros);
            // The others are shorter, and allowed.
            if within.1.saturating_sub(within.0) <= known.min(allowed_micros) {
                break;
            }
            let Some((from_micros, to_micros)) = waits.longest_within(within) else { continue };
            let window = FreeSlot { from_micros, to_micros, allowed_micros };
            if to_micros - from_micros > known {
                *longest = Some(window);
            }
            if to_micros - from_micros > allowed_micros {
                let (dimension, share) = (self.dimension.to_owned(), self.name.to_string());
                violations.push(Violation::SlotLeftFree { dimension, share, window });
            }
        }
        violations
    }

    const fn allowed(&self) -> i64 {
        LOOK.saturating_add(self.errors.request).saturating_add(2 * self.errors.stamp)
    }

    /// What callers of other shares borrowed: nothing that is waited for, and nothing of the floor.
    fn lent(&self, grants: &[&Entry], through: &[i128], waits: &Waits) -> Vec<Violation> {
        let mut violations = Vec::new();
        let pauses = self.pauses();
        for (grant, through) in grants.iter().zip(through) {
            let taken = (self.earliest(grant), grant.granted_at);
            let is_paused = pauses.iter().any(|(from, to)| *from <= taken.1 && grant.asked_at <= *to);
            let is_within = self.from <= taken.0 && taken.1 <= self.to;
            if self.is_mine(grant.share.as_ref()) || is_paused || !is_within {
                continue;
            }
            let (dimension, share, id) =
                (self.dimension.to_owned(), self.name.to_string(), grant.id.to_string());
            let granted_at_micros = grant.granted_at;
            // Until its answer the waiting caller may have had its slot already.
            let still = taken.1.saturating_add(self.errors.request + 2 * self.errors.stamp);
            if let Some((waited_from_micros, _)) = waits.over(taken.0.saturating_sub(self.allowed()), still) {
                let (dimension, share, id) = (dimension.clone(), share.clone(), id.clone());
                let lent = Violation::LentWhileWaited {
                    dimension,
                    share,
                    id,
                    granted_at_micros,
                    waited_from_micros,
                };
                violations.push(lent);
            }
            let left_micros = i128::from(self.limit.capacity) - through - i128::from(grant.cost);
            if let Some(floor_micros) = self.limit.floor.filter(|floor| left_micros < i128::from(*floor)) {
                let lent = Violation::FloorLent {
                    dimension,
                    share,
                    id,
                    granted_at_micros,
                    left_micros,
                    floor_micros,
                };
                violations.push(lent);
            }
        }
        violations
    }
}

/// When callers waited, in the order of their beginnings.
struct Waits {
    waits: Vec<(i64, i64)>,
    /// Of the waits until each, the one that ends last.
    last: Vec<(i64, i64)>,
}

impl Waits {
    fn new(mut waits: Vec<(i64, i64)>) -> Self {
        waits.sort_unstable();
        let latest = |last: &mut Option<(i64, i64)>, wait: &(i64, i64)| {
            *last = [*last, Some(*wait)].into_iter().flatten().max_by_key(|(_, to)| *to);
            *last
        };
        let last = waits.iter().scan(None, latest).collect();
        Self { waits, last }
    }

    /// A wait from `from` or earlier until `to` or later.
    fn over(&self, from: i64, to: i64) -> Option<(i64, i64)> {
        let begun = self.waits.partition_point(|(begins, _)| *begins <= from);
        self.last[..begun].last().copied().filter(|(_, ends)| *ends >= to)
    }

    /// The longest part of one wait within a time.
    fn longest_within(&self, (from, to): (i64, i64)) -> Option<(i64, i64)> {
        let begun = self.waits.partition_point(|(begins, _)| *begins < to);
        let not_over = (0..begun).rev().take_while(|at| self.last[*at].1 > from);
        let parts = not_over.map(|at| (self.waits[at].0.max(from), self.waits[at].1.min(to)));
        parts.filter(|(from, to)| from < to).max_by_key(|(from, to)| to - from)
    }
}
