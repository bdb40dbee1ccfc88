//! The beginnings of windows. Only beginnings that may still become the worst are kept.

use std::collections::BTreeMap;

use crate::timeline::Timeline;

/// The beginnings, in the order of time.
///
/// Let F(t) be what has flowed in until t, e the error of clocks, f(a) what was granted since a, and C(a) the
/// largest capacity since a. A beginning at a is worth `f(a) + F(a - e) - C(a)`. A grant adds its cost to
/// every beginning at or before its own. A rise of the capacity lowers the worth of all beginnings, and that
/// of later ones more. So a beginning that is worth no more than an earlier one will never be worth more, and
/// is dropped. The worth of the remaining beginnings rises from each to the next. It is stored as the steps
/// in between: a grant then shortens the steps that follow its beginning, or removes them.
pub(crate) struct Edges<'a> {
    lefts: &'a [i64],
    timeline: &'a Timeline,
    error: i64,
    /// By position in `lefts`: how much more this beginning is worth than the one before.
    steps: BTreeMap<usize, i128>,
    /// The same steps, as a tree of partial sums.
    sums: Vec<i128>,
    /// The worth of the last beginning, which is the largest.
    most: i128,
    /// The position from which each capacity is the largest until now; the capacities fall.
    capacities: Vec<(usize, i128)>,
    begun: usize,
    stretches_begun: usize,
}

/// A beginning, in 10^-18 tokens.
pub(crate) struct Edge {
    pub(crate) position: usize,
    pub(crate) from: i64,
    pub(crate) worth: i128,
    /// The largest capacity since then.
    pub(crate) capacity: i128,
}

impl<'a> Edges<'a> {
    pub(crate) fn new(lefts: &'a [i64], timeline: &'a Timeline, error: i64) -> Self {
        let (steps, sums, capacities) = (BTreeMap::new(), vec![0; lefts.len() + 1], Vec::new());
        Self { lefts, timeline, error, steps, sums, most: 0, capacities, begun: 0, stretches_begun: 0 }
    }

    /// Takes in the beginnings and the stretches of the limit until `now`, in their order.
    pub(crate) fn advance(&mut self, now: i64) {
        loop {
            let left = self.lefts.get(self.begun).copied().filter(|left| *left <= now);
            let stretch = self.timeline.stretches().get(self.stretches_begun);
            // The first stretch holds for all time before it.
            let from = stretch.map(|stretch| if self.stretches_begun == 0 { i64::MIN } else { stretch.from });
            match (left, stretch.filter(|_| from.is_some_and(|from| from <= now))) {
                (left, Some(stretch)) if left.is_none_or(|left| from.is_some_and(|from| from <= left)) => {
                    self.stretches_begun += 1;
                    self.enter(stretch.capacity);
                }
                (Some(left), _) => {
                    self.begin_at(left);
                    self.begun += 1;
                }
                (None, _) => break,
            }
        }
    }

    /// Adds `cost` to the worth of all beginnings up to `position`.
    pub(crate) fn credit(&mut self, position: usize, cost: i128) {
        let mut left = cost;
        while let Some((next, step)) =
            self.steps.range(position + 1..).next().map(|(next, step)| (*next, *step))
        {
            if step > left {
                self.set(next, step - left);
                return;
            }
            left -= step;
            self.set(next, 0);
        }
        self.most += left;
    }

    /// The beginning that is worth the most, of those up to `position`.
    pub(crate) fn worst_until(&self, position: usize) -> Edge {
        let last = self.steps.last_key_value().map_or(0, |(last, _)| *last);
        let (position, worth) = if last <= position {
            (last, self.most)
        } else {
            let known = self.steps.range(..=position).next_back().map_or(0, |(known, _)| *known);
            (known, self.most - (self.sum(self.lefts.len()) - self.sum(position + 1)))
        };
        let of = self.capacities.partition_point(|(first, _)| *first <= position).saturating_sub(1);
        let capacity = self.capacities.get(of).map_or(0, |(_, capacity)| *capacity);
        Edge { position, from: self.lefts[position], worth, capacity }
    }

    fn begin_at(&mut self, left: i64) {
        let capacity = self.capacities.last().map_or(0, |(_, capacity)| *capacity);
        let worth = self.timeline.flowed(left.saturating_sub(self.error)) - capacity;
        if self.steps.is_empty() {
            self.steps.insert(self.begun, 0);
            self.most = worth;
        } else if worth > self.most {
            self.set(self.begun, worth - self.most);
            self.most = worth;
        }
    }

    /// Sets the capacity from now on.
    fn enter(&mut self, capacity: i128) {
        let kept = self.capacities.partition_point(|(_, larger)| *larger >= capacity);
        let passed = self.capacities.split_off(kept);
        let first = passed.first().map_or(self.begun, |(first, _)| *first);
        let mut known = capacity;
        for (from, smaller) in passed {
            self.lower(from, known - smaller);
            known = smaller;
        }
        if self.capacities.last().is_none_or(|(_, last)| *last > capacity) {
            self.capacities.push((first, capacity));
        }
    }

    /// Subtracts `by` from the worth of all beginnings from `position` on.
    fn lower(&mut self, position: usize, by: i128) {
        self.most -= by;
        if position > 0 {
            self.credit(position - 1, by);
        }
    }

    /// Sets the height of the step at `position`; removes the step at zero.
    fn set(&mut self, position: usize, step: i128) {
        let before = if step == 0 { self.steps.remove(&position) } else { self.steps.insert(position, step) };
        let more = step - before.unwrap_or(0);
        let mut at = position + 1;
        while at < self.sums.len() {
            self.sums[at] += more;
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the first `count` steps.
    fn sum(&self, count: usize) -> i128 {
        let (mut at, mut sum) = (count, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
}
