//! Grants between the start and the end of a call that does not end where it began, as a stream does.
//!
//! The tracker is local: it writes nothing while it stores, finds and hands out, and it knows nothing of other processes. Its
//! background task renews the leases of what it holds. What a crashed process held comes back with its leases.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::Timestamp;
use sluice_table::{Clock, Store};

use crate::call::tracker::index::{Reservation, ReservationId};
use crate::call::tracker::registry::Trackers;
use crate::call::tracker::stale::StaleReport;
use crate::client::Client;
use crate::grant::Grant;

mod cleaning;
pub(crate) mod index;
pub(crate) mod registry;
mod renewing;
pub(crate) mod stale;

use crate::call::tracker::cleaning::Cleaning;
use crate::call::tracker::index::{Held, Index, New, Refused};
use crate::call::tracker::renewing::{Due, Kept};
use crate::call::tracker::stale::Counts;

/// Settings of a [`ReservationTracker`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReservationConfig {
    /// The most grants that are held at once; 10,000 by default, one at least. Each takes about 1 kB: more cost memory, fewer refuse
    /// calls where many streams are open.
    pub max_reservations: usize,
    /// The age from which a grant counts as forgotten by its call, and is given back; 300 s by default. Keep it above the
    /// longest call: a shorter one gives slots away that are in use, a longer one keeps those of a lost call for longer.
    ///
    /// Leases (`SLUICE_LEASE_TTL`) are shorter: until this age the background task renews them. Where it is not
    /// [started](ReservationTracker::start), a call that outlasts its grant's lease loses its slot to a sweep, whatever stands
    /// here.
    pub max_reservation_age: Duration,
    /// How often the background task looks for such grants; 30 s by default, 10 ms at least. More often brings them back
    /// sooner, by at most this time, and costs a look at the oldest one each time.
    pub cleanup_interval: Duration,
}

impl Default for ReservationConfig {
    fn default() -> Self {
        Self {
            max_reservations: 10_000,
            max_reservation_age: Duration::from_secs(300),
            cleanup_interval: Duration::from_secs(30),
        }
    }
}

/// A grant that was taken out of its tracker, with what the tracker knew of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tracked {
    /// What it was stored as.
    pub reservation: Reservation,
    /// To be released by whoever took it.
    pub grant: Grant,
}

/// Why a grant was not stored. It is in the error: [`into_grant`](Self::into_grant) gives it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// As many are held as may be, and none of them is stale.
    #[error("the tracker is full: it holds {capacity} reservations, none of them stale")]
    AtCapacity {
        /// [`ReservationConfig::max_reservations`].
        capacity: usize,
        /// What was to be stored.
        grant: Box<Grant>,
    },
    /// A grant of the same request and bucket is held, and is not stale. It stays: its call may be under way.
    #[error("request {request} holds a reservation of {bucket} already: take it first")]
    Taken {
        /// The request.
        request: String,
        /// The bucket.
        bucket: String,
        /// What was to be stored.
        grant: Box<Grant>,
    },
}

impl ReservationError {
    /// The grant that was to be stored.
    #[must_use]
    pub fn into_grant(self) -> Grant {
        match self {
            Self::AtCapacity { grant, .. } | Self::Taken { grant, .. } => *grant,
        }
    }
}

/// Holds grants from the start of a call to its end, by request and bucket, where the two ends of a call do not share a scope.
/// Cheap to clone; every clone is the same tracker. Lookups take the same time however many it holds.
///
/// A grant that nobody takes within [`ReservationConfig::max_reservation_age`] is stale: the background task, and a store
/// that finds no room, take it out and release it, so that its slots and lease rows are back in the table. Rate tokens stay
/// spent, since its call was made. [`start`](Self::start) the task, or call [`release_stale`](Self::release_stale) where no
/// task runs between invocations, as in a Lambda. Without either, what is forgotten stays until the tracker is full.
///
/// The task also renews the leases of what is held and not stale, as soon as half of their time is past: one write for each
/// lease and half of its time, none for rate tokens without a lease row. Nothing else renews them. A lease that is gone all the same, as
/// after a freeze, is logged once (`lease.gone`), and its grant stays for its call, which may be under way.
///
/// When its last clone is dropped the grants go with it, and give back their slots as every dropped [`Grant`] does.
///
/// ```no_run
/// # async fn example(sluice: sluice_sdk::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use sluice_sdk::ReservationConfig;
///
/// let tracker = sluice.reservations(ReservationConfig::default());
/// tracker.start();
/// if let Some(grant) = sluice.acquire("elevenlabs#concurrent").await?.granted() {
///     tracker.store("request-7", "elevenlabs#concurrent", grant)?;
/// }
/// // Where the stream ends:
/// if let Some(tracked) = tracker.take("request-7", "elevenlabs#concurrent") {
///     tracked.grant.release().await?;
/// }
/// tracker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReservationTracker {
    shared: Arc<Shared>,
    cleaning: Arc<Cleaning>,
}

/// What the background task shares with the tracker, and does not keep alive.
struct Shared {
    index: Mutex<Index<Kept>>,
    config: ReservationConfig,
    /// Of the client, for how often to look.
    lease_ttl: Duration,
    clock: Clock,
    /// When the tracker was made, by this machine's clock, and by its steady one.
    began: (Timestamp, i64),
    store: Store,
    counts: Arc<Counts>,
}

impl Client {
    /// A tracker for grants of this client, on its clock.
    #[must_use]
    pub fn reservations(&self, config: ReservationConfig) -> ReservationTracker {
        let index = Mutex::new(Index::new(config.max_reservations.max(1), config.max_reservation_age));
        let (clock, lease_ttl) = (self.inner.config.connection.clock.clone(), self.inner.config.lease_ttl);
        let began = (clock.now(), clock.steady_micros());
        let store = self.inner.store.clone();
        let shared = Shared { index, config, lease_ttl, clock, began, store, counts: Arc::default() };
        let shared = Arc::new(shared);
        self.inner.extensions.of::<Trackers>().add(&shared);
        ReservationTracker { shared, cleaning: Arc::default() }
    }
}

impl ReservationTracker {
    /// Keeps `grant` for `request`, under `bucket`: one of its dimensions, or a name of the caller's own.
    ///
    /// Where there is no room, or the key is taken by a stale grant, it first takes out what is stale and gives it back.
    ///
    /// # Errors
    /// [`ReservationError`], with the grant, where there still is no room, or the key is in use. A key in use is an error
    /// and no replacement: the grant under it may belong to a call that is under way, which would then end with the wrong one.
    pub fn store(&self, request: &str, bucket: &str, grant: Grant) -> Result<ReservationId, ReservationError> {
        let new = New { request, bucket, estimated_tokens: grant.cost(bucket), now: self.shared.now() };
        let (stale, stored) = {
            let mut index = self.shared.index();
            (index.make_room(&new), index.store(&new, Kept::new(grant)))
        };
        self.shared.release_soon(stale);
        stored.map_err(|(refused, kept)| {
            let grant = Box::new(kept.grant);
            match refused {
                Refused::AtCapacity => ReservationError::AtCapacity { capacity: self.shared.capacity(), grant },
                Refused::Taken => ReservationError::Taken { request: request.into(), bucket: bucket.into(), grant },
            }
        })
    }

    /// What is known of a grant, which stays; `None` where none is held under this key. For the middle of a stream.
    #[must_use]
    pub fn get(&self, request: &str, bucket: &str) -> Option<Reservation> {
        self.shared.index().get(request, bucket).cloned()
    }

    /// Takes a grant out, for the end of its call; `None` where none is held under this key, or not any more. Of many that
    /// take at once one gets it.
    #[must_use]
    pub fn take(&self, request: &str, bucket: &str) -> Option<Tracked> {
        self.shared.index().take(request, bucket).map(Tracked::from)
    }

    /// Takes out all grants of a request, the oldest first: for a request that failed.
    #[must_use]
    pub fn take_request(&self, request: &str) -> Vec<Tracked> {
        let taken = self.shared.index().take_request(request);
        taken.into_iter().map(Tracked::from).collect()
    }

    /// Takes out all grants that are stale, the oldest first, for a caller that ends them in its own way.
    #[must_use]
    pub fn take_stale(&self) -> Vec<Tracked> {
        self.shared.take_stale()
    }

    /// Takes out all grants that are stale, and releases them. A caller that is dropped meanwhile has released them all the same.
    ///
    /// Takes at most as long as [`Grant::release`].
    pub async fn release_stale(&self) -> StaleReport {
        let stale = self.shared.take_stale();
        stale::release(Arc::clone(&self.shared.counts), stale).await
    }

    /// What became of the stale grants that were released, since the tracker was made.
    #[must_use]
    pub fn stale_report(&self) -> StaleReport {
        self.shared.counts.report()
    }

    /// Takes out of the heap of ages what belongs to grants that were taken. Happens by itself once that is more than half of
    /// it: by hand it only gives memory back sooner.
    pub fn compact(&self) {
        self.shared.index().compact();
    }

    /// The share of entries in the heap of ages that belong to grants that were taken, from 0 to 1. Above one half only
    /// where the heap is small.
    #[must_use]
    pub fn stale_entry_ratio(&self) -> f64 {
        let (stale, all) = {
            let index = self.shared.index();
            (index.stale_entries(), index.entries())
        };
        let count = |entries: usize| f64::from(u32::try_from(entries).unwrap_or(u32::MAX));
        if all == 0 { 0.0 } else { count(stale) / count(all) }
    }

    /// Grants that are held.
    #[must_use]
    pub fn reservation_count(&self) -> usize {
        self.shared.index().len()
    }

    /// Requests that a grant is held for.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.index().requests()
    }

    /// Starts the background task that releases stale grants every [`ReservationConfig::cleanup_interval`], and renews the leases
    /// of the others. Where it runs already, this does nothing. It ends with [`stop`](Self::stop), or with the last clone of the tracker.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(&self) {
        self.cleaning.start(&self.shared);
    }

    /// Ends the background task and waits for it to end, with what it is releasing and renewing. Where none runs, this does
    /// nothing. What is held stays, and is not renewed any more: the ends of calls under way still find it.
    ///
    /// Takes at most the time of a request (4.2 s) for each renewal under way, and as long as [`Grant::release`].
    pub async fn stop(&self) {
        self.cleaning.stop().await;
    }
}

impl Shared {
    /// By the steady clock: if this machine's clock is set, no grant that is in use grows stale by that.
    fn now(&self) -> Timestamp {
        let (began, steady) = self.began;
        Timestamp::from_micros(began.micros().saturating_add(self.clock.steady_micros().saturating_sub(steady)))
    }

    fn capacity(&self) -> usize {
        self.config.max_reservations.max(1)
    }

    /// The lock is never held over an await, nor while a grant is dropped. No panic leaves the index half changed: there is
    /// none in it.
    fn index(&self) -> MutexGuard<'_, Index<Kept>> {
        self.index.lock()
    }

    fn take_stale(&self) -> Vec<Tracked> {
        let now = self.now();
        let taken = self.index().take_stale(now);
        taken.into_iter().map(Tracked::from).collect()
    }

    /// The renewals that are due, the oldest grant's first: a map's order would make a seed of the simulation two runs.
    fn due(&self, now: Timestamp) -> Vec<Due> {
        let index = self.index();
        let due = |held: &Held<Kept>| Due::of(held.reservation.id(), &held.payload, now);
        let mut due: Vec<Due> = index.young(self.now()).filter_map(due).collect();
        drop(index);
        due.sort_unstable_by_key(Due::id);
        due
    }

    /// On a task of its own. Outside of a runtime the grants are dropped, which says that their slots come back later.
    fn release_soon(&self, stale: Vec<Held<Kept>>) {
        if stale.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let stale = stale.into_iter().map(Tracked::from).collect();
            runtime.spawn(stale::release(Arc::clone(&self.counts), stale));
        }
    }
}

impl From<Held<Kept>> for Tracked {
    fn from(held: Held<Kept>) -> Self {
        Self { reservation: held.reservation, grant: held.payload.grant }
    }
}

impl fmt::Debug for ReservationTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tracker = f.debug_struct("ReservationTracker");
        tracker.field("config", &self.shared.config).field("reservations", &self.reservation_count());
        tracker.finish_non_exhaustive()
    }
}
