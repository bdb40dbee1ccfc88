//! Whether transactions on a concurrency bucket collide, so that its slots are taken with inline leases.
//!
//! A transaction holds the bucket's row for about 16 ms, and makes every other writer of the row fail. A
//! plain update of the same row takes 4 ms, and makes none fail.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Bucket, Timestamp};
use tokio::time::Instant;

/// How long a bucket counts as contended after a writer met another. Longer keeps leases out of rows of their
/// own in quiet times; shorter meets the conflict again.
const CONTENDED_FOR: Duration = Duration::from_secs(10);

/// How long callers follow one that moves to the queue for inline leases. After that, the queue itself shows
/// that somebody waits.
const FOLLOW_FOR: Duration = Duration::from_secs(1);

/// So many writes of others a second keep a bucket contended: a transaction would meet every sixth of them.
const BUSY_WRITES: i64 = 10;

/// Between two readings that are compared.
const SHORTEST_SPAN: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Contended(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    came: u64,
    until: Option<Instant>,
    /// A version of the row, when it was seen, and how often this process has written the row since.
    seen: Option<(i64, Timestamp, i64)>,
}

impl Contended {
    pub(crate) fn is_now(&self) -> bool {
        self.0.lock().until.is_some_and(|until| until > Instant::now())
    }

    /// The place of a caller among those of this process that want slots of the bucket.
    pub(crate) fn place(&self) -> u64 {
        let mut state = self.0.lock();
        state.came += 1;
        state.came
    }

    /// Notes that this process met another writer.
    pub(crate) fn note_conflict(&self) {
        self.0.lock().until = Some(Instant::now() + CONTENDED_FOR);
    }

    /// Notes that a caller of this process waits for slots, and is about to move to the queue for inline
    /// leases. Callers that come after it go there too.
    pub(crate) fn note_waiter(&self) {
        let mut state = self.0.lock();
        let until = Instant::now() + FOLLOW_FOR;
        state.until = Some(state.until.map_or(until, |known| known.max(until)));
    }

    /// Notes the row after a write of this process.
    pub(crate) fn wrote(&self, bucket: &Bucket, now: Timestamp) {
        let mut state = self.0.lock();
        let Some((version, at, own)) = state.seen else {
            state.seen = Some((bucket.version(), now, 0));
            return;
        };
        let (own, span) = (own + 1, now.since(at));
        if span < SHORTEST_SPAN {
            state.seen = Some((version, at, own));
            return;
        }
        state.seen = Some((bucket.version(), now, 0));
        let others = bucket.version().saturating_sub(version).saturating_sub(own);
        let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        if others.saturating_mul(1_000) >= BUSY_WRITES.saturating_mul(span) {
            state.until = Some(Instant::now() + CONTENDED_FOR);
        }
    }
}
