//! Whether the table has a bucket, as far as this process knows.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Timestamp;
use tokio::time::Instant;

use super::{Entry, locked};

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
        locked(&self.0).missed_at = Some(asked_at);
    }

    /// Whether the table was seen not to have it a moment ago.
    pub(super) fn is_missing(&self, now: Timestamp) -> bool {
        locked(&self.0).missed_at.is_some_and(|at| is_within(UNKNOWN_MEMORY, at, now))
    }

    pub(super) fn made(&self) {
        *locked(&self.0) = Seen { missed_at: None, made_at: Some(Instant::now()) };
    }

    /// Whether this process has made it since, or found it made.
    pub(super) fn was_made_since(&self, asked: Instant) -> bool {
        locked(&self.0).made_at.is_some_and(|at| at >= asked)
    }

    /// The next who asks reads the row.
    pub(super) fn doubt(&self) {
        locked(&self.0).missed_at = None;
    }
}

impl Entry {
    /// A read that was sent at `asked`, which was `asked_at`, found no row: for a moment, nobody asks the table again. If the bucket was made
    /// since, or another reply showed it, this one is of before and tells nothing.
    pub(crate) fn missed(&self, asked: Instant, asked_at: Timestamp) {
        let was_seen = self.reading().is_some_and(|reading| reading.is_read_since(asked_at));
        if !was_seen && !self.was_made_since(asked) {
            self.gone();
            self.presence.missed(asked_at);
        }
    }

    /// Whether the table was seen not to have it a moment ago.
    pub(crate) fn is_unknown(&self, now: Timestamp) -> bool {
        self.presence.is_missing(now)
    }

    /// This process has made the bucket, or found it made.
    pub(crate) fn is_made(&self) {
        self.presence.made();
    }

    /// Whether it has since.
    pub(crate) fn was_made_since(&self, asked: Instant) -> bool {
        self.presence.was_made_since(asked)
    }
}

/// Whether `at` is no later than `now`, and no further back than `span`.
pub(super) fn is_within(span: Duration, at: Timestamp, now: Timestamp) -> bool {
    (0..=i64::try_from(span.as_micros()).unwrap_or(i64::MAX)).contains(&now.micros_since(at))
}
