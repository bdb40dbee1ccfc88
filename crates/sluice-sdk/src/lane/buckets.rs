//! The buckets that a client remembers: as many as its setting says, and those in use.
//!
//! Names come from callers, so there may be any number of them. Which one is forgotten is decided by second chance: a use marks
//! the entry, and a new entry takes the place of the first in the queue that is neither marked nor in use. A hit costs a relaxed
//! load beside the lookup, and no lock that a hit did not take before.
//!
//! An entry is in use while anything but this map refers to it: a grant, a caller in line, a lane that is served, stock, a
//! settlement that is pending, a task that heals; and while it keeps a start that is still to come. It is removed under the write
//! lock, when nothing else refers to it, and every other reference comes from one that exists or from this map. So a bucket never
//! has two entries in one process, and a grant always releases through the entry that its take went through.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use sluice_core::{Dimension, Timestamp};

use crate::lane::entry::Entry;
use crate::lane::prefetch::Stock;
use crate::lane::rows;
use crate::lane::rows::RowLane;
use crate::telemetry::label::Named;

/// Entries that a new one looks at. All of them at once would hold up those who read.
const LOOKS: usize = 64;

/// Lanes of sets that are kept though nobody is in line. An idle lane knows nothing, and is made in microseconds.
const MOST_IDLE_LANES: usize = 1_000;

/// References to an entry that the map itself has, in its two parts.
const OWN_REFERENCES: usize = 2;

/// The buckets that a client has met.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: RwLock<Entries>,
    /// The lanes of sets of dimensions with lease rows, by their names.
    rows: Mutex<RowLanes>,
    prefetched: HashSet<Dimension>,
    named: Named,
    /// Buckets that are remembered though nobody uses them.
    most: usize,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<Dimension, Arc<Entry>>,
    /// All of them; the next to be looked at is the first.
    queue: VecDeque<Arc<Entry>>,
}

#[derive(Debug)]
struct RowLanes {
    by_name: HashMap<Vec<Dimension>, Arc<RowLane>>,
    /// So many, and the idle ones go.
    most: usize,
}

impl Cache {
    /// One that keeps stock of the buckets in `prefetched`, and remembers `most` that nobody uses.
    pub(crate) fn new(prefetched: HashSet<Dimension>, most: usize) -> Self {
        let rows = RowLanes { by_name: HashMap::new(), most: MOST_IDLE_LANES };
        Self {
            entries: RwLock::default(),
            rows: Mutex::new(rows),
            prefetched,
            named: Named::default(),
            most: most.max(1),
        }
    }

    /// The bucket, where it is remembered.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read();
        let entry = entries.by_name.get(name)?;
        entry.mark();
        Some(Arc::clone(entry))
    }

    /// The bucket, remembered from now on.
    pub(crate) fn entry(&self, dimension: &Dimension, now: impl FnOnce() -> Timestamp) -> Arc<Entry> {
        if let Some(entry) = self.get(dimension.as_str()) {
            return entry;
        }
        let mut entries = self.entries.write();
        if let Some(entry) = entries.by_name.get(dimension) {
            return Arc::clone(entry);
        }
        let forgotten = entries.make_room(self.most, now);
        if forgotten.iter().any(|entry| entry.was_in_sets()) {
            // Before anybody can make the entry anew: a lane that it does not know could not be woken by it.
            self.rows.lock().drop_idle();
        }
        let stock = self.prefetched.contains(dimension).then(Box::<Stock>::default);
        let entry = Arc::new(Entry::new(dimension.clone(), stock, self.named.clone()));
        entries.by_name.insert(dimension.clone(), Arc::clone(&entry));
        entries.queue.push_back(Arc::clone(&entry));
        drop(entries);
        // Its gauges would stand still at what it was.
        forgotten.iter().for_each(|entry| entry.untell());
        entry
    }

    /// All of them, in no order.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().queue.iter().map(Arc::clone).collect()
    }

    /// The lane of a set of dimensions, in the order of their names.
    pub(crate) fn row_lane(&self, entries: &[Arc<Entry>]) -> Arc<RowLane> {
        let name = rows::name(entries);
        let mut lanes = self.rows.lock();
        if let Some(lane) = lanes.by_name.get(&name) {
            return Arc::clone(lane);
        }
        if lanes.by_name.len() >= lanes.most {
            lanes.drop_idle();
            // Where many are in use, looking for idle ones at each new set would cost more than they do.
            lanes.most = MOST_IDLE_LANES.max(2 * lanes.by_name.len());
        }
        let lane = Arc::new(RowLane::default());
        entries.iter().for_each(|entry| entry.is_in_set(&lane));
        lanes.by_name.insert(name, Arc::clone(&lane));
        lane
    }

    #[cfg(test)]
    pub(super) fn lanes(&self) -> usize {
        self.rows.lock().by_name.len()
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(HashSet::new(), crate::config::MAX_BUCKETS)
    }
}

/// An abandoned start refers to the entry that keeps it.
impl Drop for Cache {
    fn drop(&mut self) {
        self.entries().iter().for_each(|entry| entry.forget_abandoned());
    }
}

impl Entries {
    /// For one more: takes out what is neither in use nor was used since the last look.
    fn make_room(&mut self, most: usize, now: impl FnOnce() -> Timestamp) -> Vec<Arc<Entry>> {
        let mut forgotten = Vec::new();
        if self.queue.len() < most {
            return forgotten;
        }
        let now = now();
        for _ in 0..LOOKS.min(self.queue.len()) {
            if self.queue.len() < most {
                break;
            }
            let Some(entry) = self.queue.pop_front() else { break };
            if entry.take_mark() || entry.is_in_use(OWN_REFERENCES, now) {
                self.queue.push_back(entry);
            } else {
                self.by_name.remove(&entry.dimension);
                forgotten.push(entry);
            }
        }
        forgotten
    }
}

impl RowLanes {
    fn drop_idle(&mut self) {
        self.by_name.retain(|_, lane| Arc::strong_count(lane) > 1);
    }
}
