//! Keeps grants from the start to the end of a call whose two ends do not share a scope, such as a stream.
//! Local: it writes nothing to the table, and knows no other process.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::Timestamp;
use sluice_table::Clock;

use crate::call::tracker::index::{Reservation, ReservationId};
use crate::call::tracker::registry::Trackers;
use crate::call::tracker::stale::StaleReport;
use crate::client::Client;
use crate::grant::Grant;

mod cleaning;
pub(crate) mod config;
pub(crate) mod index;
pub(crate) mod registry;
pub(crate) mod stale;

use crate::call::tracker::cleaning::Cleaning;
use crate::call::tracker::config::ReservationConfig;
use crate::call::tracker::index::{HeldReservation, Index, New, NotStored};
use crate::call::tracker::stale::StaleCounts;
use crate::lane::task::boxed;

/// A grant that was taken out of its tracker, with what the tracker knew of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tracked {
    /// What the tracker knew of the grant.
    pub reservation: Reservation,
    /// The grant. The caller that took it releases it.
    pub grant: Grant,
}

/// Why a grant was not stored. The error contains the grant: [`into_grant`](Self::into_grant) returns it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// The tracker is full, and none of its grants is stale.
    #[error("the tracker is full: it holds {capacity} reservations, none of them stale")]
    AtCapacity {
        /// [`ReservationConfig::max_reservations`].
        capacity: usize,
        /// The grant that was not stored.
        grant: Box<Grant>,
    },
    /// The tracker holds a grant of the same request and bucket that is not stale. That grant stays: its call
    /// may be under way.
    #[error("request {request} already holds a reservation of {bucket}: take that reservation first")]
    Taken {
        /// The request.
        request: String,
        /// The bucket.
        bucket: String,
        /// The grant that was not stored.
        grant: Box<Grant>,
    },
}

impl ReservationError {
    /// The grant that was not stored.
    pub fn into_grant(self) -> Grant {
        match self {
            Self::AtCapacity { grant, .. } | Self::Taken { grant, .. } => *grant,
        }
    }
}

/// Holds grants from the start of a call to its end, by request and bucket. Cheap to clone; every clone is
/// the same tracker. A lookup takes the same time however many grants are held. When the last clone is
/// dropped, its grants are dropped too, and give back their slots as every dropped [`Grant`] does.
///
/// A grant that nobody takes within [`ReservationConfig::max_reservation_age`] is stale. The background task,
/// or a store that finds no room, takes it out and releases it: slots and lease rows are back in the table,
/// rate tokens stay spent, since the call was made. [`start`](Self::start) the task, or call
/// [`release_stale`](Self::release_stale) if no task runs between invocations, as in a Lambda. Without
/// either, forgotten grants stay until the tracker is full.
///
/// The leases of grants that are not stale are renewed, whether or not the task runs. A lease that is gone,
/// as after a freeze, is logged once (`lease.gone`); its grant stays, since its call may be under way.
///
/// ```no_run
/// # async fn example(sluice: sluice_sdk::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use sluice_sdk::reservations::ReservationConfig;
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

/// State that the background task shares with the tracker. The task does not keep it alive.
struct Shared {
    index: Mutex<Index<Grant>>,
    config: ReservationConfig,
    clock: Clock,
    /// When the tracker was created, by this machine's clock and by its steady clock.
    began: (Timestamp, i64),
    counts: Arc<StaleCounts>,
}

impl Client {
    /// Creates a tracker for grants of this client. It uses the client's clock.
    #[must_use]
    pub fn reservations(&self, config: ReservationConfig) -> ReservationTracker {
        let index = Mutex::new(Index::new(config.max_reservations.max(1), config.max_reservation_age));
        let clock = self.inner.config.connection.clock.clone();
        let began = (clock.now(), clock.steady_micros());
        let shared = Shared { index, config, clock, began, counts: Arc::default() };
        let shared = Arc::new(shared);
        self.inner.extensions.of::<Trackers>().add(&shared);
        ReservationTracker { shared, cleaning: Arc::default() }
    }
}

impl ReservationTracker {
    /// Stores `grant` for `request` under `bucket`: one of the grant's dimensions, or a name of the caller's
    /// own. If there is no room, or a stale grant holds the key, the stale grants are taken out and released
    /// first.
    ///
    /// # Errors
    /// [`ReservationError`], with the grant, if there still is no room or the key is in use. A grant under
    /// the key is never replaced: its call may be under way, and would end with the wrong grant.
    pub fn store(
        &self,
        request: &str,
        bucket: &str,
        grant: Grant,
    ) -> Result<ReservationId, ReservationError> {
        let age = i64::try_from(self.shared.config.max_reservation_age.as_micros()).unwrap_or(i64::MAX);
        grant.renew_until(self.shared.clock.steady_micros().saturating_add(age));
        let new = New { request, bucket, estimated_tokens: grant.cost(bucket), now: self.shared.now() };
        let (stale, stored) = {
            let mut index = self.shared.index();
            (index.make_room(&new), index.store(&new, grant))
        };
        self.shared.release_soon(stale);
        stored.map_err(|(refused, grant)| {
            grant.renew_as_set();
            let grant = Box::new(grant);
            match refused {
                NotStored::AtCapacity => {
                    ReservationError::AtCapacity { capacity: self.shared.capacity(), grant }
                }
                NotStored::Taken => {
                    ReservationError::Taken { request: request.into(), bucket: bucket.into(), grant }
                }
            }
        })
    }

    /// What the tracker knows of a grant, which stays; `None` if none is held under this key.
    #[must_use]
    pub fn get(&self, request: &str, bucket: &str) -> Option<Reservation> {
        self.shared.index().get(request, bucket).cloned()
    }

    /// Takes a grant out, for the end of its call; `None` if no grant is held under this key, or no longer.
    /// If several callers take it at once, one gets it.
    #[must_use]
    pub fn take(&self, request: &str, bucket: &str) -> Option<Tracked> {
        self.shared.index().take(request, bucket).map(Tracked::from)
    }

    /// Takes out the oldest grant of a request, whatever its bucket; `None` if none is held.
    #[must_use]
    pub fn take_oldest(&self, request: &str) -> Option<Tracked> {
        self.shared.index().take_oldest(request).map(Tracked::from)
    }

    /// Takes out all grants of a request, oldest first: for a request that failed.
    #[must_use]
    pub fn take_request(&self, request: &str) -> Vec<Tracked> {
        let taken = self.shared.index().take_request(request);
        taken.into_iter().map(Tracked::from).collect()
    }

    /// Takes out all stale grants, oldest first, for a caller that ends them in its own way.
    #[must_use]
    pub fn take_stale(&self) -> Vec<Tracked> {
        self.shared.take_stale()
    }

    /// Takes out all grants that were stored before `cutoff`, by the client's clock, oldest first.
    #[must_use]
    pub fn take_stored_before(&self, cutoff: Timestamp) -> Vec<Tracked> {
        let taken = self.shared.index().take_stored_before(cutoff);
        taken.into_iter().map(Tracked::from).collect()
    }

    /// Takes out all stale grants and releases them, even if the caller is dropped meanwhile. Takes at most
    /// as long as [`Grant::release`].
    pub async fn release_stale(&self) -> StaleReport {
        let stale = self.shared.take_stale();
        stale::release(Arc::clone(&self.shared.counts), stale).await
    }

    /// How the releases of stale grants ended, since the tracker was created.
    #[must_use]
    pub fn stale_report(&self) -> StaleReport {
        self.shared.counts.report()
    }

    /// Removes taken grants from the heap of ages, and returns how many it removed. The tracker does so
    /// itself once they are more than half of it: a call by hand frees memory sooner.
    pub fn compact(&self) -> usize {
        self.shared.index().compact()
    }

    /// The share of taken grants in the heap of ages, 0 to 1: above one half only if the heap is small.
    #[must_use]
    pub fn stale_entry_ratio(&self) -> f64 {
        let (stale, all) = {
            let index = self.shared.index();
            (index.stale_entries(), index.entries())
        };
        let count = |entries: usize| f64::from(u32::try_from(entries).unwrap_or(u32::MAX));
        if all == 0 { 0.0 } else { count(stale) / count(all) }
    }

    /// Number of grants held.
    #[must_use]
    pub fn reservation_count(&self) -> usize {
        self.shared.index().len()
    }

    /// Number of requests for which a grant is held.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.index().requests()
    }

    /// Starts the background task, which releases stale grants every
    /// [`ReservationConfig::stale_cleanup_interval`]. If the task is already running, this does nothing. The
    /// task ends with [`stop`](Self::stop), or when the last clone of the tracker is dropped.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(&self) {
        self.cleaning.start(&self.shared);
    }

    /// Ends the background task, if one runs, and waits for its releases under way: at most as long as
    /// [`Grant::release`]. Held grants stay; calls under way still find them at their end.
    pub async fn stop(&self) {
        self.cleaning.stop().await;
    }
}

impl Shared {
    /// The time by the steady clock, so that no grant in use becomes stale when this machine's clock is set.
    fn now(&self) -> Timestamp {
        let (began, steady) = self.began;
        Timestamp::from_micros(
            began.micros().saturating_add(self.clock.steady_micros().saturating_sub(steady)),
        )
    }

    fn capacity(&self) -> usize {
        self.config.max_reservations.max(1)
    }

    /// The lock is never held over an await or while a grant is dropped. No code under it panics, so the
    /// index is never left half changed.
    fn index(&self) -> MutexGuard<'_, Index<Grant>> {
        self.index.lock()
    }

    fn take_stale(&self) -> Vec<Tracked> {
        let now = self.now();
        let taken = self.index().take_stale(now);
        taken.into_iter().map(Tracked::from).collect()
    }

    /// Releases the grants on a task of its own. Outside of a runtime the grants are dropped, and the drop
    /// logs that their slots come back later.
    fn release_soon(&self, stale: Vec<HeldReservation<Grant>>) {
        if stale.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let stale = stale.into_iter().map(Tracked::from).collect();
            runtime.spawn(boxed(stale::release(Arc::clone(&self.counts), stale)));
        }
    }
}

impl From<HeldReservation<Grant>> for Tracked {
    fn from(held: HeldReservation<Grant>) -> Self {
        held.payload.renew_as_set();
        Self { reservation: held.reservation, grant: held.payload }
    }
}

impl fmt::Debug for ReservationTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tracker = f.debug_struct("ReservationTracker");
        tracker.field("config", &self.shared.config).field("reservations", &self.reservation_count());
        tracker.finish_non_exhaustive()
    }
}
