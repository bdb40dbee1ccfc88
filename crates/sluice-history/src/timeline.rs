//! What a bucket allows at each moment, given limits that change.
//!
//! A limit may be in force from the time its change was sent until its successor was confirmed, give or take
//! the error of clocks. Starts that were booked under a limit keep their pace after that: its reign lasts
//! until the last of them. If reigns overlap, the larger rate and the larger capacity count.

use crate::log::{Entry, Errors, LimitEntry};

/// One millionth of a token in the unit of sums, 10^-18 tokens. One microsecond at 10^-12 tokens a second
/// adds one unit.
pub(crate) const UNITS: i128 = 1_000_000_000_000;

/// The rate and capacity over time, in stretches.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The limits as recorded, without repetitions.
    limits: Vec<LimitEntry>,
    stretches: Vec<Stretch>,
}

/// A time in which rate and capacity do not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: i64,
    rate: i128,
    /// In 10^-18 tokens.
    pub(crate) capacity: i128,
    /// What flowed in before `from`, counted from the first change.
    flowed: i128,
}

impl Timeline {
    pub(crate) fn new(limits: &[LimitEntry], grants: &[Entry], errors: Errors) -> Self {
        let limits = changes(limits);
        let stretches = stretches(&limits, &reigns(&limits, grants, errors));
        Self { limits, stretches }
    }

    /// What flows in until `at`, counted from a fixed moment.
    pub(crate) fn flowed(&self, at: i64) -> i128 {
        let stretch = &self.stretches[self.index(at)];
        stretch.flowed + stretch.rate * (i128::from(at) - i128::from(stretch.from))
    }

    /// The stretches in the order of time. The first also applies to all time before it.
    pub(crate) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// The largest capacity that was in force at some moment of an interval, in millionths. It follows the
    /// limits as recorded: bookings do not extend them here.
    pub(crate) fn capacity_within(&self, from: i64, to: i64) -> i64 {
        let begun = self.limits.partition_point(|limit| limit.from <= to).max(1);
        let ended = self.limits.partition_point(|limit| limit.by < from);
        let first = ended.saturating_sub(1).min(begun - 1);
        self.limits[first..begun].iter().map(|limit| limit.capacity).max().unwrap_or(0)
    }

    fn index(&self, at: i64) -> usize {
        self.stretches.partition_point(|stretch| stretch.from <= at).saturating_sub(1)
    }
}

/// The limits in the order of time, without those that repeat what was in force already.
pub(crate) fn changes(limits: &[LimitEntry]) -> Vec<LimitEntry> {
    let mut limits = limits.to_vec();
    limits.sort_by_key(|limit| (limit.from, limit.by));
    limits.dedup_by(|later, earlier| later.capacity == earlier.capacity && later.rate == earlier.rate);
    // Changes may have been under way at the same time: whichever came first, the later one is not confirmed
    // before the earlier.
    let mut latest = i64::MIN;
    for limit in &mut limits {
        limit.by = limit.by.max(latest);
        latest = limit.by;
    }
    limits
}

/// The interval in which each limit may still have had an effect.
fn reigns(limits: &[LimitEntry], grants: &[Entry], errors: Errors) -> Vec<(i64, i64)> {
    let slack = errors.both();
    let until = |n: usize| limits.get(n + 1).map_or(i64::MAX, |next| next.by.saturating_add(slack));
    let mut reigns: Vec<_> = (0..limits.len())
        .map(|n| (if n == 0 { i64::MIN } else { limits[n].from.saturating_sub(slack) }, until(n)))
        .collect();
    let stated = reigns.clone();
    for grant in grants.iter().filter(|_| limits.len() > 1) {
        // The grant was planned between the asking and the answer, under a limit that may have been in force
        // then. A start that was given back unused counts too: another caller may have taken it over.
        let first = stated.partition_point(|(_, until)| *until < grant.asked_at);
        let last = stated.partition_point(|(from, _)| *from <= grant.granted_at);
        for reign in reigns.iter_mut().take(last).skip(first) {
            reign.1 = reign.1.max(grant.start_at);
        }
    }
    reigns
}

fn stretches(limits: &[LimitEntry], reigns: &[(i64, i64)]) -> Vec<Stretch> {
    let mut edges: Vec<i64> =
        reigns.iter().flat_map(|(from, until)| [*from, until.saturating_add(1)]).collect();
    edges.retain(|edge| *edge != i64::MIN && *edge != i64::MAX);
    // The first stretch has no beginning; any moment before the second will do.
    edges.push(edges.iter().copied().min().unwrap_or(0).saturating_sub(1));
    edges.sort_unstable();
    edges.dedup();
    let mut flowed = 0;
    let mut stretches: Vec<Stretch> = Vec::with_capacity(edges.len());
    for edge in edges {
        if let Some(last) = stretches.last() {
            flowed += last.rate * (i128::from(edge) - i128::from(last.from));
        }
        let reigning = || {
            limits
                .iter()
                .zip(reigns)
                .filter(|(_, (from, until))| *from <= edge && edge <= *until)
                .map(|(l, _)| l)
        };
        let rate = reigning().map(|limit| limit.rate).max().unwrap_or(0);
        let capacity = reigning().map(|limit| limit.capacity).max().unwrap_or(0);
        stretches.push(Stretch {
            from: edge,
            rate: rate.into(),
            capacity: i128::from(capacity) * UNITS,
            flowed,
        });
    }
    stretches
}
