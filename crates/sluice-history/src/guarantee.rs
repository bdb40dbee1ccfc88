//! Guarantees: a share whose callers always wait gets what it was promised, whatever the others do.
//!
//! A share with the refill rate r and a call of cost k that always waits gets at least
//! `r * dt - k - r * (2e + q)` in any time dt: e is the error of clocks, q the time that a request may take.
//! A caller waits from its asking until its start. Callers that left without a grant may have wasted a booked
//! start of their share: each is worth a call.
//!
//! Let G(t) be what callers of the share were granted until t. In a stretch in which somebody waits all the
//! time, the missing part of a window from a to b is `r * (b - a) - (G(b) - G(a))`, without the grants at a
//! and b themselves. One pass over the grants finds the largest.

use std::sync::Arc;

use crate::lines::COMMON;
use crate::log::{BucketLog, Errors, LineLimit, SplitEntry};
use crate::timeline::UNITS;
use crate::verdict::{Guarantee, ShareFigures, Violation};

pub(crate) mod slots;

/// So many of the largest calls are guaranteed in a window whose ratio is told: in shorter ones a single call
/// is much.
const CALLS_IN_A_RATIO: i128 = 20;

/// What callers of one share did while it had one guarantee.
struct Era {
    from: i64,
    to: i64,
    rate: i128,
    /// When somebody waited, without a gap, and no pause.
    waits: Vec<(i64, i64)>,
    /// When something was granted to the share, or wasted by it, and how much.
    grants: Vec<(i64, i128)>,
    largest: i128,
}

pub(crate) fn check(dimension: &str, log: &BucketLog, errors: Errors) -> (Vec<ShareFigures>, Vec<Violation>) {
    let (mut figures, mut violations) = (Vec::new(), Vec::new());
    for name in log.line_names() {
        let mut of_share = totals(log, &name);
        for era in eras(log, &name, errors) {
            let allowance =
                era.largest + era.rate * i128::from(2 * errors.clock + errors.request + 2) / UNITS + 2;
            for wait in &era.waits {
                let (missing, window) = era.worst(*wait, allowance);
                if missing > allowance * UNITS {
                    let (dimension, share) = (dimension.to_owned(), name.to_string());
                    violations.push(Violation::GuaranteeMissed { dimension, share, window });
                }
                let ratio = era.least_ratio(*wait, allowance);
                of_share.worst = [of_share.worst, ratio].into_iter().flatten().min_by(by_ratio);
            }
        }
        figures.push(of_share);
    }
    (figures, violations)
}

fn by_ratio(one: &Guarantee, other: &Guarantee) -> std::cmp::Ordering {
    (one.granted * other.guaranteed).cmp(&(other.granted * one.guaranteed))
}

/// The line that a caller's share is at a time: one that the bucket does not have is the common line.
fn line_of<'a>(split: &'a SplitEntry, share: Option<&'a Arc<str>>) -> &'a str {
    share.filter(|name| split.lines.contains_key(*name)).map_or(COMMON, |name| name)
}

fn totals(log: &BucketLog, name: &Arc<str>) -> ShareFigures {
    let at = |time: i64| log.splits.iter().rev().find(|split| split.from <= time).or(log.splits.first());
    let is_of =
        |share: Option<&Arc<str>>, time| at(time).is_some_and(|split| line_of(split, share) == &**name);
    let mine =
        || log.grants.iter().filter(|grant| !grant.unused && is_of(grant.share.as_ref(), grant.granted_at));
    let borrowed = mine().filter(|grant| grant.paid_from.as_ref().is_some_and(|line| line != name));
    ShareFigures {
        share: name.to_string(),
        grants: mine().count() as u64,
        granted: mine().map(|grant| i128::from(grant.used)).sum(),
        borrowed: borrowed.map(|grant| i128::from(grant.used)).sum(),
        worst: None,
        left_free: None,
    }
}

fn eras(log: &BucketLog, name: &Arc<str>, errors: Errors) -> Vec<Era> {
    let mut splits: Vec<&SplitEntry> = log.splits.iter().collect();
    splits.sort_by_key(|split| (split.from, split.by));
    let slack = errors.both();
    let mut eras = Vec::new();
    for (at, split) in splits.iter().enumerate() {
        let Some(LineLimit { rate, .. }) = split.lines.get(name).copied().filter(|line| line.rate > 0) else {
            continue;
        };
        let from = if at == 0 { i64::MIN } else { split.by.saturating_add(slack) };
        let to = splits.get(at + 1).map_or(i64::MAX, |next| next.from.saturating_sub(slack));
        if from < to {
            let era = Era { from, to, rate: rate.into(), waits: Vec::new(), grants: Vec::new(), largest: 0 };
            eras.push(era.filled(log, (name, split), errors));
        }
    }
    eras
}

impl Era {
    fn filled(mut self, log: &BucketLog, (name, split): (&Arc<str>, &SplitEntry), errors: Errors) -> Self {
        let slack = errors.both();
        let is_mine = |share: Option<&Arc<str>>| line_of(split, share) == &**name;
        self.from = self.from.max(self.booked_before(log, is_mine));
        let mut waits = Vec::new();
        for grant in log.grants.iter().filter(|grant| is_mine(grant.share.as_ref())) {
            self.grants.push((grant.start_at, grant.cost.into()));
            self.largest = self.largest.max(grant.cost.into());
            // A caller that does not wait is not always there.
            if grant.booked && grant.asked_at >= self.from {
                waits.push((grant.asked_at, grant.start_at));
            }
        }
        if self.largest == 0 {
            // Nothing was granted: a call costs what others pay.
            self.largest =
                log.grants.iter().map(|grant| i128::from(grant.cost)).max().unwrap_or(UNITS / 1_000_000);
        }
        for waited in log.waited.iter().filter(|waited| is_mine(waited.share.as_ref())) {
            waits.push((waited.from, waited.to));
            self.grants.push((waited.to, self.largest));
        }
        self.grants.sort_unstable();
        let pauses =
            log.pauses.iter().map(|(from, to)| (from.saturating_sub(slack), to.saturating_add(slack)));
        self.waits = without(&joined(waits), &joined(pauses.collect()));
        let clipped = self.waits.iter().map(|(from, to)| (self.from.max(*from), self.to.min(*to)));
        self.waits = clipped.filter(|(from, to)| from < to).collect();
        self
    }

    /// Until when the line pays for starts that were booked before it had this rate: they stay where they are,
    /// and later ones are booked behind them.
    fn booked_before(&self, log: &BucketLog, is_mine: impl Fn(Option<&Arc<str>>) -> bool) -> i64 {
        let booked = log.grants.iter().filter(|grant| {
            is_mine(grant.share.as_ref()) && grant.asked_at < self.from && grant.start_at > self.from
        });
        let (mut until, mut owed) = (self.from, 0_i128);
        for grant in booked {
            (until, owed) = (until.max(grant.start_at), owed + i128::from(grant.cost));
        }
        let paid_in = i64::try_from(owed * UNITS / self.rate).unwrap_or(i64::MAX);
        until.max(self.from.saturating_add(paid_in))
    }

    /// The grants strictly inside of a wait.
    fn inside(&self, (from, to): (i64, i64)) -> &[(i64, i128)] {
        let first = self.grants.partition_point(|(at, _)| *at <= from);
        let last = self.grants.partition_point(|(at, _)| *at < to);
        self.grants.get(first..last).unwrap_or_default()
    }

    fn guarantee(&self, (from, to): (i64, i64), granted: i128, allowance: i128) -> Guarantee {
        let guaranteed = (self.rate * (i128::from(to) - i128::from(from))).div_euclid(UNITS);
        Guarantee { from_micros: from, to_micros: to, granted, guaranteed, allowance }
    }

    /// The window of a wait in which most is missing, with how much that is in 10^-18 tokens.
    fn worst(&self, wait: (i64, i64), allowance: i128) -> (i128, Guarantee) {
        let (mut granted, mut first, mut before) = (0_i128, wait.0, 0_i128);
        let height =
            |at: i64, granted: i128| self.rate * (i128::from(at) - i128::from(wait.0)) - granted * UNITS;
        let mut low = 0_i128;
        let mut worst = (0_i128, self.guarantee((wait.0, wait.0), 0, allowance));
        for (at, cost) in self.inside(wait).iter().copied().chain([(wait.1, 0)]) {
            let missing = height(at, granted) - low;
            if missing > worst.0 {
                worst = (missing, self.guarantee((first, at), granted - before, allowance));
            }
            granted += cost;
            if height(at, granted) < low {
                (low, first, before) = (height(at, granted), at, granted);
            }
        }
        worst
    }

    /// The window of a wait with the least ratio of granted to guaranteed, of those that are long enough. A
    /// window of twice that length has a half whose ratio is no larger, so longer ones need no look.
    fn least_ratio(&self, wait: (i64, i64), allowance: i128) -> Option<Guarantee> {
        let calls = CALLS_IN_A_RATIO * self.largest.max(1) * UNITS;
        let shortest = i64::try_from((calls + self.rate - 1) / self.rate).ok()?;
        if wait.1.saturating_sub(wait.0) < shortest {
            return None;
        }
        let grants: Vec<(i64, i128)> = self.inside(wait).iter().copied().chain([(wait.1, 0)]).collect();
        let begins =
            std::iter::once((wait.0, 0)).chain(grants.iter().enumerate().map(|(n, (at, _))| (*at, n + 1)));
        let mut least: Option<Guarantee> = None;
        for (from, first) in begins {
            let mut granted = 0;
            for (at, cost) in &grants[first.min(grants.len())..] {
                if at - from >= shortest {
                    let window = self.guarantee((from, *at), granted, allowance);
                    least = [least, Some(window)].into_iter().flatten().min_by(by_ratio);
                }
                if at - from > 2 * shortest {
                    break;
                }
                granted += cost;
            }
        }
        least
    }
}

/// Intervals without overlaps, in the order of time.
fn joined(mut all: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    all.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// The parts of `all` outside of `holes`; both without overlaps and in order.
fn without(all: &[(i64, i64)], holes: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut left = Vec::new();
    let mut next = 0;
    for (mut from, to) in all.iter().copied() {
        while holes.get(next).is_some_and(|hole| hole.1 < from) {
            next += 1;
        }
        for hole in holes[next..].iter().take_while(|hole| hole.0 < to) {
            if from < hole.0 {
                left.push((from, hole.0));
            }
            from = from.max(hole.1);
        }
        if from < to {
            left.push((from, to));
        }
    }
    left
}
