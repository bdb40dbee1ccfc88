//! What the process knows of the load of a concurrency bucket: the load row, and the callers that wait here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Load, Timestamp};
use tokio::time::Instant;

/// How long a crowd is believed. When this time has passed, two notes of this process have failed since.
const CROWD_KNOWN_FOR: Duration = Duration::from_secs(20);

/// How long a number of processes is believed.
const PROCESSES_KNOWN_FOR: Duration = Duration::from_secs(5 * 60);
/// A number is believed from this time after the first note on. Where many processes start at once, the first
/// of them to note its use finds itself alone; a minute later, all have noted theirs.
const SECOND_NOTE: Duration = Duration::from_secs(50);

/// What the replies to this process's notes of use showed.
#[derive(Clone, Copy, Debug)]
struct Processes {
    processes: u32,
    /// The first note of those without a long pause between them.
    first: Timestamp,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct LoadSeen {
    row: Mutex<Option<(Arc<Load>, Timestamp)>>,
    /// The slots that the callers waiting in this process want, in millionths.
    waiting: AtomicI64,
    processes: Mutex<Option<Processes>>,
    /// How many processes wanted slots, as the last note of this process found, and when.
    crowd: Mutex<Option<(u32, Instant)>>,
}

impl LoadSeen {
    /// The load row, if it was seen within `span`.
    pub(crate) fn within(&self, span: Duration, now: Timestamp) -> Option<Arc<Load>> {
        let seen = self.row.lock();
        let (load, seen_at) = seen.as_ref()?;
        (now.since(*seen_at) <= span).then(|| Arc::clone(load))
    }

    /// The load row as last seen, however long ago.
    pub(crate) fn last(&self) -> Option<Arc<Load>> {
        let seen = self.row.lock();
        seen.as_ref().map(|(load, _)| Arc::clone(load))
    }

    /// How many processes use the bucket. `None` if this process has not noted its use twice, a minute apart,
    /// the last time within [`PROCESSES_KNOWN_FOR`].
    pub(crate) fn processes(&self, now: Timestamp) -> Option<u32> {
        let noted = (*self.processes.lock())?;
        let is_known =
            noted.at.since(noted.first) >= SECOND_NOTE && now.since(noted.at) <= PROCESSES_KNOWN_FOR;
        is_known.then_some(noted.processes)
    }

    /// Notes how many processes the reply to a note of use shows.
    pub(crate) fn apply_processes(&self, processes: u32, now: Timestamp) {
        let mut noted = self.processes.lock();
        let before = noted.filter(|before| now.since(before.at) <= PROCESSES_KNOWN_FOR);
        *noted = Some(Processes { processes, first: before.map_or(now, |before| before.first), at: now });
    }

    /// How many processes of the fleet want slots, this one included. `None` if this process has not noted
    /// itself within [`CROWD_KNOWN_FOR`], as with `SLUICE_SELF_HEAL=off` or without the right to.
    pub(crate) fn crowd(&self) -> Option<u32> {
        let (crowd, at) = (*self.crowd.lock())?;
        (at.elapsed() <= CROWD_KNOWN_FOR).then_some(crowd)
    }

    pub(crate) fn apply_crowd(&self, crowd: u32) {
        *self.crowd.lock() = Some((crowd, Instant::now()));
    }

    /// The slots that the callers waiting in this process want.
    pub(crate) fn waiting(&self) -> Amount {
        Amount::from_micros(self.waiting.load(Ordering::Relaxed).max(0))
    }

    pub(crate) fn apply_read(&self, load: Arc<Load>, now: Timestamp) {
        *self.row.lock() = Some((load, now));
    }

    /// Notes that the callers waiting in this process want `change` more slots (fewer if negative).
    pub(crate) fn wants(&self, change: Amount) {
        self.waiting.fetch_add(change.micros(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_processes_is_known_from_the_second_note_on_and_for_five_minutes() {
        let (load, at) = (LoadSeen::default(), |secs: u32| Timestamp::from_secs(1_800_000_000 + secs));
        assert_eq!(load.processes(at(0)), None);
        load.apply_processes(1, at(0));
        assert_eq!(load.processes(at(1)), None, "the others have not noted themselves yet");
        load.apply_processes(10, at(61));
        assert_eq!([62, 361, 362].map(|secs| load.processes(at(secs))), [Some(10), Some(10), None]);
        load.apply_processes(1, at(700));
        assert_eq!(load.processes(at(701)), None, "after a long pause, as at the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_was_seen_long_ago_is_not_known() {
        let load = LoadSeen::default();
        assert_eq!(load.crowd(), None);
        load.apply_crowd(7);
        tokio::time::advance(CROWD_KNOWN_FOR).await;
        assert_eq!(load.crowd(), Some(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(load.crowd(), None);
    }
}
