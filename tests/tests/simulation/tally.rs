//! The requests that one process has sent, and those of them that met a fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use sluice_testkit::Operation;

use crate::row::Micros;

/// What a process has sent so far. Clones are one tally.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<Sent>>);

/// Requests by operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    by_operation: BTreeMap<Operation, u64>,
    /// When requests met faults, in true time.
    faults: Vec<Micros>,
}

impl Tally {
    pub(crate) fn sent(&self, operation: Operation) {
        *self.locked().by_operation.entry(operation).or_default() += 1;
    }

    pub(crate) fn fault(&self, now: Micros) {
        self.locked().faults.push(now);
    }

    /// Up to now.
    pub(crate) fn so_far(&self) -> Sent {
        self.locked().clone()
    }

    /// Whether one of its requests met a fault in a time.
    pub(crate) fn met_fault(&self, from: Micros, to: Micros) -> bool {
        self.locked().faults.iter().any(|at| (from..=to).contains(at))
    }

    fn locked(&self) -> MutexGuard<'_, Sent> {
        self.0.lock().unwrap()
    }
}

impl Sent {
    /// What was sent since, by operation, and how many requests met a fault since then or since `doubted_at`,
    /// if that is earlier.
    pub(crate) fn since(&self, before: &Self, doubted_at: Micros) -> (BTreeMap<Operation, u64>, usize) {
        let less = |(operation, count): (&Operation, &u64)| {
            let was = before.by_operation.get(operation).copied().unwrap_or(0);
            (*count > was).then_some((*operation, count - was))
        };
        let earlier = before.faults.iter().filter(|at| **at >= doubted_at).count();
        let faults = self.faults.len() - before.faults.len() + earlier;
        (self.by_operation.iter().filter_map(less).collect(), faults)
    }
}
