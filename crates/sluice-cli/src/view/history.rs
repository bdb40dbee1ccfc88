//! What pictures of the last hour showed of each bucket.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::bucket::BucketView;

/// How far back it reaches.
pub(super) const SPAN_SECS: f64 = 3_600.0;
/// Most points of a bucket: one a second.
const MOST_POINTS: usize = 3_600;
/// Most points of all buckets together, some 50 MB: with more than 555 buckets the series get shorter.
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
    /// Tokens, or slots, taken a second since the survey before; `None` where that is not known.
    pub(crate) used_per_sec: Option<f32>,
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
    pub(crate) fn used(&self, now: f64, secs: f64, columns: usize) -> Vec<Option<f64>> {
        self.columns(now, secs, columns, |point| point.used_per_sec.map(f64::from))
    }

    /// The same of the level.
    pub(crate) fn levels(&self, now: f64, secs: f64, columns: usize) -> Vec<Option<f64>> {
        self.columns(now, secs, columns, |point| Some(point.level))
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn columns(&self, now: f64, secs: f64, columns: usize, of: impl Fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
        let (width, begin) = (secs / columns as f64, now - secs);
        let mut parts = vec![(0.0, 0.0); columns];
        let column = |at: f64| ((at - begin) / width).max(0.0) as usize;
        for (n, point) in self.points.iter().enumerate().rev().take_while(|(_, point)| point.at > begin) {
            let before = n.checked_sub(1).and_then(|n| self.points.get(n));
            let from = before.map_or(point.at - width, |before| before.at).max(begin);
            let (Some(value), to) = (of(point), point.at.min(now)) else { continue };
            for (part, (sum, weight)) in parts.iter_mut().enumerate().take(column(to) + 1).skip(column(from)) {
                let (starts, ends) = (begin + width * part as f64, begin + width * (part + 1) as f64);
                let share = (to.min(ends) - from.max(starts)).max(0.0);
                *sum += value * share;
                *weight += share;
            }
        }
        parts.into_iter().map(|(sum, weight)| (weight > 0.0).then(|| sum / weight)).collect()
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
            let used_per_sec = bucket.used_per_sec.map(|used| used as f32);
            series.push(Point { at, level: bucket.level, used_per_sec }, most);
            self.0.insert(bucket.name.clone(), series);
        }
    }
}
