//! The last hour of a bucket in columns of ten seconds: enough for a chart, and small enough to send.

use serde::Serialize;

use crate::view::Point;

/// The length of a column in seconds: an hour has 360 columns.
pub(super) const STEP_SECS: f64 = 10.0;
/// The columns of an hour.
const MOST: i64 = 360;

/// Successive columns, oldest first. Column `n` covers the seconds from `10 n` to `10 n + 10` since the
/// epoch, so the columns of one answer fit those of the next.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Columns {
    /// The number of the first column.
    pub(super) first: i64,
    /// The mean of the readings; `None` if there was no reading.
    pub(super) level: Vec<Option<f64>>,
    /// What was taken per second, in the part of the column that readings cover. A reading after a gap covers
    /// every column of the gap.
    pub(super) used: Vec<Option<f64>>,
    /// Whether the real use may be higher.
    pub(super) is_least: Vec<bool>,
}

/// The number of the column that contains an instant.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn column(at: f64) -> i64 {
    (at / STEP_SECS).floor() as i64
}

impl Columns {
    /// The columns of `points`, oldest first, from column `from` on, which is returned in full: a later
    /// reading also covers the time since the one before it.
    pub(super) fn new<'a>(points: impl DoubleEndedIterator<Item = &'a Point>, from: i64) -> Self {
        let new: Vec<&Point> = points.rev().take_while(|point| column(point.at) >= from).collect();
        let Some(last) = new.first().map(|point| column(point.at)) else {
            return Self { first: from, ..Self::default() };
        };
        let oldest = from.max(last - MOST);
        let begins =
            |point: &&Point| column(point.used_over().map_or(point.at, |(_, begins, _)| begins)).max(oldest);
        let first = new.iter().map(begins).min().unwrap_or(last);
        let mut cells = Vec::new();
        cells.resize_with(index(first, last) + 1, Cell::default);
        for point in new.iter().rev() {
            if let Some(cell) = usize::try_from(column(point.at) - first).ok().and_then(|n| cells.get_mut(n))
            {
                cell.level.add(point.level, 1.0);
            }
            let Some((used, begins, ends)) = point.used_over() else { continue };
            for n in column(begins).max(first)..=column(ends) {
                let share = ends.min(start(n + 1)) - begins.max(start(n));
                if let Some(cell) = cells.get_mut(index(first, n)).filter(|_| share > 0.0) {
                    cell.used.add(f64::from(used.per_sec), share);
                    cell.is_least |= used.most_per_sec > used.per_sec;
                }
            }
        }
        let level = cells.iter().map(|cell| cell.level.value()).collect();
        let used = cells.iter().map(|cell| cell.used.value()).collect();
        Self { first, level, used, is_least: cells.iter().map(|cell| cell.is_least).collect() }
    }
}

#[allow(clippy::cast_precision_loss)]
fn start(column: i64) -> f64 {
    column as f64 * STEP_SECS
}

/// The index of a column, if `first` has index 0.
fn index(first: i64, column: i64) -> usize {
    usize::try_from(column - first).unwrap_or_default()
}

#[derive(Default)]
struct Cell {
    level: Mean,
    used: Mean,
    is_least: bool,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// Rounded to the thousandth; a chart shows less.
    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (self.sum / self.weight * 1_000.0).round() / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::PointUse;

    fn point(at: f64, level: f64, per_sec: f32, secs: f32) -> Point {
        Point { at, level, seen_secs: secs, used: Some(PointUse { per_sec, most_per_sec: per_sec, secs }) }
    }

    /// Points that each cover a second.
    fn points(values: &[(f64, f64)]) -> Vec<Point> {
        values.iter().map(|(at, level)| point(*at, *level, 1.0, 1.0)).collect()
    }

    #[test]
    fn a_column_is_the_mean_of_its_readings_and_a_pause_leaves_a_hole() {
        let points = points(&[(101.0, 4.0), (109.9, 5.0), (131.0, 7.0), (139.9, 9.0), (142.0, 1.0)]);
        let columns = Columns::new(points.iter(), 0);
        assert_eq!(columns.first, 10);
        assert_eq!(columns.level, [Some(4.5), None, None, Some(8.0), Some(1.0)]);
        assert_eq!(columns.used, [Some(1.0), None, None, Some(1.0), Some(1.0)]);
    }

    /// Nine seconds at 2, and one second at 22.
    #[test]
    fn a_reading_weighs_as_much_as_the_time_that_it_tells_of() {
        let points = [point(109.0, 1.0, 2.0, 9.0), point(110.0, 1.0, 22.0, 1.0)];
        assert_eq!(Columns::new(points.iter(), 0).used, [Some(4.0), None]);
    }

    #[test]
    fn a_reading_over_a_hole_is_that_use_over_all_of_its_columns() {
        let mut over = point(641.0, 10.0, 0.817, 600.0);
        over.used.as_mut().unwrap().most_per_sec = 9.0;
        let points = [point(41.0, 500.0, 0.0, 1.0), over, point(642.0, 20.0, 0.0, 1.0)];
        let columns = Columns::new(points.iter(), 0);
        assert_eq!((columns.first, columns.used.len()), (4, 61));
        assert_eq!(columns.used[0], Some(0.735), "a second of nothing, and nine of the hole");
        assert!(columns.used[1..60].iter().all(|used| *used == Some(0.817)), "{:?}", columns.used);
        assert!(columns.is_least.iter().all(|is_least| *is_least));
        assert_eq!(columns.level[1..60], [None; 59], "what the level was then is not known");
        // A page that knew the first column asks from there on, and gets the same columns.
        assert_eq!(Columns::new(points.iter(), 4), columns);
    }

    #[test]
    fn no_hole_is_longer_than_an_hour() {
        let columns = Columns::new([point(90_000.0, 1.0, 1.0, 80_000.0)].iter(), 0);
        assert_eq!((columns.first, columns.used.len()), (9_000 - MOST, 361));
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
        let points = [Point { at: 5.0, level: 1.0, seen_secs: 0.0, used: None }];
        assert_eq!(Columns::new(points.iter(), 0).used, [None]);
    }
}
