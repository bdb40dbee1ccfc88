//! The trackers of a client, and what they hold together.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::call::tracker::Shared;

/// The trackers that a client created and that still exist.
#[derive(Default)]
pub(crate) struct Trackers(Mutex<Vec<Weak<Shared>>>);

/// What all trackers hold in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) trackers: usize,
    pub(crate) reservations: usize,
    pub(crate) capacity: usize,
    /// Entries of the heaps of ages. `stale_entries` counts those whose grants were taken.
    pub(crate) entries: usize,
    pub(crate) stale_entries: usize,
}

impl Trackers {
    pub(super) fn add(&self, tracker: &Arc<Shared>) {
        let mut trackers = self.0.lock();
        trackers.retain(|tracker| tracker.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
    }

    pub(crate) fn totals(&self) -> Totals {
        let trackers: Vec<_> = {
            let trackers = self.0.lock();
            trackers.iter().filter_map(Weak::upgrade).collect()
        };
        let mut totals = Totals { trackers: trackers.len(), ..Totals::default() };
        for tracker in trackers {
            let index = tracker.index();
            totals.reservations += index.len();
            totals.capacity += tracker.capacity();
            totals.entries += index.entries();
            totals.stale_entries += index.stale_entries();
        }
        totals
    }
}
