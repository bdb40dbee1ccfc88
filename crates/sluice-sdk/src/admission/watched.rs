//! What a process sees of a bucket over time: when something last departed, and since when work is pending.
//!
//! If more slots were granted between two readings than the number of taken slots rose by, something
//! departed. It counts at the later reading: late rather than early, so that no vendor that works counts as
//! down.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{Amount, Bucket, Load, ShedReason, Standing, Timestamp};

use crate::bucket::known::Watch;
use crate::lane::entry::Entry;

/// How long every request is admitted without another read, after a read that failed.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// What admission has seen of one bucket. Created by the first question about the bucket.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    seen: Mutex<WatchState>,
    /// Held while the rows are read, so that many callers cause one read.
    pub(super) reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct WatchState {
    last: Option<Standing>,
    last_completion: Option<Timestamp>,
    /// The last reading that showed the bucket wholly free.
    free_at: Option<Timestamp>,
    /// The first reading since then that showed slots taken.
    pending_from: Option<Timestamp>,
    asked_at: Timestamp,
    is_refreshed: bool,
    /// After a read that failed: no read is tried before this instant.
    unknown_until: Timestamp,
    /// While the vendor counts as down: when one request is let through as a probe.
    tries_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completions {
    pub(super) last_completion: Option<Timestamp>,
    pub(super) nonempty_since: Option<Timestamp>,
}

impl WatchState {
    /// After the clock was set back, what was seen lies in the future: it counts as seen now.
    fn clock_is(&mut self, now: Timestamp) {
        for seen_at in [&mut self.last_completion, &mut self.free_at, &mut self.pending_from] {
            *seen_at = seen_at.map(|at| at.min(now));
        }
    }
}

/// What admission sees of a bucket: from the first question on, every reply that shows the bucket.
pub(super) fn watched(entry: &Entry) -> Arc<Watched> {
    let watched = entry.extensions.of::<Watched>();
    entry.watched_by(|| Arc::clone(&watched) as Arc<dyn Watch>);
    watched
}

impl Watch for Watched {
    /// The first reply is compared with what the last sweep found.
    fn apply_read(&self, bucket: &Bucket, load: &dyn Fn() -> Option<Arc<Load>>, now: Timestamp) {
        if !bucket.limit().is_concurrent() {
            return;
        }
        let standing = Standing::of(bucket);
        let mut seen = self.seen();
        seen.clock_is(now);
        let before = match seen.last {
            Some(last) => Some(last),
            // The load row is read first: without it, the first reading would be compared with nothing.
            None => match load() {
                Some(load) => Standing::measured(&load),
                None => return,
            },
        };
        // If it is unknown whether something departed, something counts as departed.
        if before.is_some_and(|before| before.departed(&standing) != Some(Amount::ZERO)) {
            seen.last_completion = seen.last_completion.max(Some(now));
        }
        seen.last = Some(standing);
        if standing.taken() > Amount::ZERO {
            seen.pending_from.get_or_insert(now);
        } else {
            (seen.free_at, seen.pending_from) = (Some(now), None);
        }
    }

    fn completed(&self, now: Timestamp) {
        let mut seen = self.seen();
        seen.last_completion = seen.last_completion.max(Some(now));
    }
}

impl Watched {
    /// What is known now, from this process's readings and from sweeps, which may have seen pending work
    /// earlier. Their instant does not count if the bucket was seen wholly free since.
    pub(super) fn known(&self, load: Option<&Load>) -> Completions {
        let seen = self.seen();
        let measured = load
            .and_then(Load::pending_since)
            .filter(|since| seen.free_at.is_none_or(|free_at| free_at < *since));
        let last_completion = seen.last_completion.max(load.and_then(Load::departed_at));
        Completions {
            last_completion,
            nonempty_since: seen.pending_from.map(|from| measured.map_or(from, |since| since.min(from))),
        }
    }

    pub(super) fn asked(&self, now: Timestamp) {
        self.seen().asked_at = now;
    }

    pub(super) fn unknown(&self, now: Timestamp) {
        self.seen().unknown_until = now.after(UNKNOWN_FOR);
    }

    pub(super) fn is_unknown(&self, now: Timestamp) -> bool {
        let until = self.seen().unknown_until;
        now < until && until <= now.after(UNKNOWN_FOR)
    }

    /// Whether a request that is to be shed is let through as a probe. If every request is shed, nothing
    /// departs, and nobody would learn that the vendor is up again. One request is let through in each
    /// staleness time, counted from the first shed. If slots for the request are free (`starts_now`), the
    /// first request is let through as well, since what is held may be a crashed holder's.
    pub(super) fn tries(
        &self,
        reason: ShedReason,
        starts_now: bool,
        staleness: Duration,
        now: Timestamp,
    ) -> bool {
        let mut seen = self.seen();
        if reason != ShedReason::UpstreamDown {
            seen.tries_at = None;
            return false;
        }
        let next = now.after(staleness);
        // An instant further ahead than that was set before the clock was set back.
        match seen.tries_at {
            Some(at) if (now.after(Duration::from_micros(1))..=next).contains(&at) => false,
            at => {
                seen.tries_at = Some(next);
                at.is_some() || starts_now
            }
        }
    }

    /// A request was admitted: the vendor does not count as down.
    pub(super) fn is_up(&self) {
        self.seen().tries_at = None;
    }

    /// Whether a reply has shown the bucket since the first question about it.
    pub(super) fn has_seen(&self) -> bool {
        self.seen().last.is_some()
    }

    pub(super) fn is_unasked_for(&self, span: Duration, now: Timestamp) -> bool {
        now.since(self.seen().asked_at) > span
    }

    /// Marks the bucket as refreshed in the background. Returns true if it was not marked before.
    pub(super) fn begin_refreshing(&self) -> bool {
        !std::mem::replace(&mut self.seen().is_refreshed, true)
    }

    pub(super) fn end_refreshing(&self) {
        self.seen().is_refreshed = false;
    }

    fn seen(&self) -> MutexGuard<'_, WatchState> {
        self.seen.lock()
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Cost, Dimension, Limit};

    use super::*;
    use crate::lane::cache::Cache;

    /// The first question creates the state of admission. A reply must not, or every bucket would be watched.
    #[test]
    fn a_bucket_is_watched_from_the_first_question_on() {
        let entry = Cache::default().entry(
            &Dimension::new("elevenlabs#concurrent").unwrap(),
            None,
            Timestamp::default,
        );
        let now = Timestamp::from_secs(1_709_550_000);
        let limit = Limit::concurrent(Amount::from_tokens(4), Cost::ONE).unwrap();
        let bucket = Arc::new(Bucket::full(entry.dimension.clone(), limit, now));
        entry.apply_read(Arc::clone(&bucket), now);
        entry.apply_write(Arc::clone(&bucket), now);
        assert!(entry.extensions.used::<Watched>().is_none());
        entry.load.apply_read(Arc::new(Load::none(&entry.dimension)), now);
        let watched = watched(&entry);
        assert!(!watched.has_seen());
        entry.apply_read(bucket, now);
        assert!(watched.has_seen());
    }
}
