//! Whether the table has a bucket, as far as this process knows.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Timestamp;
use tokio::time::Instant;

/// How long a bucket that the table does not have is unknown without a read. Larger hears later of one that another process makes;
/// smaller costs those who ask for it all the time more reads.
const UNKNOWN_MEMORY: Duration = Duration::from_secs(1);

/// Whether the table has a bucket.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// When it was asked for, and the table did not have it, by the time of the table.
    missed_at: Option<Timestamp>,
    /// When this process last made it, or found it made.
    made_at: Option<Instant>,
}

impl Presence {
    /// A read of `asked_at` shows no row. It counts from the question on: the reply may have come long after it, since the process
    /// stood still, and the bucket may have been made since.
    pub(super) fn missed(&self, asked_at: Timestamp) {
        self.0.lock().missed_at = Some(asked_at);
    }

    /// Whether the table was seen not to have it a moment ago.
    pub(super) fn is_missing(&self, now: Timestamp) -> bool {
        self.0.lock().missed_at.is_some_and(|at| is_within(UNKNOWN_MEMORY, at, now))
    }

    pub(super) fn made(&self) {
        *self.0.lock() = Seen { missed_at: None, made_at: Some(Instant::now()) };
    }

    /// Whether this process has made it since, or found it made.
    pub(super) fn was_made_since(&self, asked: Instant) -> bool {
        self.0.lock().made_at.is_some_and(|at| at >= asked)
    }

    /// The next who asks reads the row.
    pub(super) fn doubt(&self) {
        self.0.lock().missed_at = None;
    }
}

/// Whether `at` is no later than `now`, and no further back than `span`.
pub(super) fn is_within(span: Duration, at: Timestamp, now: Timestamp) -> bool {
    (0..=i64::try_from(span.as_micros()).unwrap_or(i64::MAX)).contains(&now.micros_since(at))
}
