//! Buckets with shares, line by line: each line grants what a bucket of its part would, and in that order.
//!
//! A line is judged if the history says of each grant of the bucket which line paid it (`paid_from`).
//! Otherwise only the whole bucket is.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Kind, Limit};
use crate::log::{BucketLog, Entry, Errors, LimitEntry, LineLimit, SplitEntry};
use crate::timeline::Timeline;
use crate::verdict::Violation;
use crate::{busiest, live, order};

/// The line of callers that name no share.
pub(crate) const COMMON: &str = "common";

/// The lines of a limit. The error names the field that makes no sense.
pub(crate) fn split(limit: &Limit) -> Result<SplitEntry, (&'static str, i64)> {
    let mut rest =
        LineLimit { capacity: limit.capacity_micros, rate: limit.refill_pico_per_sec, floor: None };
    let mut lines = BTreeMap::new();
    for share in &limit.shares {
        let (capacity, rate) = (share.capacity_micros, share.refill_pico_per_sec);
        let line = LineLimit { capacity, rate, floor: share.floor_micros };
        if line.capacity <= 0 || lines.insert(Arc::from(share.name.as_str()), line).is_some() {
            return Err(("shares.capacity_micros", line.capacity));
        }
        (rest.capacity, rest.rate) =
            (rest.capacity.saturating_sub(line.capacity), rest.rate.saturating_sub(line.rate));
    }
    let is_too_much = !limit.shares.is_empty() && (rest.capacity < 0 || rest.rate < 0);
    if lines.insert(Arc::from(COMMON), rest).is_some() || is_too_much {
        return Err(("shares.capacity_micros", rest.capacity));
    }
    Ok(SplitEntry { from: limit.from_micros, by: limit.by_micros.unwrap_or(limit.from_micros), lines })
}

/// Judges each time between two changes of the shares, or of the limit, by itself: a change moves tokens, and
/// starts that are booked, from one line to another. What was asked for before a change and answered after it
/// is judged with the whole bucket alone.
pub(crate) fn check(dimension: &str, log: &BucketLog, errors: Errors) -> Vec<Violation> {
    if log.grants.iter().any(|grant| grant.paid_from.is_none()) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (split, since, until) in times_between_changes(&log.splits, errors) {
        let is_within = |grant: &&Entry| since <= grant.asked_at && grant.granted_at <= until;
        let log = BucketLog {
            limits: log.limits.clone(),
            splits: vec![split],
            grants: log.grants.iter().filter(is_within).cloned().collect(),
            left: log.left.clone(),
            returns: log.returns.clone(),
            ..BucketLog::default()
        };
        for name in log.line_names() {
            let line = log.line(&name);
            let timeline = Timeline::new(&line.limits, &line.grants, errors);
            let (_, exceeded) = busiest::check(&line.grants, &timeline, errors);
            let exceeds = |window| Violation::LineExceeded {
                dimension: dimension.to_owned(),
                share: name.to_string(),
                window,
            };
            violations.extend(exceeded.into_iter().map(exceeds));
            violations.extend(order::check(&format!("{dimension}, line of {name}"), &line, errors));
        }
    }
    violations
}

/// The lines of each time between two changes, from when on they are in force for sure, and until when.
pub(crate) fn times_between_changes(splits: &[SplitEntry], errors: Errors) -> Vec<(SplitEntry, i64, i64)> {
    let mut splits = splits.to_vec();
    splits.sort_by_key(|split| (split.from, split.by));
    splits.dedup_by(|later, earlier| later.lines == earlier.lines);
    let mut times: Vec<(SplitEntry, i64, i64)> = Vec::with_capacity(splits.len());
    // Changes may have been under way at the same time.
    let mut by = i64::MIN;
    for split in splits {
        by = by.max(split.by);
        let mut since = i64::MIN;
        if let Some((_, _, until)) = times.last_mut() {
            *until = split.from.saturating_sub(errors.both());
            since = by.saturating_add(errors.both());
        }
        times.push((split, since, i64::MAX));
    }
    times
}

/// The same of slots: no line has more in use than it has.
pub(crate) fn check_slots(dimension: &str, log: &BucketLog, errors: Errors) -> Vec<Violation> {
    if log.grants.iter().any(|grant| grant.paid_from.is_none()) {
        return Vec::new();
    }
    let of_line = |name: Arc<str>| {
        let line = log.line(&name);
        let (_, exceeded) =
            live::check(&line.grants, &Timeline::new(&line.limits, &line.grants, errors), errors);
        let exceeds = move |window| Violation::LineHeld {
            dimension: dimension.to_owned(),
            share: name.to_string(),
            window,
        };
        exceeded.into_iter().map(exceeds)
    };
    log.line_names().into_iter().flat_map(of_line).collect()
}

impl BucketLog {
    pub(crate) fn has_shares(&self) -> bool {
        self.splits.iter().any(|split| split.lines.len() > 1)
    }

    /// The lines that the bucket had at some time.
    pub(crate) fn line_names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> =
            self.splits.iter().flat_map(|split| split.lines.keys().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// One line as a bucket of its own. While there is no such share, the line allows nothing. Starts that
    /// callers left, and tokens that went back, may be of any line.
    fn line(&self, name: &Arc<str>) -> Self {
        let of_split = |split: &SplitEntry| {
            let (capacity, rate) = split.lines.get(name).map_or((0, 0), |line| (line.capacity, line.rate));
            LimitEntry {
                kind: self.kind().unwrap_or(Kind::Requests),
                capacity,
                rate,
                from: split.from,
                by: split.by,
            }
        };
        let of_line = |grant: &&Entry| grant.paid_from.as_ref() == Some(name);
        Self {
            limits: self.splits.iter().map(of_split).collect(),
            grants: self.grants.iter().filter(of_line).cloned().collect(),
            left: self.left.clone(),
            returns: self.returns.clone(),
            ..Self::default()
        }
    }
}
