//! What pictures of the last hour showed of each bucket.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::bucket::BucketView;

/// How far back it reaches.
pub(super) const SPAN_SECS: f64 = 3_600.0;
/// Most points of a bucket: one a second.
const MOST_POINTS: usize = 3_600;
/// Most points of all buckets together, some 65 MB: with more than 555 buckets the series get shorter.
const MOST_POINTS_OF_ALL: usize = 2_000_000;
/// A series keeps so many points, however many buckets there are: a minute, as a screen shows it.
const FEWEST_POINTS: usize = 60;

/// A bucket at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Seconds since the epoch.
    pub(crate) at: f64,
    /// Tokens, or free slots.
    pub(crate) level: f64,
    /// What was taken since the survey before; `None` where that is not known.
    pub(crate) used: Option<Used>,
}

/// What a reading says of the time since the one before. Readings are no more than points where nobody looked for a while: one of
/// them may tell of ten minutes, and the next of a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Used {
    /// Tokens, or slots, taken a second, at the least.
    pub(crate) per_sec: f32,
    /// And at the most: more than `per_sec` where the bucket was full meanwhile.
    pub(crate) most_per_sec: f32,
    /// The time that it tells of.
    pub(crate) secs: f32,
}

/// What was taken in a span of time: the whole of it, by the whole of the time that readings tell of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Total {
    /// A second, at the least.
    pub(crate) per_sec: f64,
    /// And at the most.
    pub(crate) most_per_sec: f64,
    /// Whether it may be more than `per_sec`: a part of it is a least.
    pub(crate) is_least: bool,
    /// How much of the span readings tell of.
    pub(crate) secs: f64,
}

/// A reading of a level tells of so many seconds before it, at most: what a level was while nobody looked is not known. A large table
/// is read so seldom.
const LEVEL_SECS: f64 = 60.0;

impl Point {
    /// From when to when its use is of.
    pub(crate) fn used_over(&self) -> Option<(Used, f64, f64)> {
        self.used.map(|used| (used, self.at - f64::from(used.secs), self.at))
    }
}

impl Total {
    /// Of parts: use, and how many seconds of it.
    fn of(parts: impl Iterator<Item = (Used, f64)>) -> Option<Self> {
        let (mut sum, mut most, mut total) = (0.0, 0.0, Self::default());
        for (used, secs) in parts.filter(|(_, secs)| *secs > 0.0) {
            sum += f64::from(used.per_sec) * secs;
            most += f64::from(used.most_per_sec) * secs;
            total.is_least |= used.most_per_sec > used.per_sec;
            total.secs += secs;
        }
        let Self { is_least, secs, .. } = total;
        (secs > 0.0).then(|| Self { per_sec: sum / secs, most_per_sec: most / secs, is_least, secs })
    }
}

/// The points of one bucket, oldest first. Surveys that failed leave a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Series {
    points: VecDeque<Point>,
}

impl Series {
    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.points.iter()
    }

    /// What was taken a second, in `columns` equal parts of the last `secs` seconds up to `now`, oldest first; `None` where nothing
    /// is known of any of the part. What was taken between two surveys is spread over the time between them.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn used(&self, now: f64, secs: f64, columns: usize) -> Vec<Option<f64>> {
        let (width, begin) = (secs / columns as f64, now - secs);
        let mut parts = vec![(0.0, 0.0); columns];
        let column = |at: f64| ((at - begin) / width).max(0.0) as usize;
        for point in self.points.iter().rev().take_while(|point| point.at > begin) {
            let Some((used, from, to)) = point.used_over() else { continue };
            let (value, from, to) = (f64::from(used.per_sec), from.max(begin), to.min(now));
            for (part, (sum, weight)) in parts.iter_mut().enumerate().take(column(to) + 1).skip(column(from)) {
                let (starts, ends) = (begin + width * part as f64, begin + width * (part + 1) as f64);
                let share = (to.min(ends) - from.max(starts)).max(0.0);
                *sum += value * share;
                *weight += share;
            }
        }
        parts.into_iter().map(|(sum, weight)| (weight > 0.0).then(|| sum / weight)).collect()
    }

    /// What was taken in the last `secs` seconds up to `now`; `None` where no reading tells of any of it. A reading that tells of more
    /// than the span counts by its rate.
    pub(crate) fn total(&self, now: f64, secs: f64) -> Option<Total> {
        let begin = now - secs;
        let within = self.points.iter().rev().take_while(|point| point.at > begin);
        Total::of(within.filter_map(Point::used_over).map(|(used, from, to)| (used, to.min(now) - from.max(begin))))
    }

    /// The mean of the level in the last `secs` seconds up to `now`, and how much of that time readings tell of.
    pub(crate) fn level(&self, now: f64, secs: f64) -> Option<(f64, f64)> {
        let begin = now - secs;
        let (mut sum, mut weight) = (0.0, 0.0);
        for (n, point) in self.points.iter().enumerate().rev().take_while(|(_, point)| point.at > begin) {
            let before = n.checked_sub(1).and_then(|n| self.points.get(n)).map_or(begin, |before| before.at);
            let share = point.at.min(now) - before.max(point.at - LEVEL_SECS).max(begin);
            sum += point.level * share.max(0.0);
            weight += share.max(0.0);
        }
        (weight > 0.0).then(|| (sum / weight, weight))
    }

    fn push(&mut self, point: Point, most: usize) {
        self.points.push_back(point);
        while self.points.len() > most || self.points.front().is_some_and(|first| first.at < point.at - SPAN_SECS) {
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

    /// Takes in a picture, and forgets the buckets that are not in it.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn take_in(&mut self, at: f64, buckets: &[BucketView]) {
        let most = (MOST_POINTS_OF_ALL / buckets.len().max(1)).clamp(FEWEST_POINTS, MOST_POINTS);
        let mut before = std::mem::take(&mut self.0);
        for bucket in buckets {
            let mut series = before.remove(&bucket.name).unwrap_or_default();
            let used = bucket.used_per_sec.zip(bucket.most_per_sec).map(|(used, most)| Used {
                per_sec: used as f32,
                most_per_sec: most as f32,
                secs: bucket.since_before_secs as f32,
            });
            series.push(Point { at, level: bucket.level, used }, most);
            self.0.insert(bucket.name.clone(), series);
        }
    }
}
