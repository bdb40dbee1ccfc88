//! The buckets that a client remembers: as many as its setting allows, and those in use.
//!
//! Names come from callers, so there may be any number. Second chance decides which entry is forgotten: a use
//! marks the entry, and a new entry replaces the first of the queue that is neither marked nor in use. A hit
//! costs one relaxed load on top of the lookup, and no further lock.
//!
//! An entry is in use while anything but this map refers to it (a grant, a caller, a served lane, stock, a
//! pending settlement, a task that heals), or while it keeps a start to come. It is removed under the write
//! lock, when nothing else refers to it, and new references come only from existing ones or this map. So a
//! bucket never has two entries, and a grant releases through the entry that it took through.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use sluice_core::{Dimension, ShareName, Timestamp};
use sluice_vendors::Vendors;

use crate::bucket::near_limit::WarnAt;
use crate::lane::entry::Entry;
use crate::lane::prefetch::Stock;
use crate::lane::rows;
use crate::lane::rows::RowLane;
use crate::telemetry::label::NamedBuckets;

/// How many entries a new one looks at. To look at all entries at once would hold up readers.
const LOOKS: usize = 64;

/// How many idle lanes of sets are kept. They hold no state and are recreated in microseconds.
const MOST_IDLE_LANES: usize = 1_000;

const OWN_REFERENCES: usize = 2;

/// The buckets that a client has met.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: RwLock<Entries>,
    /// The lanes of sets of dimensions with lease rows, by the names of the dimensions.
    rows: Mutex<RowLanes>,
    prefetched: HashSet<Dimension>,
    named: NamedBuckets,
    /// How many buckets are remembered while nobody uses them.
    most: usize,
    vendors: Vendors,
    warn_at: Arc<WarnAt>,
}

type ByName = HashMap<Dimension, Arc<Entry>>;

#[derive(Debug, Default)]
struct Entries {
    by_name: ByName,
    /// Buckets as shares see them.
    of_shares: HashMap<ShareName, ByName>,
    /// All entries; the first is the next to be looked at.
    queue: VecDeque<Arc<Entry>>,
}

#[derive(Debug)]
struct RowLanes {
    by_name: HashMap<Vec<(Dimension, Option<ShareName>)>, Arc<RowLane>>,
    /// At this number of lanes, the idle lanes are dropped.
    most: usize,
}

impl Cache {
    /// Creates a cache that keeps stock of the buckets in `prefetched` and remembers `most` unused buckets.
    pub(crate) fn new(
        prefetched: HashSet<Dimension>,
        most: usize,
        vendors: Vendors,
        warn_at: WarnAt,
    ) -> Self {
        let rows = RowLanes { by_name: HashMap::new(), most: MOST_IDLE_LANES };
        Self {
            entries: RwLock::default(),
            rows: Mutex::new(rows),
            prefetched,
            named: NamedBuckets::default(),
            most: most.max(1),
            vendors,
            warn_at: Arc::new(warn_at),
        }
    }

    pub(crate) fn get(&self, name: &str, share: Option<&str>) -> Option<Arc<Entry>> {
        let entries = self.entries.read();
        let entry = entries.by_name(share)?.get(name)?;
        entry.mark();
        Some(Arc::clone(entry))
    }

    /// Returns the bucket and remembers it from now on.
    pub(crate) fn entry(
        &self,
        dimension: &Dimension,
        share: Option<&ShareName>,
        now: impl FnOnce() -> Timestamp,
    ) -> Arc<Entry> {
        let of = share.map(ShareName::as_str);
        if let Some(entry) = self.get(dimension.as_str(), of) {
            return entry;
        }
        let mut entries = self.entries.write();
        if let Some(entry) = entries.by_name(of).and_then(|by_name| by_name.get(dimension)) {
            return Arc::clone(entry);
        }
        let forgotten = entries.make_room(self.most, now);
        if forgotten.iter().any(|entry| entry.was_in_sets()) {
            // Before anybody recreates the entry: the new one would not know the lane, and could not wake it.
            self.rows.lock().drop_idle();
        }
        let stock = self.prefetched.contains(dimension).then(Box::<Stock>::default);
        let (vendor, warn_at) = (Arc::clone(self.vendors.of(dimension)), Arc::clone(&self.warn_at));
        let entry =
            Entry::new((dimension.clone(), share.cloned()), vendor, stock, self.named.clone(), warn_at);
        let entry = Arc::new(entry);
        let by_name = match share {
            None => &mut entries.by_name,
            Some(share) => entries.of_shares.entry(share.clone()).or_default(),
        };
        by_name.insert(dimension.clone(), Arc::clone(&entry));
        entries.queue.push_back(Arc::clone(&entry));
        drop(entries);
        // Otherwise the gauges of a forgotten bucket would keep its last values.
        let is_gone = |entry: &&Arc<Entry>| self.entries_of(&entry.dimension).is_empty();
        forgotten.iter().filter(is_gone).for_each(|entry| entry.clear_gauges());
        entry
    }

    /// The bucket as each share sees it that this process has met.
    pub(crate) fn entries_of(&self, dimension: &Dimension) -> Vec<Arc<Entry>> {
        let entries = self.entries.read();
        let all = std::iter::once(&entries.by_name).chain(entries.of_shares.values());
        all.filter_map(|by_name| by_name.get(dimension)).map(Arc::clone).collect()
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().queue.iter().map(Arc::clone).collect()
    }

    /// Returns the lane of a set of dimensions, which are in the order of their names.
    pub(crate) fn row_lane(&self, entries: &[Arc<Entry>]) -> Arc<RowLane> {
        let name = rows::name(entries);
        let mut lanes = self.rows.lock();
        if let Some(lane) = lanes.by_name.get(&name) {
            return Arc::clone(lane);
        }
        if lanes.by_name.len() >= lanes.most {
            lanes.drop_idle();
            // If many lanes are in use, searching idle ones at each new set would cost more than the lanes.
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
        Self::new(HashSet::new(), crate::config::MAX_BUCKETS, Vendors::default(), WarnAt::default())
    }
}

/// An abandoned start refers to the entry that keeps it, so both would stay in memory.
impl Drop for Cache {
    fn drop(&mut self) {
        self.entries().iter().for_each(|entry| entry.forget_abandoned());
    }
}

impl Entries {
    fn by_name(&self, share: Option<&str>) -> Option<&ByName> {
        share.map_or(Some(&self.by_name), |share| self.of_shares.get(share))
    }

    fn remove(&mut self, entry: &Entry) {
        let Some(share) = &entry.share else { return drop(self.by_name.remove(&entry.dimension)) };
        let Some(of_share) = self.of_shares.get_mut(share) else { return };
        of_share.remove(&entry.dimension);
        if of_share.is_empty() {
            self.of_shares.remove(share);
        }
    }

    /// Makes room for one more entry: removes entries that are neither in use nor used since the last look.
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
                self.remove(&entry);
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
