//! What happened in a run, operation by operation, for a failure to show.

use std::collections::VecDeque;

use crate::row::Micros;
use crate::scenario::START;

/// Operations that a failure shows, where `SLUICE_SIM_SHOWN` says no other number.
const SHOWN: u64 = 120;

/// The last operations, for a failure to show.
pub(crate) struct Journal {
    lines: VecDeque<String>,
    shown: usize,
}

impl Default for Journal {
    fn default() -> Self {
        let shown = crate::variable("SLUICE_SIM_SHOWN").unwrap_or(SHOWN);
        Self { lines: VecDeque::new(), shown: usize::try_from(shown).unwrap().max(1) }
    }
}

impl Journal {
    pub(crate) fn note(&mut self, now: Micros, line: &str) {
        if self.lines.len() == self.shown {
            self.lines.pop_front();
        }
        let since_start = now - Micros::from(START.micros());
        self.lines.push_back(format!("{:>12.6} s  {line}", since_start as f64 / 1e6));
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.lines.iter().map(String::as_str).collect()
    }
}
