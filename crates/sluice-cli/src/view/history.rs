//! The last hour of each bucket, as the pictures showed it.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::bucket::BucketView;

/// How far back the history goes.
const SPAN_SECS: f64 = 3_600.0;
/// The most points of a bucket: one a second.
const MOST_POINTS: usize = 3_600;
/// The most points of all buckets together, about 65 MB. With more than 555 buckets the series get shorter.
const MOST_POINTS_OF_ALL: usize = 2_000_000;
/// The fewest points that a series keeps, however many buckets there are: a minute, as a screen shows it.
const FEWEST_POINTS: usize = 60;

/// A bucket at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Seconds since the epoch.
    pub(crate) at: f64,
    /// Tokens, or free slots.
    pub(crate) level: f64,
    /// For how many seconds up to this instant the level counts: since the previous reading. Zero after a
    /// time in which nobody looked, and of the first reading.
    pub(crate) seen_secs: f32,
    /// What was taken since the previous survey; `None` if that is not known.
    pub(crate) used: Option<PointUse>,
}

/// The use between the previous reading and this one. While nobody looked, readings are rare: one of them may
/// cover ten minutes, and the next a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PointUse {
    /// Tokens or slots taken per second, at least.
    pub(crate) per_sec: f32,
    /// At most: more than `per_sec` if the bucket was full in between.
    pub(crate) most_per_sec: f32,
    /// The time that the reading covers.
    pub(crate) secs: f32,
}

/// The use in a span of time: everything taken, divided by all the time that readings cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Total {
    /// Per second, at least.
    pub(crate) per_sec: f64,
    /// Per second, at most.
    pub(crate) most_per_sec: f64,
    /// Whether the use may be more than `per_sec`, because a part of it is a lower bound.
    pub(crate) is_least: bool,
    /// How much of the span the readings cover.
    pub(crate) secs: f64,
    /// Since when, in seconds since the epoch: the first of the readings may cover more than the span.
    pub(crate) since: f64,
}

/// After more intervals between readings than this, nobody looked: the level meanwhile is not known. A
/// reading may be late.
const INTERVALS: f64 = 3.0;

impl Point {
    /// The use, and the time from when to when it occurred.
    pub(crate) fn used_over(&self) -> Option<(PointUse, f64, f64)> {
        self.used.map(|used| (used, self.at - f64::from(used.secs), self.at))
    }
}

impl Total {
    /// The total of parts, each a use, since when it was counted, and its seconds in the span.
    fn of(parts: impl Iterator<Item = (PointUse, f64, f64)>) -> Option<Self> {
        let (mut sum, mut most) = (0.0, 0.0);
        let mut total = Self { since: f64::INFINITY, ..Self::default() };
        for (used, since, secs) in parts.filter(|(_, _, secs)| *secs > 0.0) {
            total.since = total.since.min(since);
            sum += f64::from(used.per_sec) * secs;
            most += f64::from(used.most_per_sec) * secs;
            total.is_least |= used.most_per_sec > used.per_sec;
            total.secs += secs;
        }
        let secs = total.secs;
        (secs > 0.0).then(|| Self { per_sec: sum / secs, most_per_sec: most / secs, ..total })
    }
}

/// The points of one bucket, oldest first. A failed survey leaves a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Series {
    points: VecDeque<Point>,
}

impl Series {
    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.points.iter()
    }

    /// The use per second in each of `columns` equal parts of the last `secs` seconds up to `now`, oldest
    /// first; `None` if nothing is known about any of the part. What was taken between two surveys is spread
    /// over the time between them.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn used(&self, now: f64, secs: f64, columns: usize) -> Vec<Option<f64>> {
        let (width, begin) = (secs / columns as f64, now - secs);
        let mut parts = vec![(0.0, 0.0); columns];
        let column = |at: f64| ((at - begin) / width).max(0.0) as usize;
        for point in self.points.iter().rev().take_while(|point| point.at > begin) {
            let Some((used, from, to)) = point.used_over() else { continue };
            let (value, from, to) = (f64::from(used.per_sec), from.max(begin), to.min(now));
            for (part, (sum, weight)) in parts.iter_mut().enumerate().take(column(to) + 1).skip(column(from))
            {
                let (starts, ends) = (begin + width * part as f64, begin + width * (part + 1) as f64);
                let share = (to.min(ends) - from.max(starts)).max(0.0);
                *sum += value * share;
                *weight += share;
            }
        }
        parts.into_iter().map(|(sum, weight)| (weight > 0.0).then(|| sum / weight)).collect()
    }

    /// The use in the last `secs` seconds up to `now`; `None` if no reading covers any of it. A reading that
    /// covers more than the span counts with its rate.
    pub(crate) fn total(&self, now: f64, secs: f64) -> Option<Total> {
        let begin = now - secs;
        let within = self.points.iter().rev().take_while(|point| point.at > begin);
        Total::of(
            within
                .filter_map(Point::used_over)
                .map(|(used, from, to)| (used, from, to.min(now) - from.max(begin))),
        )
    }

    /// The mean level in the last `secs` seconds up to `now`, and how much of that time the readings cover.
    /// The first reading covers none: the level before it is not known. Nor does one after a time in which
    /// nobody looked.
    pub(crate) fn level(&self, now: f64, secs: f64) -> Option<(f64, f64)> {
        let begin = now - secs;
        let (mut sum, mut weight) = (0.0, 0.0);
        for point in self.points.iter().rev().take_while(|point| point.at > begin) {
            let share = point.at.min(now) - (point.at - f64::from(point.seen_secs)).max(begin);
            sum += point.level * share.max(0.0);
            weight += share.max(0.0);
        }
        (weight > 0.0).then(|| (sum / weight, weight))
    }

    /// The last time within the last `secs` seconds in which nobody looked: from when to when.
    pub(crate) fn unseen(&self, now: f64, secs: f64) -> Option<(f64, f64)> {
        let begin = now - secs;
        let pairs = self.points.iter().zip(self.points.iter().skip(1)).rev();
        let mut within = pairs.take_while(|(_, point)| point.at > begin);
        within.find(|(_, point)| point.seen_secs <= 0.0).map(|(before, point)| (before.at, point.at))
    }

    /// Adds a reading, after which the next is due in `every_secs`.
    #[allow(clippy::cast_possible_truncation)]
    fn push(&mut self, mut point: Point, every_secs: f64, most: usize) {
        let passed = self.points.back().map(|before| point.at - before.at);
        point.seen_secs = passed.filter(|secs| *secs <= every_secs * INTERVALS).unwrap_or(0.0) as f32;
        self.points.push_back(point);
        while self.points.len() > most
            || self.points.front().is_some_and(|first| first.at < point.at - SPAN_SECS)
        {
            self.points.pop_front();
        }
    }
}

/// The series of every bucket.
#[derive(Debug, Default)]
pub(super) struct History(BTreeMap<String, Series>);

impl History {
    pub(super) fn of(&self, bucket: &str) -> Option<&Series> {
        self.0.get(bucket)
    }

    /// Adds a picture, and forgets the buckets that are not in it.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn take_in(&mut self, at: f64, every_secs: f64, buckets: &[BucketView]) {
        let most = (MOST_POINTS_OF_ALL / buckets.len().max(1)).clamp(FEWEST_POINTS, MOST_POINTS);
        let mut before = std::mem::take(&mut self.0);
        for bucket in buckets {
            let mut series = before.remove(&bucket.name).unwrap_or_default();
            let used = bucket.used_per_sec.zip(bucket.most_per_sec).map(|(used, most)| PointUse {
                per_sec: used as f32,
                most_per_sec: most as f32,
                secs: bucket.since_before_secs as f32,
            });
            series.push(Point { at, level: bucket.level, seen_secs: 0.0, used }, every_secs, most);
            self.0.insert(bucket.name.clone(), series);
        }
    }
}
