//! Settings of a tracker.

use std::time::Duration;

/// Settings of a [`ReservationTracker`](super::ReservationTracker).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReservationConfig {
    /// The most grants held at once; 10,000 by default, at least 1. Each grant takes about 1 kB. A larger
    /// number costs memory; a smaller one refuses calls when many streams are open.
    pub max_reservations: usize,
    /// The age from which the tracker treats a grant as forgotten by its call and gives it back; 300 s by
    /// default. Keep it above the longest call: a shorter age gives away slots that are in use, a longer age
    /// keeps the slots of a lost call longer.
    ///
    /// Leases (`SLUICE_LEASE_TTL`) are shorter: until this age they are renewed.
    pub max_reservation_age: Duration,
    /// How often the background task looks for such grants; 30 s by default, at least 10 ms. A grant is given
    /// back late by at most this time. A shorter interval looks at the oldest grant more often.
    pub stale_cleanup_interval: Duration,
}

impl Default for ReservationConfig {
    fn default() -> Self {
        Self {
            max_reservations: 10_000,
            max_reservation_age: Duration::from_secs(300),
            stale_cleanup_interval: Duration::from_secs(30),
        }
    }
}
