//! Rate buckets: no window grants more than it may.
//!
//! Let F(t) be what has flowed in until t, and e the error of clocks. A window from a to b allows
//! `F(b + e) - F(a - e)` plus the largest capacity in between. It is enough to check windows that begin at
//! the earliest possible start of some grant and end at the start of a grant inside the window. They are
//! checked in the order of their ends.

use crate::edges::Edges;
use crate::log::{Entry, Errors};
use crate::timeline::{Timeline, UNITS};
use crate::verdict::Window;

/// Returns the window that comes nearest to what is allowed, and the worst of each run of windows that exceed
/// it.
pub(crate) fn check(grants: &[Entry], timeline: &Timeline, errors: Errors) -> (Option<Window>, Vec<Window>) {
    let used = || (0..grants.len()).filter(|n| !grants[*n].unused);
    let (mut by_start, mut by_left): (Vec<usize>, Vec<usize>) = (used().collect(), used().collect());
    // Both are nearly sorted, which makes the standard library's sort fast.
    by_start.sort_by_key(|n| grants[*n].start_at);
    by_left.sort_by_key(|n| (grants[*n].judged_from, grants[*n].start_at));
    let mut position = vec![0; grants.len()];
    by_left.iter().enumerate().for_each(|(at, n)| position[*n] = at);
    let lefts: Vec<i64> = by_left.iter().map(|n| grants[*n].judged_from).collect();
    let mut edges = Edges::new(&lefts, timeline, errors.clock);
    let mut busiest: Option<(i128, Window)> = None;
    let mut offending: Option<(i128, Window)> = None;
    let mut exceeded = Vec::new();
    for n in by_start {
        let last = &grants[n];
        edges.advance(last.start_at);
        edges.credit(position[n], i128::from(last.used) * UNITS);
        let flowed = timeline.flowed(last.start_at.saturating_add(errors.clock));
        let worst = edges.worst_until(position[n]);
        let excess = worst.worth - flowed;
        let window = || {
            let not_in_it = timeline.flowed(worst.from.saturating_sub(errors.clock)) - worst.capacity;
            Window {
                from_micros: worst.from,
                to_micros: last.start_at,
                granted: (worst.worth - not_in_it).div_euclid(UNITS),
                allowed: (flowed - not_in_it).div_euclid(UNITS),
                first_id: grants[by_left[worst.position]].id.to_string(),
                last_id: last.id.to_string(),
            }
        };
        if busiest.as_ref().is_none_or(|(most, _)| *most < excess) {
            busiest = Some((excess, window()));
        }
        if excess <= 0 {
            exceeded.extend(offending.take().map(|(_, window)| window));
        } else if offending.as_ref().is_none_or(|(most, _)| *most < excess) {
            offending = Some((excess, window()));
        }
    }
    exceeded.extend(offending.map(|(_, window)| window));
    (busiest.map(|(_, window)| window), exceeded)
}
