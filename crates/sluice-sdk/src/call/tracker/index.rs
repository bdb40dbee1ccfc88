//! The held reservations, by request and bucket and by age. Uses no clock, lock or request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Timestamp};

#[cfg(test)]
mod tests;

/// Identifies a reservation. Unique within its tracker, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What is known of a grant while its tracker holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    id: ReservationId,
    request: Arc<str>,
    bucket: Arc<str>,
    estimated_tokens: Option<Amount>,
    created_at: Timestamp,
}

impl Reservation {
    /// The id, unique within the tracker.
    #[must_use]
    pub const fn id(&self) -> ReservationId {
        self.id
    }

    /// The request that the grant is for.
    #[must_use]
    pub fn request(&self) -> &str {
        &self.request
    }

    /// The bucket that it was stored under.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The tokens that the grant took from that bucket; `None` if the grant has no dimension of that name.
    #[must_use]
    pub const fn estimated_tokens(&self) -> Option<Amount> {
        self.estimated_tokens
    }

    /// When it was stored, by the client's clock.
    #[must_use]
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }
}

pub(super) struct New<'a> {
    pub(super) request: &'a str,
    pub(super) bucket: &'a str,
    pub(super) estimated_tokens: Option<Amount>,
    pub(super) now: Timestamp,
}

/// Why a reservation was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotStored {
    AtCapacity,
    Taken,
}

/// A reservation and its payload: in the tracker, a grant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldReservation<P> {
    pub(super) reservation: Reservation,
    pub(super) payload: P,
}

/// A heap of up to this many entries is not worth compacting.
const SMALL: usize = 64;

/// Reservations by key and by age. A lookup takes two hashes, however many are held. A taken reservation
/// leaves its entry in the heap of ages, which can only remove its top. An entry whose id is no longer held
/// is stale; ids are used once, so a later reservation of the same key cannot revive it.
pub(super) struct Index<P> {
    capacity: usize,
    max_age: Duration,
    next: u64,
    held: HashMap<ReservationId, HeldReservation<P>>,
    requests: HashMap<Arc<str>, HashMap<Arc<str>, ReservationId>>,
    ages: BinaryHeap<Reverse<(Timestamp, ReservationId)>>,
}

/// Drops the payloads in the order of their storing, not of a map's hashes: one seed replays one run.
impl<P> Drop for Index<P> {
    fn drop(&mut self) {
        let mut held: Vec<_> = self.held.drain().collect();
        held.sort_unstable_by_key(|(id, _)| *id);
        held.into_iter().for_each(drop);
    }
}

impl<P> Index<P> {
    pub(super) fn new(capacity: usize, max_age: Duration) -> Self {
        let (held, requests, ages) = (HashMap::new(), HashMap::new(), BinaryHeap::new());
        Self { capacity, max_age, next: 0, held, requests, ages }
    }

    /// Stores `payload` under a free key, or returns it.
    pub(super) fn store(&mut self, new: &New<'_>, payload: P) -> Result<ReservationId, (NotStored, P)> {
        let known = self.requests.get_key_value(new.request);
        if known.is_some_and(|(_, buckets)| buckets.contains_key(new.bucket)) {
            return Err((NotStored::Taken, payload));
        }
        if self.len() >= self.capacity {
            return Err((NotStored::AtCapacity, payload));
        }
        let id = ReservationId(self.next);
        self.next += 1;
        let request: Arc<str> = known.map_or_else(|| new.request.into(), |(request, _)| Arc::clone(request));
        let bucket: Arc<str> = new.bucket.into();
        self.requests.entry(Arc::clone(&request)).or_default().insert(Arc::clone(&bucket), id);
        self.ages.push(Reverse((new.now, id)));
        let estimated_tokens = new.estimated_tokens;
        let reservation = Reservation { id, request, bucket, estimated_tokens, created_at: new.now };
        self.held.insert(id, HeldReservation { reservation, payload });
        Ok(id)
    }

    /// Takes out all stale reservations, if the index is full or a stale one holds the key of the new one.
    pub(super) fn make_room(&mut self, new: &New<'_>) -> Vec<HeldReservation<P>> {
        let is_full = self.len() >= self.capacity;
        let is_stale = |of: &Reservation| is_older(new.now, of.created_at, self.max_age);
        let in_the_way = is_full || self.get(new.request, new.bucket).is_some_and(is_stale);
        if in_the_way { self.take_stale(new.now) } else { Vec::new() }
    }

    pub(super) fn get(&self, request: &str, bucket: &str) -> Option<&Reservation> {
        let id = self.requests.get(request)?.get(bucket)?;
        self.held.get(id).map(|held| &held.reservation)
    }

    pub(super) fn take(&mut self, request: &str, bucket: &str) -> Option<HeldReservation<P>> {
        let id = *self.requests.get(request)?.get(bucket)?;
        let held = self.remove(id);
        self.compact_where_due();
        held
    }

    /// Takes out the oldest reservation of a request.
    pub(super) fn take_oldest(&mut self, request: &str) -> Option<HeldReservation<P>> {
        let id = *self.requests.get(request)?.values().min()?;
        let held = self.remove(id);
        self.compact_where_due();
        held
    }

    /// Takes out all reservations of a request, oldest first.
    pub(super) fn take_request(&mut self, request: &str) -> Vec<HeldReservation<P>> {
        let mut ids: Vec<_> =
            self.requests.remove(request).into_iter().flat_map(HashMap::into_values).collect();
        ids.sort_unstable();
        let taken = ids.into_iter().filter_map(|id| self.held.remove(&id)).collect();
        self.compact_where_due();
        taken
    }

    /// Takes out all reservations that are older than the largest age, oldest first.
    pub(super) fn take_stale(&mut self, now: Timestamp) -> Vec<HeldReservation<P>> {
        let max_age = self.max_age;
        self.take_from_oldest(|created_at| is_older(now, created_at, max_age))
    }

    /// Takes out all reservations that were stored before `cutoff`, oldest first.
    pub(super) fn take_stored_before(&mut self, cutoff: Timestamp) -> Vec<HeldReservation<P>> {
        self.take_from_oldest(|created_at| created_at < cutoff)
    }

    fn take_from_oldest(&mut self, is_due: impl Fn(Timestamp) -> bool) -> Vec<HeldReservation<P>> {
        let mut taken = Vec::new();
        while let Some(&Reverse((created_at, id))) = self.ages.peek() {
            // Entries of taken reservations are removed too: they would hide the entries behind them.
            let is_held = self.held.contains_key(&id);
            if is_held && !is_due(created_at) {
                break;
            }
            self.ages.pop();
            taken.extend(self.remove(id));
        }
        self.compact_where_due();
        taken
    }

    /// Removes the stale entries from the heap, and frees memory that is not needed. Returns how many it
    /// removed.
    pub(super) fn compact(&mut self) -> usize {
        let (held, stale) = (&self.held, self.stale_entries());
        self.ages.retain(|Reverse((_, id))| held.contains_key(id));
        self.ages.shrink_to(self.ages.len().max(SMALL) * 2);
        shrink(&mut self.held);
        shrink(&mut self.requests);
        stale
    }

    /// Number of heap entries whose reservation is gone.
    pub(super) fn stale_entries(&self) -> usize {
        // Each held reservation has one entry.
        self.ages.len() - self.held.len()
    }

    pub(super) fn entries(&self) -> usize {
        self.ages.len()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    fn remove(&mut self, id: ReservationId) -> Option<HeldReservation<P>> {
        let held = self.held.remove(&id)?;
        let Reservation { request, bucket, .. } = &held.reservation;
        if let Some(buckets) = self.requests.get_mut(request) {
            buckets.remove(bucket);
            if buckets.is_empty() {
                self.requests.remove(request);
            }
        }
        Some(held)
    }

    /// Compacts once more than half of the heap is stale: as many takes have then paid for the pass.
    fn compact_where_due(&mut self) {
        if self.entries() > SMALL && self.stale_entries() * 2 > self.entries() {
            self.compact();
        }
    }
}

/// Whether something created at `created_at` is older than `age`. After the clock went back, it is not.
fn is_older(now: Timestamp, created_at: Timestamp, age: Duration) -> bool {
    now.since(created_at) > age
}

/// Shrinks a map after a burst, but never tightly: reservations come and go.
fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > map.len().max(SMALL) * 4 {
        map.shrink_to(map.len().max(SMALL) * 2);
    }
}
