//! What the machine could not do, by the probes of all processes: a promise that was missed because nobody
//! got the processor in time is not Sluice's.
//!
//! One rule: a time that Sluice has to keep counts without the spans in which a process that had to act was
//! due to run and did not. What is still too long is Sluice's.

use std::time::Duration;

use serde::Serialize;

use super::probe::{Late, Lateness};
use crate::lab::figures::{ratio, rounded};

/// A clock that moves by less is kept in step with others, not set.
const CLOCK_SET: Duration = Duration::from_millis(5);

/// A process that stands still for this long may lose what it holds, or break off a request.
const STALL: Duration = Duration::from_secs(1);

/// What the probes saw.
#[derive(Debug)]
pub(crate) struct Machine {
    /// For each caller process: when it, or the process of the vendors and of the table, was kept from
    /// running.
    processes: Vec<Spans>,
    /// When any process was.
    any: Spans,
    worst: Duration,
    clock_moved: Duration,
}

/// What `--json` prints about the machine.
#[derive(Debug, Serialize)]
pub(crate) struct MachineFigures {
    /// The share of the time in which a caller process, the vendors or the table were due to run and did not.
    late_share: f64,
    /// The longest such time.
    latest_wake_up_ms: f64,
    clock_moved_ms: f64,
}

/// Spans of time in order, without overlaps, in microseconds of Unix time.
#[derive(Clone, Debug, Default)]
struct Spans(Vec<(i64, i64)>);

impl Spans {
    fn of<'a>(late: impl Iterator<Item = &'a Late>) -> Self {
        let mut late: Vec<_> = late.copied().collect();
        late.sort_unstable_by_key(|late| late.due);
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for Late { due, came } in late {
            match spans.last_mut() {
                Some((_, end)) if due <= *end => *end = came.max(*end),
                _ => spans.push((due, came)),
            }
        }
        Self(spans)
    }

    fn within(&self, from: i64, to: i64) -> Duration {
        let overlap = |(due, came): &(i64, i64)| (*came.min(&to) - *due.max(&from)).max(0);
        Duration::from_micros(u64::try_from(self.0.iter().map(overlap).sum::<i64>()).unwrap_or(0))
    }
}

impl Machine {
    #[cfg(test)]
    pub(crate) const fn punctual() -> Self {
        let any = Spans(Vec::new());
        Self { processes: Vec::new(), any, worst: Duration::ZERO, clock_moved: Duration::ZERO }
    }

    /// `processes`: the probes of each caller process; `demo`: that of the vendors and the table.
    pub(crate) fn of(processes: &[Vec<Lateness>], demo: &Lateness) -> Self {
        let late = |seen: &'_ [Lateness]| seen.iter().flat_map(|seen| seen.late.clone()).collect::<Vec<_>>();
        let each: Vec<Vec<Late>> = processes.iter().map(|process| late(process)).collect();
        let all = || each.iter().flatten().chain(&demo.late);
        let moved =
            processes.iter().flatten().chain([demo]).map(|seen| seen.clock_moved_micros).max().unwrap_or(0);
        let worst = all().map(|late| late.came - late.due).max().unwrap_or(0);
        Self {
            processes: each.iter().map(|late| Spans::of(late.iter().chain(&demo.late))).collect(),
            any: Spans::of(all()),
            worst: Duration::from_micros(u64::try_from(worst).unwrap_or(0)),
            clock_moved: Duration::from_micros(moved),
        }
    }

    /// How long a process took for something, without the time in which it was kept from running.
    pub(crate) fn net_of(&self, process: usize, from: i64, to: i64) -> Duration {
        let late = self.processes.get(process).map_or(Duration::ZERO, |late| late.within(from, to));
        between(from, to).saturating_sub(late)
    }

    /// How long something took that any of the processes may have held up.
    pub(crate) fn net(&self, from: i64, to: i64) -> Duration {
        between(from, to).saturating_sub(self.any.within(from, to))
    }

    /// The share of the time in which the machine let a caller process run, on average.
    pub(crate) fn share_left(&self, from: i64, to: i64) -> f64 {
        let late: Duration = self.processes.iter().map(|late| late.within(from, to)).sum();
        let whole = micros(between(from, to)) * self.processes.len() as u64;
        1.0 - ratio(micros(late), whole)
    }

    /// That somebody set the clock of this machine, if so: starts are by the clock of the day.
    pub(crate) fn clock_set(&self) -> Option<String> {
        (self.clock_moved >= CLOCK_SET).then(|| "the machine's clock was set meanwhile".into())
    }

    /// That a process stood still, if so.
    pub(crate) fn stalled(&self) -> Option<String> {
        (self.worst >= STALL).then(|| format!("a process stood still for {:.1} s", self.worst.as_secs_f64()))
    }

    /// If a share of at least `wanted` was not reached, but would have been in the time that the machine
    /// left.
    pub(crate) fn left_no_time_for(&self, share: f64, wanted: f64, from: i64, to: i64) -> Option<String> {
        let left = self.share_left(from, to);
        (share >= wanted * left)
            .then(|| format!("the machine let the callers run {:.0} % of the time", left * 100.0))
    }

    pub(crate) fn figures(&self, from: i64, to: i64) -> MachineFigures {
        let millis = |duration: Duration| rounded(duration.as_secs_f64() * 1_000.0);
        MachineFigures {
            late_share: rounded(1.0 - self.share_left(from, to)),
            latest_wake_up_ms: millis(self.worst),
            clock_moved_ms: millis(self.clock_moved),
        }
    }
}

fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to - from).unwrap_or(0))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(late: &[(i64, i64)]) -> Lateness {
        let late = late.iter().map(|(due, came)| Late { due: due * 1_000, came: came * 1_000 }).collect();
        Lateness { late, clock_moved_micros: 0 }
    }

    #[test]
    fn a_time_counts_without_the_spans_in_which_who_must_act_was_kept_from_running() {
        let processes = [vec![seen(&[(10, 40)]), seen(&[(30, 60), (100, 200)])], vec![seen(&[(300, 400)])]];
        let machine = Machine::of(&processes, &seen(&[(50, 70)]));
        let millis = |duration: Duration| duration.as_millis();
        assert_eq!(millis(machine.net_of(0, 0, 100_000)), 40, "10 to 70, each moment once");
        assert_eq!(millis(machine.net_of(0, 20_000, 120_000)), 30, "only what lies within");
        assert_eq!(millis(machine.net_of(1, 0, 100_000)), 80, "another process's delay is no excuse");
        assert_eq!(millis(machine.net(0, 400_000)), 140);
        assert_eq!(millis(machine.net_of(7, 0, 1_000)), 1, "nobody looked");
        // 160 ms and 120 ms of 400 ms.
        assert!((machine.share_left(0, 400_000) - 0.65).abs() < 1e-9);
        assert!((machine.figures(0, 400_000).latest_wake_up_ms - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_is_kept_in_step_was_not_set() {
        let moved = |micros| {
            let demo = Lateness { clock_moved_micros: micros, ..Lateness::default() };
            Machine::of(&[], &demo).clock_set().is_some()
        };
        assert!(!moved(4_999) && moved(5_000));
    }
}
