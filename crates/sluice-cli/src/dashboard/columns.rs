//! The last hour of a bucket in columns of ten seconds: as much as a chart on a page can show, and small enough to send.

use serde::Serialize;

use crate::view::Point;

/// Of a column, in seconds: an hour has 360.
pub(super) const STEP_SECS: f64 = 10.0;

/// Columns in a row, oldest first. Column `n` tells of the seconds from `10 n` to `10 n + 10` since the epoch, so that the columns of
/// one answer fit to those of the next.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Columns {
    /// Which column the first is.
    pub(super) first: i64,
    /// The mean of what readings showed; `None` where there was none.
    pub(super) level: Vec<Option<f64>>,
    /// The mean of what was taken a second.
    pub(super) used: Vec<Option<f64>>,
}

/// Which column an instant is in.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn column(at: f64) -> i64 {
    (at / STEP_SECS).floor() as i64
}

impl Columns {
    /// Of points, oldest first, from a column on. That column is told in full, so that one who knew a part of it learns the rest.
    pub(super) fn new<'a>(points: impl DoubleEndedIterator<Item = &'a Point>, from: i64) -> Self {
        let new: Vec<&Point> = points.rev().take_while(|point| column(point.at) >= from).collect();
        let mut columns = Self { first: new.last().map_or(from, |point| column(point.at)), ..Self::default() };
        let mut rest = new.iter().rev().peekable();
        while let Some(next) = rest.peek().map(|point| column(point.at)) {
            let (mut level, mut used) = (Mean::default(), Mean::default());
            while let Some(point) = rest.next_if(|point| column(point.at) <= next) {
                level.add(point.level);
                point.used_per_sec.into_iter().for_each(|value| used.add(f64::from(value)));
            }
            while columns.first.saturating_add_unsigned(count(columns.level.len())) < next {
                columns.level.push(None);
                columns.used.push(None);
            }
            columns.level.push(level.value());
            columns.used.push(used.value());
        }
        columns
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    /// To the thousandth: a chart shows less.
    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then(|| (self.sum / self.count * 1_000.0).round() / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(f64, f64)]) -> Vec<Point> {
        values.iter().map(|(at, level)| Point { at: *at, level: *level, used_per_sec: Some(1.0) }).collect()
    }

    #[test]
    fn a_column_is_the_mean_of_its_readings_and_a_pause_leaves_a_hole() {
        let points = points(&[(101.0, 4.0), (109.9, 5.0), (130.0, 7.0), (139.9, 9.0), (140.0, 1.0)]);
        let columns = Columns::new(points.iter(), 0);
        assert_eq!(columns.first, 10);
        assert_eq!(columns.level, [Some(4.5), None, None, Some(8.0), Some(1.0)]);
        assert_eq!(columns.used, [Some(1.0), None, None, Some(1.0), Some(1.0)]);
    }

    #[test]
    fn a_later_answer_tells_the_last_column_again_in_full() {
        let points = points(&[(101.0, 4.0), (111.0, 6.0), (119.0, 8.0), (121.0, 1.0)]);
        let before = Columns::new(points[..2].iter(), 0);
        assert_eq!((before.first, before.level), (10, vec![Some(4.0), Some(6.0)]));
        let after = Columns::new(points.iter(), 11);
        assert_eq!((after.first, after.level), (11, vec![Some(7.0), Some(1.0)]));
        assert_eq!(Columns::new(points.iter(), 13).level, []);
    }

    #[test]
    fn what_was_not_known_is_no_zero() {
        let points = [Point { at: 5.0, level: 1.0, used_per_sec: None }];
        assert_eq!(Columns::new(points.iter(), 0).used, [None]);
    }
}
