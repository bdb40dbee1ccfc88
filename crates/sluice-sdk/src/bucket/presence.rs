//! Whether the table has a bucket, as far as this process knows, and for how long it remembers that it has
//! none.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Timestamp;
use tokio::time::Instant;

/// How long a missing bucket counts as unknown without another read. Larger learns later of a bucket that
/// another process creates; smaller reads more for callers that ask all the time.
const UNKNOWN_MEMORY: Duration = Duration::from_secs(1);

/// Whether the table has a bucket.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<PresenceState>);

#[derive(Debug, Default)]
struct PresenceState {
    /// When the read that found no row was sent, by the time of the table.
    missed_at: Option<Timestamp>,
    /// When this process last created the bucket, or found it created.
    made_at: Option<Instant>,
}

impl Presence {
    /// Notes that a read sent at `asked_at` found no row. The time counts from the sending: the reply may
    /// come long after, because the process stood still, and the bucket may have been created since.
    pub(super) fn missed(&self, asked_at: Timestamp) {
        self.0.lock().missed_at = Some(asked_at);
    }

    pub(super) fn is_missing(&self, now: Timestamp) -> bool {
        self.0.lock().missed_at.is_some_and(|at| is_within(UNKNOWN_MEMORY, at, now))
    }

    pub(super) fn made(&self) {
        *self.0.lock() = PresenceState { missed_at: None, made_at: Some(Instant::now()) };
    }

    /// Whether this process has created the bucket since `asked`, or found it created.
    pub(super) fn was_made_since(&self, asked: Instant) -> bool {
        self.0.lock().made_at.is_some_and(|at| at >= asked)
    }

    /// Makes the next caller read the row.
    pub(super) fn doubt(&self) {
        self.0.lock().missed_at = None;
    }
}

/// Whether `at` is no later than `now` and no earlier than `span` before `now`.
pub(super) fn is_within(span: Duration, at: Timestamp, now: Timestamp) -> bool {
    (0..=i64::try_from(span.as_micros()).unwrap_or(i64::MAX)).contains(&now.micros_since(at))
}
