//! Bookings: a caller that asks later does not start earlier.
//!
//! A booking is one write that lowers the bucket's line; its start is the time at which the line stands at
//! zero after the write. A later write lowers the line further, so its start is later. Take two grants A and
//! B of one bucket, where B was asked for after A was answered. B may start before A only by the errors of
//! both clocks and the time explained by tokens returned meanwhile. Returned tokens go to the next booking,
//! and bring its start forward by their amount divided by the rate. The check leaves out everything else that
//! may move the line back up or let a start change hands: see each condition below.

use std::collections::HashMap;

use crate::log::{BucketLog, Entry, Errors, Left, Return, Starts};
use crate::timeline::changes;
use crate::verdict::Violation;

/// A later grant, and the earlier grant that it passed.
type Passed<'a> = (&'a Entry, &'a Entry);

pub(crate) fn check(dimension: &str, log: &BucketLog, errors: Errors) -> Vec<Violation> {
    let mut passed = candidates(log, errors);
    unexplained(&mut passed, log, errors);
    passed.into_iter().map(|(later, first)| violation(dimension, first, later)).collect()
}

/// Finds, for each later grant, the grant with the latest start booked before the later one was asked for, if
/// it was passed.
fn candidates<'a>(log: &'a BucketLog, errors: Errors) -> Vec<Passed<'a>> {
    let epochs = Epochs::new(log, errors);
    // A grant states one start for all its parts: for a grant over several buckets, that may be the start of
    // another bucket.
    let is_own = |grant: &&Entry| !grant.several;
    let used = || log.grants.iter().filter(|grant| !grant.unused);
    let mut firsts: Vec<&Entry> = used().filter(is_own).collect();
    firsts.sort_by_key(|grant| grant.granted_at);
    let mut laters: Vec<&Entry> = used().collect();
    laters.sort_by_key(|grant| grant.asked_at);
    let mut firsts = firsts.into_iter().peekable();
    let returns = Returns::new(log, errors);
    let mut latest: Option<(usize, i64, &Entry)> = None;
    let mut passed = Vec::new();
    for later in laters {
        let answered = |first: &&Entry| first.granted_at.saturating_add(2 * errors.stamp) < later.asked_at;
        while let Some(first) = firsts.next_if(answered) {
            let Some(epoch) = epochs.of(first) else { continue };
            // Keep the first grant of whose passing the returns since it was asked for explain the least.
            let start = first.start_at.saturating_add(returns.forward(epoch, returns.by(first.asked_at)));
            if latest.is_none_or(|(of, known, _)| of < epoch || known < start) {
                latest = Some((epoch, start, first));
            }
        }
        let Some((epoch, start, first)) = latest else { continue };
        // Tokens returned since the first grant was asked for may have gone to the later one.
        let forward = returns.forward(epoch, returns.from(later.granted_at));
        let overtakes = start > later.start_at.saturating_add(forward).saturating_add(2 * errors.clock);
        // Tokens returned after the first grant's start lift the line for a caller whose write was under way.
        // By then, every start in the bucket is past.
        let is_ahead = first.start_at > later.granted_at.saturating_add(errors.both());
        if overtakes && is_ahead && epochs.of(later) == Some(epoch) {
            passed.push((later, first));
        }
    }
    passed
}

/// The tokens returned to the bucket, by time.
struct Returns {
    /// When each return was sent, with the sum until then. `there` has the same for when each return was
    /// applied.
    sent: Vec<(i64, i64)>,
    there: Vec<(i64, i64)>,
    /// The refill rate of each epoch, in 10^-12 tokens a second.
    rates: Vec<i64>,
    slack: i64,
}

impl Returns {
    fn new(log: &BucketLog, errors: Errors) -> Self {
        let sums = |at: fn(&Return) -> i64| {
            let mut all: Vec<(i64, i64)> = log.returns.iter().map(|one| (at(one), one.amount)).collect();
            all.sort_unstable();
            let mut sum = 0_i64;
            all.iter_mut().for_each(|(_, amount)| {
                sum = sum.saturating_add(*amount);
                *amount = sum;
            });
            all
        };
        let rates = changes(&log.limits).iter().map(|limit| limit.rate).collect();
        Self { sent: sums(|one| one.from), there: sums(|one| one.by), rates, slack: 2 * errors.stamp }
    }

    /// The sum of the returns that may have been sent by `at`.
    fn from(&self, at: i64) -> i64 {
        let until = self.sent.partition_point(|(from, _)| *from <= at.saturating_add(self.slack));
        self.sent[..until].last().map_or(0, |(_, sum)| *sum)
    }

    /// The sum of the returns that were certainly applied before `at`.
    fn by(&self, at: i64) -> i64 {
        let until = self.there.partition_point(|(by, _)| *by < at.saturating_sub(self.slack));
        self.there[..until].last().map_or(0, |(_, sum)| *sum)
    }

    /// The time by which `amount` brings starts forward, in microseconds, rounded up.
    fn forward(&self, epoch: usize, amount: i64) -> i64 {
        let rate = i128::from(self.rates.get(epoch).copied().unwrap_or(0)).max(1);
        let micros = (i128::from(amount) * 1_000_000_000_000 + rate - 1) / rate;
        i64::try_from(micros).unwrap_or(i64::MAX)
    }
}

/// Keeps only those that no abandoned start explains: a caller of the same process may have left a start,
/// which the next caller of the process takes over.
fn unexplained(passed: &mut Vec<Passed<'_>>, log: &BucketLog, errors: Errors) {
    let left = by_process(log);
    let mut taken: HashMap<u32, usize> = HashMap::new();
    passed.sort_by_key(|(later, _)| later.granted_at);
    let mut named = HashMap::new();
    passed.retain(|(later, first)| {
        let until = later.granted_at.saturating_add(2 * errors.stamp);
        let left = left.get(&later.process).map_or(&[][..], Vec::as_slice);
        let left = &left[..left.partition_point(|left| left.at <= until)];
        let taken = taken.entry(later.process).or_default();
        if left.iter().any(|left| left.starts == Starts::Any) {
            return false;
        }
        if *taken < left.len() {
            *taken += 1;
            return false;
        }
        // A grant that was passed by many is named once.
        named.insert(&first.id, ()).is_none()
    });
}

/// The starts that each process left, in the order of time.
fn by_process(log: &BucketLog) -> HashMap<u32, Vec<Left>> {
    let of_grant = |grant: &Entry| {
        let Entry { process, booked, unused, several, .. } = *grant;
        match (booked, several, unused) {
            // The caller may have given a part back and booked it again, to start together with the other
            // parts.
            (true, true, _) => Some(Left { process, at: grant.asked_at, starts: Starts::Any }),
            (true, false, true) => Some(Left { process, at: grant.released_at, starts: Starts::One }),
            _ => None,
        }
    };
    let mut by_process: HashMap<u32, Vec<Left>> = HashMap::new();
    for left in log.left.iter().copied().chain(log.grants.iter().filter_map(of_grant)) {
        by_process.entry(left.process).or_default().push(left);
    }
    by_process.values_mut().for_each(|left| left.sort_by_key(|left| left.at));
    by_process
}

/// The times between changes of the limit: a change may bring starts forward.
struct Epochs {
    /// The interval in which each change was under way.
    changes: Vec<(i64, i64)>,
}

impl Epochs {
    fn new(log: &BucketLog, errors: Errors) -> Self {
        let slack = errors.both();
        let under_way = |limit: &crate::log::LimitEntry| {
            (limit.from.saturating_sub(slack), limit.by.saturating_add(slack))
        };
        Self { changes: changes(&log.limits).iter().skip(1).map(under_way).collect() }
    }

    /// The epoch in which `grant` was asked for and answered; `None` if a change was under way meanwhile.
    fn of(&self, grant: &Entry) -> Option<usize> {
        let ended = self.changes.partition_point(|(_, by)| *by < grant.asked_at);
        let begun = self.changes.partition_point(|(from, _)| *from <= grant.granted_at);
        (begun <= ended).then_some(ended)
    }
}

fn violation(dimension: &str, first: &Entry, later: &Entry) -> Violation {
    Violation::Overtaken {
        dimension: dimension.to_owned(),
        first_id: first.id.to_string(),
        first_granted_at_micros: first.granted_at,
        first_start_at_micros: first.start_at,
        later_id: later.id.to_string(),
        later_asked_at_micros: later.asked_at,
        later_start_at_micros: later.start_at,
    }
}
